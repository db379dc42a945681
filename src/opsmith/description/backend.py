"""Reads ``backend.yaml`` into the model, refusing what cannot be meant.

Finds shipped libraries by name and others by path; checks every operator's name against
the catalogue.  What a kernel may serve is the plan's business, not checked here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import msgspec

from opsmith.description.autocast import AutocastKey, autocast
from opsmith.description.build_options import build_options
from opsmith.description.device_names import check_device_name
from opsmith.description.document import Document, read_document
from opsmith.description.formats.flag_gems import FLAG_GEMS, INSTALL, find_flag_gems
from opsmith.description.formats.known import YamlFormat, format_of
from opsmith.description.found import PACKAGE, shipped_backends, shipped_libraries
from opsmith.description.host_window import hides_host_windows
from opsmith.description.library import read_library
from opsmith.description.model import (
    Backend,
    BuildOptions,
    Driver,
    Execution,
    Fallback,
    FallbackDefault,
    HostKernels,
    Inductor,
    Library,
    NamedOperator,
)
from opsmith.description.names import check_library_name, operator_name
from opsmith.description.old_names import with_new_name
from opsmith.description.paths import directories_of, files_of, is_directory, is_file
from opsmith.description.python_driver import python_driver, python_driver_of
from opsmith.description.rng import Rng
from opsmith.description.triton import TritonKey, is_interpreted, triton
from opsmith.errors import (
    BackendUnknown,
    FileMissing,
    FormatUnknown,
    Location,
    SchemaInvalid,
    SyntaxInvalid,
    nearest,
)
from opsmith.schema import Catalogue, Declaration, with_operators

RUNTIME_MANIFEST = PACKAGE / "csrc" / "runtime.yaml"

# What shipped once; examples/aten-kernels has what is left of it.
_FORMER_LIBRARIES = ("example_kernels", "hosted")

_AUTO = "auto"  # in `intercept`, in the place of an operator's name


class _Driver(msgspec.Struct, forbid_unknown_fields=True):
    name: str | None = None
    library: str | None = None
    sources: list[str] = []
    include_dirs: list[str] = []
    compile_flags: list[str] = []
    link_flags: list[str] = []
    libraries: list[str] = []
    python: str | None = None
    host_window: bool = True


class _Fallback(msgspec.Struct, forbid_unknown_fields=True):
    default: Literal["cpu", "none"] = "cpu"
    only: list[str] | None = None
    deny: list[str] = []
    intercept: Literal["auto"] | list[str] = []


class _HostKernels(msgspec.Struct, forbid_unknown_fields=True):
    deny: list[str]


class _LibraryEntry(msgspec.Struct, forbid_unknown_fields=True):
    """A library's file with what files of other formats cannot say."""

    file: str
    name: str = ""
    sources: list[str] = []
    include_dirs: list[str] = []
    compile_flags: list[str] = []
    link_flags: list[str] = []
    libraries: list[str] = []
    execution: Literal["device", "host"] | None = None


class _Backend(msgspec.Struct, forbid_unknown_fields=True):
    backend: str
    driver: _Driver | str
    libraries: list[str | _LibraryEntry] = []
    fallback: _Fallback | Literal["cpu", "none"] = "cpu"
    host_kernels: _HostKernels | Literal["allow", "deny"] = "allow"
    rng: Literal["philox", "cpu"] = "philox"
    inductor: Literal["cpp", "triton", "eager-kernels"] | None = None
    triton: TritonKey | None = None
    autocast: AutocastKey = AutocastKey()


@dataclass(frozen=True, slots=True)
class PlanSources:
    """What decides a backend's plan beside torch and opsmith.

    ``files``: the description and the manifests of its libraries.
    """

    files: tuple[Path, ...]
    window_is_hidden: bool
    triton_is_interpreted: bool


def read_plan_sources(path: Path, read: Callable[[Path], Document] = read_document) -> PlanSources:
    """The sources of the plan of the backend described by the file ``path``, which alone is read."""
    document, raw = _read(path, read)
    return PlanSources(
        (path, *_manifests(document, raw)),
        _chosen_driver(document, raw).window_is_hidden,
        is_interpreted(triton(document, raw.inductor, raw.triton)),
    )


