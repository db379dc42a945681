"""A program's trace: runs the program as a process of its own and gathers what all its processes recorded.

``opsmith trace`` checks its filters and shows what is found here.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from opsmith.base.cache_folder import cache_root
from opsmith.build.progress import OnProgress
from opsmith.build.tracer import build_tracer
from opsmith.errors import FilterInvalid, LoadError, OperatorUnknown, nearest
from opsmith.observe.programs.process import Program
from opsmith.plan import Route, plan_backend
from opsmith.runtime.records import trace
from opsmith.runtime.records.trace.files import read_threads
from opsmith.runtime.records.trace.recording import REQUEST, ProcessFacts, Request, check_modules
from opsmith.runtime.records.trace.traced_calls import TracedThread, TraceFilter, names, routed
from opsmith.schema import Catalogue


@dataclass(frozen=True)
class ProgramTrace:
    """How a program ended, and what its threads did, process by process.

    ``status`` is its exit status, 128 and the signal's number where a signal ended it.  ``description`` is
    the loaded backend's ``backend.yaml``, empty where none was loaded.  ``modules`` are the paths of the
    modules that were seen, ``met`` those of the request that were called.
    """

    status: int
    description: str
    threads: tuple[TracedThread, ...]
    modules: frozenset[str]
    met: frozenset[str]

    @property
    def dropped(self) -> int:
        return sum(thread.dropped for thread in self.threads)


def trace_program(
    program: Program,
    request: Request,
    *,
    backend: str | None,
    progress: OnProgress | None = None,
) -> ProgramTrace:
    """Runs ``program`` to its end, with ``backend`` loaded for it, if given, and reads what it recorded.

    Raises :class:`~opsmith.errors.FileMissing`, a :class:`~opsmith.errors.BuildError`, or
    :class:`~opsmith.errors.LoadError` for a program that succeeded without having been traced.
    """
    build_tracer(progress=progress)
    with tempfile.TemporaryDirectory(prefix="opsmith-trace-") as place:
        folder = Path(place)
        (folder / REQUEST).write_bytes(msgspec.json.encode(request))
        status = program.run({trace.VARIABLE: place}, backend=backend)
        threads = read_threads(folder, shapes=request.shapes)
        facts = {
            int(path.stem): msgspec.json.decode(path.read_bytes(), type=ProcessFacts)
            for path in folder.glob("[0-9]*.json")
        }
    if not facts and status == 0:
        raise LoadError(
            f"`{program.name}` was not traced: it imported no torch, or one that was told to load no "
            "backends",
            remedy="trace a program that imports torch, without TORCH_DEVICE_BACKEND_AUTOLOAD=0",
        )
    # A fork has no facts of its own, and its parent's backend.
    description = next((each.description for each in facts.values() if each.description), "")
    plan = plan_backend(description, cache_root()) if description else None
    every = [
        routed(of_process, plan, facts[process].routes if process in facts else None)
        for process, of_process in threads.items()
    ]
    return ProgramTrace(
        status,
        description,
        tuple(thread for of_process in every for thread in of_process),
        frozenset(path for each in facts.values() for path in each.modules),
        frozenset(path for each in facts.values() for path in each.met),
    )


# ---- filters


def check_filter(chosen: TraceFilter, catalogue: Catalogue) -> None:
    """Raises for a name in ``chosen`` that no traced program can have.

    :class:`~opsmith.errors.OperatorUnknown` or :class:`~opsmith.errors.FilterInvalid`.  Other libraries'
    operators and nodes of a backward are known only when the program has run: see :func:`check_met`.
    """
    bases = {name.partition(".")[0] for name in catalogue.operators}
    for operator in chosen.operators:
        short = operator.removeprefix("aten::")
        if _is_open(short) or short in catalogue.operators or short in bases:
            continue
        raise OperatorUnknown(
            f"torch {catalogue.torch} has no operator `{short}`"
            f"{nearest(short, bases.union(catalogue.operators))}",
            remedy="`opsmith ops --search` finds operators; wildcards are allowed, as in `conv*`",
        )
    if chosen.keys:
        from opsmith.schema.torch_names import DispatchKey

        known = DispatchKey.__members__
        for key in chosen.keys:
            if not any(fnmatchcase(name, key) for name in known):
                raise FilterInvalid(
                    f"PyTorch has no dispatch key `{key}`{nearest(key, known)}",
                    remedy="`opsmith keys \"torch.ones(2, device='sim')\"` shows a Tensor's; wildcards are "
                    "allowed, as in `Autograd*`",
                )
    routes = [route.value for route in Route]
    for route in chosen.routes:
        if route not in routes:
            raise FilterInvalid(
                f"no plan has the route `{route}`{nearest(route, routes)}",
                remedy=f"name one of: {', '.join(routes)}",
            )


def _is_open(name: str) -> bool:
    """Whether only a trace can tell what ``name`` stands for: wildcards, custom operators, nodes."""
    return (
        any(character in name for character in "*?[")
        or "::" in name
        or "Backward" in name
        or name == "AccumulateGrad"
    )


def check_met(traced: ProgramTrace, chosen: TraceFilter, modules: Sequence[str]) -> None:
    """Raises for what was asked for by name and is known not to be in the program that was traced.

    As :func:`check_filter`, and :class:`~opsmith.errors.FilterInvalid` for a module.
    """
    check_modules(modules, set(traced.met), set(traced.modules))
    operators = [name for name in chosen.operators if _is_open(name)]
    if not operators:
        return
    seen = {call.operator for thread in traced.threads for call in thread.calls}
    for operator in operators:
        if not any(names(operator, each) for each in seen):
            raise OperatorUnknown(
                f"the program called nothing named `{operator}`{nearest(operator, seen)}",
                remedy="`opsmith trace --format table` lists all that it calls",
            )
