"""One backend's libraries, from its description: plan, emit, compile, or find all of it in the cache."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

from opsmith.base.cache_folder import cache_root, mark_used, sealed, unsealed
from opsmith.base.trusted_files import check_trusted, read_trusted
from opsmith.build.cache import is_usable, usable_cache, write_whole
from opsmith.build.compile import Compilation
from opsmith.build.csrc import CSRC, INCLUDE_DIRS, META_FUNCTIONS
from opsmith.build.driver_library import driver_library, is_elf, is_package
from opsmith.build.etensor_headers import ETENSOR, ETensorHeaders, own_headers
from opsmith.build.generated import generated_for, says
from opsmith.build.inputs import digest_of_inputs, watched_paths
from opsmith.build.lean import distinct_sources, lean_sources
from opsmith.build.own_options import own_link_flags
from opsmith.build.progress import OnProgress, Progress
from opsmith.build.shared_library import LeanSources, Relocatable, SharedLibrary
from opsmith.build.stored import seal_of
from opsmith.build.toolchain import Compiler, TorchInstallation, find_compiler, find_torch
from opsmith.build.undefined import WantedFunction, located_undefined
from opsmith.build.units import CALLS, KERNELS, Unit, own_units, runtime_units, together
from opsmith.description import (
    Backend,
    Kernel,
    Library,
    StubKernel,
    has_old_names,
    read_backend,
)
from opsmith.description.built import BuiltBackend, carried_backend, note_unchanged
from opsmith.errors import BuildError, CompilerMissing, Location, PackageUnfit, SymbolUndefined
from opsmith.plan import MetaRule, OpenedBackend, Plan
from opsmith.plan.meta import is_opsmiths
from opsmith.plan.model import given_metas

# The name of the record of a machine that has none.
_NO_COMPILER = "any"


@dataclass(frozen=True)
class Installed:
    """The installed torch and compiler, with which a backend is built.

    ``compiler`` is None on a machine without one, where only what is built already can be used.
    """

    torch: TorchInstallation
    compiler: Compiler | None

    @classmethod
    def found(cls, cache: Path) -> Installed:
        try:
            compiler = find_compiler(cache)
        except CompilerMissing:
            compiler = None
        return cls(find_torch(), compiler)

    @property
    def versions(self) -> str:
        """The versions that built libraries depend on, beside the compiler, without paths."""
        return f"torch {self.torch.compiled_for}"


class _Record(msgspec.Struct, forbid_unknown_fields=True):
    """The libraries for a description whose inputs have the digest that names the record's folder.

    Paths are relative to the cache.  ``driver`` is None for one that came ready built: it lies where the
    description says.  ``folder`` is the description's, where what is built tells it to people, else empty.
    """

    library: str
    driver: str | None
    generated: str
    folder: str = ""


def build_backend(description: Path, *, progress: OnProgress | None = None) -> BuiltBackend:
    """The libraries of the backend described by the file ``description``, built where that is needed.

    Those that lie ready built beside it are taken where they fit.  ``progress`` is told of each step.  Raises
    a :class:`~opsmith.errors.DescriptionError`, a :class:`~opsmith.errors.BuildError`,
    :class:`~opsmith.errors.PackageInvalid`, or :class:`~opsmith.errors.PackageUnfit` where a package has
    nothing that fits and cannot be built here.
    """
    report = progress or (lambda step: None)
    try:
        return carried_backend(description) or _found_or_made(description, report)
    except PackageUnfit as unfit:
        if not unfit.has_sources:
            raise
        report(Progress(f"{unfit.message}: building from its sources"))
        try:
            return _found_or_made(description, report)
        except BuildError as error:
            raise PackageUnfit(
                f"{unfit.message}; and it cannot be built from its sources: {error.message}",
                has_sources=True,
                remedy=f"{unfit.remedy}; or, to build it here, {error.remedy}",
            ) from error


def _found_or_made(description: Path, report: OnProgress) -> BuiltBackend:
    began = time.time()
    cache = cache_root()
    opened = OpenedBackend(description, cache)
    backend = opened.outline
    _check_named_libraries(backend)
    installed = Installed.found(cache)
    record_path = _record_path(backend, installed, cache)
    if record := _found_record(record_path, backend, cache):
        built = _built(backend, record, cache)
        _note(description, backend, installed, built, record_path, began)
        return built
    usable_cache()
    compiler = installed.compiler or find_compiler(cache)
    record = _build(opened, installed, compiler, cache, report)
    write_whole(record_path, sealed(msgspec.json.encode(record)))
    return _built(backend, record, cache)


def _note(
    description: Path,
    backend: Backend,
    installed: Installed,
    built: BuiltBackend,
    record: Path,
    began: float,
) -> None:
    """Notes for the next start that ``built`` was found, by one that ``began`` before it read anything."""
    # What Python is to be imported for does not start quickly anyway.
    if built.calls_python or built.python_driver or built.external_namespaces:
        return
    if any(map(has_old_names, backend.files)) or (watched := watched_paths(backend)) is None:
        return
    libraries = (built.library, built.driver)
    trusted = [*libraries, *(path for _, path in _named_libraries(backend))]
    seals = [seal for path in libraries if (seal := seal_of(path)).exists()]
    compilers = [installed.compiler.path] if installed.compiler else []
    note_unchanged(
        description,
        built,
        [*watched, *trusted, *seals, *compilers],
        trusted=[*trusted, *seals],
        used=[record.parent, *(path.parent for path in libraries if cache_root() in path.parents)],
        since=began,
    )


def _named_libraries(backend: Backend) -> Iterator[tuple[Location, Path]]:
    """The libraries that the description names by their paths, with where it does."""
    driver = backend.driver
    ready = [driver.library] if driver.library else []
    yield from ((driver.location, path) for path in (*driver.options.files, *ready))
    for library in backend.libraries:
        yield from ((library.location, path) for path in library.options.files)


def _check_named_libraries(backend: Backend) -> None:
    """Raises :class:`~opsmith.errors.FileUntrusted` for a library that the description names by its path."""
    for location, path in _named_libraries(backend):
        check_trusted(path, location)


def find_built(description: Path) -> BuiltBackend | None:
    """The backend that :func:`build_backend` would return without building; None where it would build.

    Raises as it does.
    """
    try:
        if carried := carried_backend(description):
            return carried
    except PackageUnfit as unfit:
        if not unfit.has_sources:
            raise
    cache = cache_root()
    backend = read_backend(description, None)
    path = _record_path(backend, Installed.found(cache), cache)
    record = _found_record(path, backend, cache)
    return _built(backend, record, cache) if record else None


def _record_path(backend: Backend, installed: Installed, cache: Path) -> Path:
    """Where the record of what one compiler built is; the folder stands for all compilers."""
    identity = installed.compiler.identity if installed.compiler else ""
    compiler = hashlib.sha256(identity.encode()).hexdigest()[:16] if identity else _NO_COMPILER
    folder = f"{backend.name}-{digest_of_inputs(backend, installed.versions)}"
    return cache / "backends" / folder / f"{compiler}.json"


def _found_record(path: Path, backend: Backend, cache: Path) -> _Record | None:
    """The record at ``path``, or, where there is no compiler, one of what any compiler built."""
    paths = [path]
    if path.stem == _NO_COMPILER:
        with suppress(OSError):  # a cache of another user's
            paths = sorted(path.parent.glob("*.json"))
    found = (_read(each, cache) for each in paths)
    folders = {"", _folder(backend)}
    return next((record for record in found if record and record.folder in folders), None)


def _folder(backend: Backend) -> str:
    return str(backend.location.path.parent)


def _built(backend: Backend, record: _Record, cache: Path) -> BuiltBackend:
    return BuiltBackend(
        name=backend.name,
        library=cache / record.library,
        driver=backend.driver.library or cache / (record.driver or ""),
        generated=cache / record.generated,
        host_window=backend.driver.host_window,
        rng=backend.rng,
        driver_location=backend.driver.location,
        cache=cache,
        external_namespaces=tuple(
            each for library in backend.libraries for each in library.external_namespaces
        ),
        python_driver=backend.driver.python,
        calls_python=backend.calls_python,
    )


def _build(
    opened: OpenedBackend,
    installed: Installed,
    compiler: Compiler,
    cache: Path,
    report: OnProgress,
) -> _Record:
    report(Progress("planning every operator"))
    backend, plan = opened.outline, opened.compiled_plan
    report(Progress("generating C++"))
    generated = generated_for(plan, cache)
    library, driver = compiled(opened, generated, installed, compiler, cache, report)
    return _Record(
        str(library.relative_to(cache)),
        str(driver.relative_to(cache)) if driver else None,
        str(generated.relative_to(cache)),
        _folder(backend) if says(generated, _folder(backend)) else "",
    )


def compiled(
    opened: OpenedBackend,
    generated: Path,
    installed: Installed,
    compiler: Compiler,
    cache: Path,
    report: OnProgress,
    relocatable: Relocatable | None = None,
) -> tuple[Path, Path | None]:
    """Compiles the library and the driver of what is ``opened``; None for a driver that is ready built.

    ``relocatable`` is given for what is to work anywhere.  Raises a :class:`~opsmith.errors.BuildError`.
    """
    backend = opened.outline
    is_shaped = any(map(is_opsmiths, given_metas(opened.compiled_plan.entries)))
    library = library_of(backend, generated, installed, compiler, with_meta_functions=is_shaped)
    library = replace(library, relocatable=relocatable)
    built = []
    # Kernels may launch work through their own driver.
    if (ready := backend.driver.library) is None:
        built = [replace(driver_library(backend.name, backend.driver), relocatable=relocatable)]
        (driver,) = Compilation(built, compiler, cache).outputs()
        library = replace(library, driver=driver)
    elif is_elf(ready):
        library = replace(library, driver=ready, driver_is_users=True)
    compilation = Compilation([library, *built], compiler, cache)
    try:
        compilation.run(cache / "logs" / f"{backend.name}.log", report)
    except SymbolUndefined as error:
        raise located_symbol(error, opened.compiled_plan, backend) from None
    output, *outputs = compilation.outputs()
    return output, outputs[0] if outputs else None


def library_of(
    backend: Backend,
    generated: Path,
    installed: Installed,
    compiler: Compiler,
    *,
    with_meta_functions: bool = True,
) -> SharedLibrary:
    """The library that is loaded into torch: the runtime, what is generated, and the kernels.

    Of the runtime and of the libraries that come with opsmith the objects are those of every backend.
    ``with_meta_functions``: with those that shape results, which kernels on lean tensors need anyway.
    """
    lean = backend.lean_libraries
    aten = [library for library in backend.libraries if library not in lean]
    ours = [library for library in aten if is_package(library.location.path)]
    # Two libraries may share what shapes their results.
    metas = dict.fromkeys(source for library in lean for source in library.meta_sources)
    own = [library for library in aten if library not in ours]
    bridge = sorted((CSRC / "bridge").rglob("*.cpp")) if lean else []
    # One object for whichever of the package's libraries a backend has.
    shaping = META_FUNCTIONS if lean or with_meta_functions else []
    return SharedLibrary(
        name=f"opsmith_{backend.name}",
        sources=(),
        generated=tuple(sorted(generated.glob("*.cpp"))),
        units=(
            *(unit for library in own for unit in own_units(library.sources, _flags(library))),
            *(unit for source in metas for unit in _meta_units(source, lean)),
            *runtime_units(sorted((CSRC / "opsmith").rglob("*.cpp"))),
            *together("bridge", bridge, CALLS),
            *together("meta_functions", shaping, CALLS),
            *(
                replace(unit, flags=(*unit.flags, *_flags(library)))
                for library in ours
                for unit in together(library.name, library.sources, KERNELS)
            ),
        ),
        include_dirs=(
            *INCLUDE_DIRS,
            ETENSOR,
            generated,
            *(folder for library in aten for folder in library.include_dirs),
        ),
        torch=installed.torch,
        flags=compiler.openmp_flags,
        own_link_flags=_own_link_flags(backend),
        own_libraries=tuple(
            dict.fromkeys(
                each for library in backend.libraries for each in library.options.libraries
            )
        ),
        lean=_lean(lean, own_headers(installed.torch)) if lean else (),
    )


def _flags(library: Library) -> tuple[str, ...]:
    return library.options.compile_flags


def _meta_units(source: Path, libraries: Iterable[Library]) -> tuple[Unit, ...]:
    """The unit of a source that shapes results; none for one that comes with opsmith."""
    if is_package(source):
        return ()
    owner = next(library for library in libraries if source in library.meta_sources)
    return own_units([source], _flags(owner))


def _own_link_flags(backend: Backend) -> tuple[str, ...]:
    """The linker's options of the libraries, and those of the environment where any source is a user's."""
    sources = [
        source
        for library in backend.libraries
        for source in (*library.sources, *library.vectorised, *library.meta_sources)
    ]
    flags = tuple(flag for library in backend.libraries for flag in library.options.link_flags)
    return flags if all(map(is_package, sources)) else (*flags, *own_link_flags())


def _lean(libraries: Iterable[Library], headers: ETensorHeaders) -> tuple[LeanSources, ...]:
    """The libraries' sources, and what takes the place of ExecuTorch's runtime for them."""
    runtime = LeanSources(tuple(sorted((CSRC / "lean").rglob("*.cpp"))), headers, (CSRC,))
    return (
        runtime,
        *distinct_sources(
            sources for library in libraries for sources in lean_sources(library, headers)
        ),
    )


def located_symbol(error: SymbolUndefined, plan: Plan, backend: Backend) -> SymbolUndefined:
    """The error at the line of the manifest that names the first missing kernel."""
    return located_undefined(error, _wanted(plan, backend))


def _wanted(plan: Plan, backend: Backend) -> Iterator[WantedFunction]:
    from opsmith.emit import declaration, meta_declaration

    libraries = {library.name: library for library in backend.libraries}
    named: list[tuple[str, Kernel | StubKernel, str]] = [
        (stub.symbol, stub, stub.stub) for stub in plan.stubs
    ]
    named += (
        (symbol, kernel, kernel.operator)
        for entry in (link for first in plan.entries for link in first.chain)
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
    shaping = [*plan.metas, *given_metas(plan.entries)]
    for library in backend.libraries:
        for given in library.metas:
            for meta in shaping:
                if meta.rule is not MetaRule.GIVEN or meta.location != given.location:
                    continue
                for symbol in given.symbols:
                    yield WantedFunction(
                        symbol,
                        f"the meta of `{meta.operator}`",
                        given.location,
                        library,
                        partial(meta_declaration, plan, meta, symbol),
                    )


def _read(path: Path, cache: Path) -> _Record | None:
    try:
        record = msgspec.json.decode(unsealed(read_trusted(path)), type=_Record)
    except (OSError, ValueError):
        return None
    names = [name for name in (record.library, record.driver, record.generated) if name]
    if any(Path(name).is_absolute() or ".." in Path(name).parts for name in names):
        return None
    libraries = [cache / name for name in (record.library, record.driver) if name]
    if not all(map(is_usable, libraries)):
        return None
    mark_used(path.parent, *(file.parent for file in libraries), cache / record.generated)
    return record