def read_backend(
    path: Path,
    catalogue: Catalogue | None,
    read: Callable[[Path], Document] = read_document,
) -> Backend:
    """The backend described by the file ``path``, with its libraries; ``read`` reads each file of YAML.

    Without a ``catalogue`` the operators' names are taken on trust, which saves reading it.
    Raises a :class:`DescriptionError` at the place of the first mistake.
    """
    document, raw = _read(path, read)
    check_device_name(raw.backend, document.locate("backend"))
    if catalogue is not None and any(
        operator.partition(".")[0] == raw.backend for operator in catalogue.operators
    ):
        raise SyntaxInvalid(
            f"`{raw.backend}` cannot name a device: it is an operator, and the C++ function "
            f"`at::{raw.backend}` leaves no room for a namespace of that name",
            location=document.locate("backend"),
            remedy=f"choose another name, e.g. `{raw.backend}chip`",
        )
    manifests = _manifests(document, raw)
    libraries = tuple(
        _completed(read_library(manifest, catalogue, read), document, entry, index)
        for index, (manifest, entry) in enumerate(zip(manifests, [*raw.libraries, ""], strict=True))
    )
    if catalogue is not None:
        declared = [operator for library in libraries for operator in library.operators]
        _check_namespaces(declared, catalogue, raw.backend)
        catalogue = with_operators(catalogue, declared)
    for index, library in enumerate(libraries):
        for earlier in libraries[:index]:
            if earlier.name == library.name:
                raise SyntaxInvalid(
                    f"two libraries are called `{library.name}`: {earlier.location.shown_path} and "
                    f"{library.location.shown_path}",
                    location=document.locate("libraries", index),
                    remedy="rename one in its manifest, or list it once",
                )
    driver = _chosen_driver(document, raw)
    for index, library in enumerate(libraries):
        for source in library.sources:
            if source in driver.sources:
                raise SyntaxInvalid(
                    f"`{source.name}` is a source of the driver and of library `{library.name}`, and each "
                    "would have a state of its own",
                    location=document.locate("libraries", index),
                    remedy="remove it from the library: its kernels may call what the driver exports "
                    '(__attribute__((visibility("default"))))',
                )
    return Backend(
        name=raw.backend,
        location=document.locate("backend"),
        driver=driver,
        libraries=libraries,
        fallback=_fallback(document, raw.fallback, catalogue),
        host_kernels=_host_kernels(document, raw.host_kernels, catalogue),
        rng=Rng(raw.rng),
        rng_location=document.locate("rng"),
        inductor=Inductor(raw.inductor) if raw.inductor else None,
        inductor_location=document.locate("inductor"),
        triton=(served := triton(document, raw.inductor, raw.triton)),
        triton_is_interpreted=is_interpreted(served),
        autocast=autocast(document, raw.autocast, catalogue),
        files=(path, *manifests),
    )


def _read(path: Path, read: Callable[[Path], Document]) -> tuple[Document, _Backend]:
    document = read(path)
    _reject_library(document)
    document = with_new_name(document, "whole", "intercept", "fallback")
    return document, document.convert(_Backend)


def _manifests(document: Document, raw: _Backend) -> list[Path]:
    """The manifests of the libraries, the runtime's last."""
    return [
        _find_library(entry if isinstance(entry, str) else entry.file, document, index)
        for index, entry in enumerate(raw.libraries)
    ] + [RUNTIME_MANIFEST]


def _check_namespaces(declared: Sequence[Declaration], catalogue: Catalogue, backend: str) -> None:
    """Refuses a custom operator whose namespace is called as a function of ATen."""
    functions = {name.partition(".")[0] for name in catalogue.operators}
    for declaration in declared:
        namespace = declaration.operator.namespace
        if namespace in functions:
            raise SchemaInvalid(
                f"`{declaration.operator.name}` is in `{namespace}`, which is an operator of PyTorch: the "
                f"C++ function `at::{backend}::{namespace}` leaves no room for a namespace of that name",
                location=declaration.location,
                remedy=f"choose another namespace, e.g. `my{namespace}`",
            )


