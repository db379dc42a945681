"""One backend's libraries, from its description: plan, emit, compile, or find all of it in the cache."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from opsmith.build.cache import is_whole, mark_used, usable_cache, write_whole
from opsmith.build.compile import Compilation, LeanSources, SharedLibrary
from opsmith.build.generated import write_generated
from opsmith.build.lean import lean_sources
from opsmith.build.progress import Progress
from opsmith.build.toolchain import (
    Compiler,
    ExecutorchInstallation,
    TorchInstallation,
    find_compiler,
    find_executorch,
    find_torch,
)
from opsmith.build.undefined import WantedFunction, located_undefined
from opsmith.description import Backend, Kernel, Library, Owner, StubKernel, read_backend
from opsmith.emit import class_name, declaration, emit, meta_declaration
from opsmith.errors import Location, SymbolUndefined
from opsmith.plan import MetaRule, Plan, plan_backend

_PACKAGE = Path(__file__).resolve().parent.parent
_CSRC = _PACKAGE / "csrc"
_FROM_ABOVE = re.compile(r'^\s*#\s*include\s*"(\.\./[^"]+)"', re.MULTILINE)
_PYTHON_AND_YAML = frozenset({".py", ".yaml"})


@dataclass(frozen=True)
class BuiltBackend:
    """What :func:`build_backend` built: the library to load into torch, and the driver it opens.

    ``owners`` define operators that the library implements, and come first.
    """

    name: str
    library: Path
    driver: Path
    generated: Path
    host_window: bool
    driver_location: Location
    cache: Path
    owners: tuple[Owner, ...] = ()


@dataclass(frozen=True)
class _Tools:
    """What is installed to build a backend with; ExecuTorch only where a library needs it."""

    torch: TorchInstallation
    compiler: Compiler
    executorch: ExecutorchInstallation | None

    @classmethod
    def found(cls, backend: Backend, cache: Path) -> _Tools:
        executorch = find_executorch() if backend.lean_libraries else None
        return cls(find_torch(), find_compiler(cache), executorch)


class _Record(msgspec.Struct):
    """What serves a description whose inputs have the digest that names the record's file."""

    library: str
    driver: str
    generated: str


def build_backend(
    description: Path, *, progress: Callable[[Progress], None] | None = None
) -> BuiltBackend:
    """The libraries of the backend described by the file ``description``, built where that is needed.

    ``progress`` is told of each step.  Raises a :class:`~opsmith.errors.DescriptionError` or a
    :class:`~opsmith.errors.BuildError`.
    """
    report = progress or (lambda step: None)
    cache = usable_cache()
    backend = read_backend(description, None)
    tools = _Tools.found(backend, cache)
    record_path = _record_path(backend, tools, cache)
    record = _read(record_path)
    if record is None:
        record = _build(backend, description, tools, cache, report)
        write_whole(record_path, msgspec.json.encode(record))
    return _built(backend, record, cache)


def find_built(description: Path) -> BuiltBackend | None:
    """What :func:`build_backend` would return without building anything; None where it would build.

    Raises as it does.
    """
    cache = usable_cache()
    backend = read_backend(description, None)
    record = _read(_record_path(backend, _Tools.found(backend, cache), cache))
    return _built(backend, record, cache) if record else None


def _record_path(backend: Backend, tools: _Tools, cache: Path) -> Path:
    return cache / "backends" / f"{backend.name}-{_digest(backend, tools)}.json"


def _built(backend: Backend, record: _Record, cache: Path) -> BuiltBackend:
    return BuiltBackend(
        name=backend.name,
        library=Path(record.library),
        driver=Path(record.driver),
        generated=Path(record.generated),
        host_window=backend.driver.host_window,
        driver_location=backend.driver.location,
        cache=cache,
        owners=tuple(owner for library in backend.libraries for owner in library.owners),
    )


def _build(
    backend: Backend,
    description: Path,
    tools: _Tools,
    cache: Path,
    report: Callable[[Progress], None],
) -> _Record:
    report(Progress("planning every operator"))
    plan = plan_backend(str(description), cache)
    report(Progress("generating C++"))
    texts = {file.name: file.text for file in emit(plan)}
    generated = write_generated(class_name(plan.backend), texts, cache)
    lean = backend.lean_libraries
    aten = [library for library in backend.libraries if library not in lean]
    libraries = [
        SharedLibrary(
            name=f"opsmith_{backend.name}",
            sources=(
                *sorted((_CSRC / "opsmith").glob("*.cpp")),
                *sorted(generated.glob("*.cpp")),
                *(source for library in aten for source in library.sources),
                # Two libraries may share what shapes their results.
                *dict.fromkeys(source for library in lean for source in library.meta_sources),
                *(sorted((_CSRC / "bridge").glob("*.cpp")) if lean else ()),
            ),
            include_dirs=(
                _CSRC,
                generated,
                *(folder for library in aten for folder in library.include_dirs),
            ),
            torch=tools.torch,
            flags=tools.compiler.openmp_flags,
            executorch=tools.executorch,
            lean=_lean(lean, tools.executorch) if tools.executorch else (),
        )
    ]
    if backend.driver.library is None:
        libraries.append(
            SharedLibrary(
                name=f"opsmith_{backend.name}_driver",
                sources=backend.driver.sources,
                include_dirs=(_CSRC, *backend.driver.include_dirs),
            )
        )
    compilation = Compilation(libraries, tools.compiler, cache)
    try:
        compilation.run(cache / "logs" / f"{backend.name}.log", report)
    except SymbolUndefined as error:
        raise located_symbol(error, plan, backend) from None
    outputs = compilation.outputs()
    driver = backend.driver.library or outputs[1]
    return _Record(str(outputs[0]), str(driver), str(generated))


