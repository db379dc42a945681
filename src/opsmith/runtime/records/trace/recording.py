"""Starts and ends the recording of what goes through PyTorch's dispatcher in this process.

``csrc/trace`` records; nothing of it is loaded before a trace starts.
``opsmith trace`` has a program start one through ``OPSMITH_TRACE``; ``with opsmith.trace()`` traces a
block.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from opsmith.base.output_files import write_output
from opsmith.base.trusted_files import open_library
from opsmith.errors import FilterInvalid, LoadError, TraceRejected, nearest
from opsmith.runtime.loaded import loaded_if_any, when_kernels_change
from opsmith.runtime.records.exit_files import write_of_process
from opsmith.runtime.records.trace import VARIABLE
from opsmith.runtime.records.trace.files import read_threads
from opsmith.runtime.records.trace.modules import WatchedModules
from opsmith.runtime.records.trace.shown import perfetto, table, text
from opsmith.runtime.records.trace.traced_calls import (
    Total,
    TracedCall,
    TracedThread,
    TraceFilter,
    routed,
    totals,
)

if TYPE_CHECKING:
    from torch.nn import Module


REQUEST = "request.json"

LIMIT = 1_000_000
"""How many calls are recorded, unless told otherwise: 32 bytes each, and 8 for each size of a tensor."""


class Request(msgspec.Struct):
    """The request of ``opsmith trace`` to the program: ``request.json`` in the folder."""

    limit: int
    shapes: bool
    modules: list[str]


class ProcessFacts(msgspec.Struct):
    """The facts that a process writes beside its calls, as ``<pid>.json``.

    ``description`` is the loaded backend's ``backend.yaml``, or empty.  ``routes`` are those of Python
    kernels.  ``modules`` are the paths seen, ``met`` those of the request that were called.
    """

    description: str = ""
    routes: dict[str, str] = {}
    modules: list[str] = []
    met: list[str] = []


class Trace:
    """The calls of a block; filled in at the end of the block.

    ``threads`` hold the calls in the order in which they began; ``dropped`` is the number of those that
    came after the limit.
    """

    def __init__(self) -> None:
        self.threads: tuple[TracedThread, ...] = ()

    @property
    def calls(self) -> tuple[TracedCall, ...]:
        """The calls of all threads, one thread after the other."""
        return tuple(call for thread in self.threads for call in thread.calls)

    @property
    def dropped(self) -> int:
        return sum(thread.dropped for thread in self.threads)

    def text(
        self,
        *,
        operators: Sequence[str] = (),
        keys: Sequence[str] = (),
        routes: Sequence[str] = (),
        depth: int | None = None,
    ) -> str:
        """The calls as indented lines.

        ``operators`` and ``keys`` may hold wildcards, and ``add`` stands for all its overloads; ``depth``
        is how many levels are shown.
        """
        chosen = TraceFilter(tuple(operators), tuple(keys), tuple(routes), depth)
        return "\n".join(text(self.threads, chosen))

    def totals(self) -> tuple[Total, ...]:
        """Calls and time by operator, key and route, what took most time of its own first."""
        return totals(self.threads, TraceFilter())

    def table(self) -> str:
        """:meth:`totals` as lines of text."""
        return "\n".join(table(self.totals()))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the calls as JSON that ui.perfetto.dev and chrome://tracing open.

        Raises :class:`~opsmith.errors.OutputRejected`.
        """
        write_output(Path(path), perfetto(self.threads, TraceFilter()))

    def __str__(self) -> str:
        return self.text()


@contextmanager
def trace(
    *,
    shapes: bool = True,
    module: str | Module | Sequence[str | Module] = (),
    limit: int = LIMIT,
) -> Iterator[Trace]:
    """Records every kernel that PyTorch's dispatcher runs in this process, in all threads, during a block.

    ``print(t)`` after the block shows them, nested as they were called.  ``shapes`` records the tensors
    among their arguments.  ``module`` limits the trace to the forward and the backward of modules: a
    path such as ``"model.layers.3"`` or ``"layers.*"``, or the module itself.  After ``limit`` calls the
    others are only counted.  The first trace of a machine builds the recorder, which takes some twenty
    seconds.  Works with and without a loaded backend; routes are those of its plan.

    Raises :class:`~opsmith.errors.TraceRejected` where a trace runs already,
    :class:`~opsmith.errors.FilterInvalid` for a module that the block has not called, and a
    :class:`~opsmith.errors.BuildError`.
    """
    wanted = (module,) if isinstance(module, str) or not isinstance(module, Sequence) else module
    folder = Path(tempfile.mkdtemp(prefix="opsmith-trace-"))
    recorded = Trace()
    try:
        recording = _Recording(folder, limit, shapes, wanted)
        failed = True
        try:
            yield recorded
            failed = False
        finally:
            recording.stop()
            recorded.threads = routed(
                (
                    each
                    for threads in read_threads(folder, shapes=shapes).values()
                    for each in threads
                ),
                loaded.plan if (loaded := loaded_if_any()) else None,
            )
            if not failed:
                check_modules(
                    [each for each in wanted if isinstance(each, str)],
                    recording.modules.met,
                    recording.modules.known,
                )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def check_modules(wanted: Sequence[str], met: set[str], known: set[str]) -> None:
    """Raises :class:`~opsmith.errors.FilterInvalid` for a path of ``wanted`` that is not in ``met``."""
    for path in wanted:
        if path not in met:
            raise FilterInvalid(
                f"no module `{path}` was called{nearest(path, known)}"
                if known
                else f"no module `{path}` was called: none was",
                remedy="name it by its path in the model, as named_modules() does; compiled modules are "
                "not seen",
            )


