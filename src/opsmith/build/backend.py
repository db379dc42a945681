"""One backend's libraries, from its description: plan, emit, compile, or find all of it in the cache."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from opsmith.build.cache import is_whole, mark_used, usable_cache, write_whole
from opsmith.build.compile import Compilation, LeanSources, SharedLibrary
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
from opsmith.description import Abi, Backend, Kernel, Library, Owner, StubKernel, read_backend
from opsmith.emit import class_name, declaration, emit, meta_declaration
from opsmith.errors import Location, SymbolUndefined
from opsmith.plan import MetaRule, Plan, plan_backend

_PACKAGE = Path(__file__).resolve().parent.parent
_CSRC = _PACKAGE / "csrc"


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
        is_lean = any(library.abi is Abi.EXECUTORCH for library in backend.libraries)
        return cls(find_torch(), find_compiler(cache), find_executorch() if is_lean else None)


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
    generated = _write_generated(plan, cache)
    lean = [library for library in backend.libraries if library.abi is Abi.EXECUTORCH]
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


def _write_generated(plan: Plan, cache: Path) -> Path:
    files = emit(plan)
    digest = hashlib.sha256(repr(files).encode()).hexdigest()[:32]
    folder = cache / "generated" / f"{class_name(plan.backend)}-{digest}"
    for file in files:
        if not is_whole(folder / file.name):
            write_whole(folder / file.name, file.text.encode())
    return folder


def located_symbol(error: SymbolUndefined, plan: Plan, backend: Backend) -> SymbolUndefined:
    """The error at the line of the manifest that names the first missing kernel."""
    missing = {symbol.partition("(")[0] for symbol in error.symbols}
    for wanted in _wanted(plan, backend):
        if wanted.symbol not in missing:
            continue
        sources = ", ".join(source.name for source in wanted.library.sources) or "none are listed"
        others = len(missing) - 1
        return SymbolUndefined(
            f"the sources of library `{wanted.library.name}` do not define `{wanted.symbol}` with the "
            f"signature that {wanted.purpose} needs" + (f" (and {others} more)" if others else ""),
            symbols=error.symbols,
            location=wanted.location,
            remedy=f"define\n    {wanted.declaration()};\n  in one of its sources ({sources})",
        )
    return error


@dataclass(frozen=True)
class _Wanted:
    """A function that a library's sources must define, and what for."""

    symbol: str
    purpose: str
    location: Location
    library: Library
    declaration: Callable[[], str]


def _wanted(plan: Plan, backend: Backend) -> Iterator[_Wanted]:
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
        yield _Wanted(
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
                    yield _Wanted(
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
    return sorted(set(inputs))


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