def _completed(
    library: Library, document: Document, entry: str | _LibraryEntry, index: int
) -> Library:
    """``library`` with what the backend adds to it at ``libraries[index]``."""
    if isinstance(entry, str):
        return library
    changed: dict[str, Any] = {}
    if entry.name:
        check_library_name(entry.name, document.locate("libraries", index, "name"))
        changed["library"] = entry.name
    if entry.execution is not None:
        changed["execution"] = Execution(entry.execution)
    return replace(
        library,
        name=entry.name or library.name,
        execution=changed.get("execution", library.execution),
        options=_joined(library.options, build_options(document, entry, "libraries", index)),
        sources=(
            *library.sources,
            *files_of(document, entry.sources, "libraries", index, "sources"),
        ),
        include_dirs=(
            *library.include_dirs,
            *directories_of(document, entry.include_dirs, "libraries", index, "include_dirs"),
        ),
        kernels=tuple(replace(kernel, **changed) for kernel in library.kernels),
        stubs=tuple(replace(stub, **changed) for stub in library.stubs),
    )


def _joined(first: BuildOptions, second: BuildOptions) -> BuildOptions:
    return BuildOptions(
        (*first.compile_flags, *second.compile_flags),
        (*first.link_flags, *second.link_flags),
        (*first.libraries, *second.libraries),
    )


def _reject_library(document: Document) -> None:
    """Raises :class:`FormatUnknown` for a kernel library where a backend is wanted."""
    try:
        kind = format_of(document)
    except FormatUnknown:
        return  # what is missing or too much is told key by key
    if kind is not YamlFormat.BACKEND:
        raise FormatUnknown(
            f"this is {kind.value}, and a backend's description is wanted",
            location=document.locate(),
            remedy=f"name it in a backend.yaml: `libraries: [{document.path.name}]`",
        )


def _find_library(name: str, document: Document, index: int) -> Path:
    shipped = shipped_libraries()
    if name in shipped:
        return shipped[name]
    path = document.path.parent / name
    if is_directory(path):
        path = path / "kernels.yaml"
    if is_file(path):
        return path
    if name == FLAG_GEMS:
        return _flag_gems(document, index)
    if name in _FORMER_LIBRARIES:
        raise FileMissing(
            f"opsmith has no kernel library `{name}` any more",
            location=document.locate("libraries", index),
            remedy="leave it out: `optimized`, `portable` and the runtime have its operators",
        )
    raise FileMissing(
        f"there is no kernel library `{name}`{nearest(name, shipped)}",
        location=document.locate("libraries", index),
        remedy=f"name a shipped library ({', '.join(shipped)}) or the path of a manifest, relative "
        "to this file",
    )


def _flag_gems(document: Document, index: int) -> Path:
    if (found := find_flag_gems()) is None:
        raise FileMissing(
            "FlagGems is not installed, whose operators the library `flag_gems` has",
            location=document.locate("libraries", index),
            remedy=INSTALL,
        )
    return found


def _chosen_driver(document: Document, raw: _Backend) -> Driver:
    """The driver, without its host window where the environment hides that."""
    driver = _driver(document, raw.driver)
    if driver.host_window and hides_host_windows():
        return replace(driver, host_window=False, window_is_hidden=True)
    return driver