def _lean(
    libraries: Iterable[Library], executorch: ExecutorchInstallation
) -> tuple[LeanSources, ...]:
    """The libraries' sources, and what takes the place of ExecuTorch's runtime for them."""
    runtime = LeanSources(tuple(sorted((_CSRC / "lean").glob("*.cpp"))), executorch, (_CSRC,))
    return (
        runtime,
        *(sources for library in libraries for sources in lean_sources(library, executorch)),
    )


def located_symbol(error: SymbolUndefined, plan: Plan, backend: Backend) -> SymbolUndefined:
    """The error at the line of the manifest that names the first missing kernel."""
    return located_undefined(error, _wanted(plan, backend))


def _wanted(plan: Plan, backend: Backend) -> Iterator[WantedFunction]:
    libraries = {library.name: library for library in backend.libraries}
    named: list[tuple[str, Kernel | StubKernel, str]] = [
        (stub.symbol, stub, stub.stub) for stub in plan.stubs
    ]
    named += (
        (symbol, kernel, kernel.operator)
        for entry in (layer for first in plan.entries for layer in first.layers)
        for kernel in (entry.kernel, entry.autograd.kernel if entry.autograd else None)
        if kernel is not None and not kernel.through
        for symbol in (kernel.symbol, kernel.meta_symbol, kernel.autograd, kernel.backward)
        if symbol
    )
    for symbol, kernel, user in named:
        yield WantedFunction(
            symbol,
            f"`{user}`",
            kernel.location,
            libraries[kernel.library],
            partial(declaration, plan, kernel, symbol),
        )
    shaping = [
        *plan.metas,
        *(layer.meta for first in plan.entries for layer in first.layers if layer.meta),
    ]
    for library in backend.libraries:
        for given in library.metas:
            for meta in shaping:
                if meta.rule is MetaRule.GIVEN and meta.location == given.location:
                    yield WantedFunction(
                        given.symbol,
                        f"the meta of `{meta.operator}`",
                        given.location,
                        library,
                        partial(meta_declaration, plan, meta),
                    )


def _digest(backend: Backend, tools: _Tools) -> str:
    """A digest of everything that the libraries are made from."""
    digest = hashlib.sha256()
    digest.update(f"{tools} {sys.version_info[:2]} {backend.location.path}".encode())
    for path in _inputs(backend):
        content = path.read_bytes()
        digest.update(f"{path} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:32]


def _inputs(backend: Backend) -> list[Path]:
    rooms = ("schema", "description", "plan", "emit", "build")
    inputs = [path for room in rooms for path in sorted((_PACKAGE / room).glob("*.*"))]
    inputs += [path for path in sorted(_CSRC.rglob("*")) if path.is_file()]
    inputs += backend.files
    folders = [*backend.driver.include_dirs]
    for library in backend.libraries:
        inputs += library.sources + library.vectorised + library.meta_sources
        folders += library.include_dirs
    inputs += backend.driver.sources
    if backend.driver.library:
        inputs.append(backend.driver.library)
    # Headers lie beside the sources that include them, or in the include directories.
    folders += {
        source.parent for source in inputs if source.suffix in {".c", ".cc", ".cpp", ".cxx"}
    }
    inputs += [path for folder in folders for path in folder.glob("**/*.h*") if path.is_file()]
    return sorted({*inputs, *_included_from_above(inputs)})


def _included_from_above(sources: Iterable[Path]) -> set[Path]:
    """What ``sources`` include that lies in no folder of theirs: ``#include "../selection.h"``."""
    waiting = [path for path in sources if path.suffix not in _PYTHON_AND_YAML]
    found: set[Path] = set()
    while waiting:
        path = waiting.pop()
        for name in _FROM_ABOVE.findall(path.read_text(encoding="utf-8", errors="replace")):
            included = (path.parent / name).resolve()
            if included not in found and included.is_file():
                found.add(included)
                waiting.append(included)
    return found


def _read(path: Path) -> _Record | None:
    try:
        record = msgspec.json.decode(path.read_bytes(), type=_Record)
    except (OSError, msgspec.DecodeError):
        return None
    library, driver = Path(record.library), Path(record.driver)
    if not (is_whole(library) and is_whole(driver)):
        return None
    # A driver that came ready built lies outside the cache, and is not ours to touch.
    ours = [file.parent for file in (library, driver) if file.parent.parent.name == "libraries"]
    mark_used(path, *ours, Path(record.generated))
    return record