# ---- the recording


class _Recording:
    """The trace that runs in this process, from its making to :meth:`stop`."""

    current: _Recording | None = None
    _lock = threading.Lock()

    def __init__(
        self, folder: Path, limit: int, shapes: bool, wanted: Sequence[str | Module]
    ) -> None:
        with self._lock:
            if _Recording.current is not None:
                raise TraceRejected(
                    "a trace runs already in this process",
                    remedy="let it end before another starts; `opsmith trace` traces the whole program",
                )
            if limit < 1:
                raise TraceRejected(
                    f"a limit of {limit} calls records nothing", remedy="give a limit of 1 or more"
                )
            recorder = _recorder()
            self.modules = WatchedModules(wanted, _enter_module, _leave_module)
            failure = recorder.opsmith_trace_start(
                os.fsencode(folder), limit, int(shapes), int(bool(wanted))
            )
            if failure is not None:
                raise TraceRejected(
                    f"the trace cannot start: {failure.decode(errors='replace')}",
                    remedy="free some space in the folder for temporary files, or set TMPDIR",
                )
            if wanted:
                self.modules.start()
            _Recording.current = self

    def stop(self) -> None:
        with self._lock:
            self.modules.stop()
            _recorder().opsmith_trace_stop()
            _Recording.current = None


def refresh() -> None:
    """Has the trace that runs, if one does, see kernels that have been registered since its start."""
    if _Recording.current is not None:
        _recorder().opsmith_trace_refresh()


@cache
def _recorder() -> ctypes.CDLL:
    # torch brings the libraries that it is linked to.
    import torch  # noqa: F401

    # Here: a process that loads a package's libraries, and records nothing, does without what builds.
    from opsmith.build.tracer import build_tracer
    from opsmith.build.waiting import ShownBuild

    with ShownBuild("what records traces") as report:
        path = build_tracer(progress=report)
    try:
        library = open_library(path)
    except OSError as error:
        raise LoadError(
            f"the recorder cannot be loaded: {error}", remedy=f"remove {path} and try again"
        ) from None
    for name, *arguments in (
        ("start", ctypes.c_char_p, ctypes.c_int64, ctypes.c_int, ctypes.c_int),
        ("stop",),
        ("note_clock",),
        ("refresh",),
        ("enter_module", ctypes.c_char_p),
        ("leave_module", ctypes.c_int),
    ):
        function = getattr(library, f"opsmith_trace_{name}")
        function.argtypes, function.restype = arguments, ctypes.c_char_p
    return library


def _enter_module(path: str) -> None:
    _recorder().opsmith_trace_enter_module(path.encode())


def _leave_module(raised: bool) -> None:
    _recorder().opsmith_trace_leave_module(int(raised))


# ---- a whole program


def start() -> None:
    """Does, in a process that has just imported torch, what the environment asks for."""
    place = os.environ.get(VARIABLE)
    if not place or _Recording.current is not None:
        return
    folder = Path(place)
    request = msgspec.json.decode((folder / REQUEST).read_bytes(), type=Request)
    recording = _Recording(folder, request.limit, request.shapes, request.modules)
    atexit.register(_write_facts, folder, recording, os.getpid())
    _write_facts(folder, recording, os.getpid())


def note_backend() -> None:
    """Tells the trace that runs, if one does, of the backend that has just been loaded."""
    place = os.environ.get(VARIABLE)
    if place and (recording := _Recording.current) is not None:
        refresh()
        _write_facts(Path(place), recording, os.getpid())


when_kernels_change(refresh)


def _write_facts(folder: Path, recording: _Recording, process: int) -> None:
    if os.getpid() != process or _Recording.current is not recording:
        return  # a fork, which has its parent's backend
    loaded = loaded_if_any()
    facts = ProcessFacts(
        str(loaded.description) if loaded else "",
        loaded.python_routes() if loaded else {},
        sorted(recording.modules.known),
        sorted(recording.modules.met),
    )
    _recorder().opsmith_trace_note_clock()
    write_of_process(folder, facts)