def _driver(document: Document, raw: _Driver | str) -> Driver:
    location = document.locate("driver")
    if isinstance(raw, str):
        return _shipped_driver(raw, location, host_window=True)
    kinds = (
        raw.name is not None,
        raw.library is not None,
        bool(raw.sources),
        raw.python is not None,
    )
    if sum(kinds) != 1:
        raise SyntaxInvalid(
            "a driver is a shipped one, a built library, sources to build or a class in Python, and exactly "
            "one of them",
            location=location,
            remedy="write `driver: sim`, `driver: {library: path/to/libmychip.so}`, "
            "`driver: {sources: [mychip.cpp]}` or `driver: {python: driver.py:Driver}`",
        )
    if not raw.sources:
        for key in ("compile_flags", "link_flags", "libraries"):
            if getattr(raw, key):
                raise SyntaxInvalid(
                    f"`{key}` is about a driver's sources, and this driver has none",
                    location=document.locate("driver", key),
                    remedy=f"remove `{key}`, or name `sources`",
                )
    if raw.name is not None:
        return _shipped_driver(raw.name, location, raw.host_window)
    if raw.python is not None:
        place = document.locate("driver", "python")
        named = python_driver(raw.python, document.path.parent, place)
        return python_driver_of(named, location, raw.host_window)
    library = None
    if raw.library is not None:
        (library,) = files_of(document, [raw.library], "driver", "library")
    return Driver(
        location=location,
        library=library,
        sources=files_of(document, raw.sources, "driver", "sources"),
        include_dirs=directories_of(document, raw.include_dirs, "driver", "include_dirs"),
        options=build_options(document, raw, "driver"),
        host_window=raw.host_window,
    )


def _shipped_driver(name: str, location: Location, host_window: bool) -> Driver:
    """The driver of the shipped backend ``name``."""
    shipped = shipped_backends()
    if name not in shipped:
        raise BackendUnknown(
            f"no driver called `{name}` comes with opsmith{nearest(name, shipped)}",
            location=location,
            remedy=f"name a shipped one ({', '.join(shipped)}), or write "
            "`driver: {sources: [mychip.cpp]}`",
        )
    document = read_document(shipped[name])
    own = _driver(document, document.convert(_Backend).driver)
    return replace(own, location=location, host_window=own.host_window and host_window)


def _fallback(
    document: Document, raw: _Fallback | Literal["cpu", "none"], catalogue: Catalogue | None
) -> Fallback:
    location = document.locate("fallback")
    if isinstance(raw, str):
        return Fallback(location, FallbackDefault(raw))

    def named(key: str, names: Sequence[str]) -> tuple[NamedOperator, ...]:
        return _named_operators(document, ("fallback", key), names, catalogue)

    if raw.default == "none" and raw.only is not None:
        raise SyntaxInvalid(
            "`only` lists what may fall back, but `default: none` allows nothing",
            location=document.locate("fallback", "only"),
            remedy="remove `default: none`; `only` already refuses all others",
        )
    return Fallback(
        location,
        FallbackDefault(raw.default),
        None if raw.only is None else named("only", raw.only),
        named("deny", raw.deny),
        () if raw.intercept == _AUTO else named("intercept", raw.intercept),
        _intercept_auto(document, raw.intercept),
    )


def _named_operators(
    document: Document, place: tuple[str, str], names: Sequence[str], catalogue: Catalogue | None
) -> tuple[NamedOperator, ...]:
    """The operators of the list at ``place``, without `auto`."""
    located = [(name, document.locate(*place, index)) for index, name in enumerate(names)]
    return tuple(
        NamedOperator(operator_name(name, location, catalogue), location)
        for name, location in located
        if (place[-1], name) != ("intercept", _AUTO)
    )


def _host_kernels(
    document: Document,
    raw: _HostKernels | Literal["allow", "deny"],
    catalogue: Catalogue | None,
) -> HostKernels:
    location = document.locate("host_kernels")
    if isinstance(raw, str):
        return HostKernels(location, denies_all=raw == "deny")
    return HostKernels(
        location, deny=_named_operators(document, ("host_kernels", "deny"), raw.deny, catalogue)
    )


def _intercept_auto(document: Document, intercept: str | Sequence[str]) -> Location | None:
    """Where `auto` is said, alone or beside names."""
    if intercept == _AUTO:
        return document.locate("fallback", "intercept")
    return (
        document.locate("fallback", "intercept", intercept.index(_AUTO))
        if _AUTO in intercept
        else None
    )
