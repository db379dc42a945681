"""Reads ``backend.yaml`` and library manifests into the model, refusing what cannot be meant.

Finds shipped backends and libraries by name and others by path; checks every operator's name against
the catalogue.  What a kernel may serve is the plan's business, not checked here; files of torchgen and
ExecuTorch are told by their keys and read by the modules that are named for them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import msgspec

from opsmith.description.custom import Meta, read_declaration, read_meta, schema_name
from opsmith.description.document import Document, Step, read_document
from opsmith.description.dtypes import expand_dtypes
from opsmith.description.executorch_yaml import read_executorch_entries
from opsmith.description.formats import Format, format_of
from opsmith.description.model import (
    Abi,
    Backend,
    Derive,
    Driver,
    Execution,
    Fallback,
    FallbackDefault,
    GivenMeta,
    Kernel,
    Library,
    NamedOperator,
    StubKernel,
)
from opsmith.description.names import LIBRARY, SYMBOL
from opsmith.description.stubs import check_stub
from opsmith.description.torchgen_yaml import read_torchgen_yaml
from opsmith.errors import (
    BackendUnknown,
    FileMissing,
    FormatUnknown,
    KernelDuplicate,
    KernelRefused,
    Location,
    OperatorUnknown,
    SchemaInvalid,
    SyntaxInvalid,
    nearest,
)
from opsmith.schema import Catalogue, Declaration, with_operators

PACKAGE = Path(__file__).resolve().parent.parent
RUNTIME_MANIFEST = PACKAGE / "csrc" / "runtime.yaml"

_AUTO = "auto"  # in `whole`, in the place of an operator's name
_BACKEND_NAME = re.compile(r"[a-z][a-z0-9_]*")
_OPERATOR = re.compile(r"([A-Za-z_]\w*::)?[A-Za-z_]\w*(\.\w+)?")

# Names that torch itself uses: of device types and of what stands in the C++ namespace `at`, where the
# generated calls of a backend have a namespace with its name.
_RESERVED = frozenset(
    "cpu cuda mps xpu hip meta mtia hpu vulkan xla ipu ve maia lazy fpga privateuseone "
    "accelerator autocast caching detail functionalization functorch impl indexing internal jit metal "
    "native sparse sparse_csr tracer vec vml".split()
)


class _Kernel(msgspec.Struct, forbid_unknown_fields=True):
    op: str = ""
    func: str = ""
    stub: str = ""
    kernel_name: str = ""
    meta: str | Meta | None = None
    tags: str | list[str] = []
    structured: bool = False
    autograd: str = ""
    backward: str = ""
    saves: list[str] | None = None
    structured_meta: Literal["pytorch", "override"] = "pytorch"
    casts: bool = False
    symint: bool | None = None
    device_guard: bool | None = None
    execution: Literal["device", "host", "fallback"] | None = None
    on_error: Literal["raise", "fallback"] = "raise"
    dtypes: list[str] | dict[str, list[str]] = []


class _Manifest(msgspec.Struct, forbid_unknown_fields=True):
    library: str
    kernels: list[_Kernel]
    abi: Literal["aten", "executorch"] = "aten"
    execution: Literal["device", "host"] = "device"
    device_guard: bool = True
    symint: bool = False
    derive: Literal["cheapest", "functional", "out", "nothing"] | None = None
    class_name: str = ""
    sources: list[str] = []
    include_dirs: list[str] = []
    type_alias: dict[str, list[str]] = {}


class _ExecutorchManifest(msgspec.Struct, forbid_unknown_fields=True):
    library: str
    kernels: list[Any]
    abi: Literal["aten", "executorch"] = "executorch"
    sources: list[str] = []
    include_dirs: list[str] = []


class _Driver(msgspec.Struct, forbid_unknown_fields=True):
    name: str | None = None
    library: str | None = None
    sources: list[str] = []
    include_dirs: list[str] = []
    host_window: bool = True


class _Fallback(msgspec.Struct, forbid_unknown_fields=True):
    default: Literal["cpu", "none"] = "cpu"
    only: list[str] | None = None
    deny: list[str] = []
    whole: Literal["auto"] | list[str] = []


class _LibraryEntry(msgspec.Struct, forbid_unknown_fields=True):
    """A library's file with what files of other formats cannot say."""

    file: str
    name: str = ""
    sources: list[str] = []
    include_dirs: list[str] = []
    execution: Literal["device", "host"] | None = None


class _Backend(msgspec.Struct, forbid_unknown_fields=True):
    backend: str
    driver: _Driver | str
    libraries: list[str | _LibraryEntry] = []
    fallback: _Fallback | Literal["cpu", "none"] = "cpu"


def shipped_backends() -> dict[str, Path]:
    """The backends that come with opsmith, by name."""
    return {path.parent.name: path for path in sorted((PACKAGE / "drivers").glob("*/backend.yaml"))}


def shipped_libraries() -> dict[str, Path]:
    """The kernel libraries that come with opsmith, by name."""
    return {path.parent.name: path for path in sorted((PACKAGE / "kernels").glob("*/kernels.yaml"))}


def find_backend(name: str) -> Path:
    """The ``backend.yaml`` that ``name`` means: a shipped backend, a file, or a folder with one.

    Raises :class:`BackendUnknown`.
    """
    shipped = shipped_backends()
    if name in shipped:
        return shipped[name]
    path = Path(name)
    if path.is_dir():
        path = path / "backend.yaml"
    if path.is_file():
        return path.resolve()
    raise BackendUnknown(
        f"there is no backend `{name}`{nearest(name, shipped)}",
        remedy=f"name a shipped backend ({', '.join(shipped)}) or the path of a backend.yaml",
    )


def read_backend(path: Path, catalogue: Catalogue | None) -> Backend:
    """The backend described by the file ``path``, with its libraries.

    Without a ``catalogue`` the operators' names are taken on trust, which saves reading it.
    Raises a :class:`DescriptionError` at the place of the first mistake.
    """
    document = read_document(path)
    _refuse_library(document)
    raw = document.convert(_Backend)
    if not _BACKEND_NAME.fullmatch(raw.backend) or raw.backend in _RESERVED:
        raise SyntaxInvalid(
            f"`{raw.backend}` cannot name a device",
            location=document.locate("backend"),
            remedy="use lower-case letters, digits and _, and none of torch's own device names",
        )
    if catalogue is not None and any(
        operator.partition(".")[0] == raw.backend for operator in catalogue.operators
    ):
        raise SyntaxInvalid(
            f"`{raw.backend}` cannot name a device: it is an operator, and the C++ function "
            f"`at::{raw.backend}` leaves no room for a namespace of that name",
            location=document.locate("backend"),
            remedy=f"choose another name, e.g. `{raw.backend}chip`",
        )
    manifests = [
        _find_library(entry if isinstance(entry, str) else entry.file, document, index)
        for index, entry in enumerate(raw.libraries)
    ] + [RUNTIME_MANIFEST]
    libraries = tuple(
        _completed(read_library(manifest, catalogue), document, entry, index)
        for index, (manifest, entry) in enumerate(zip(manifests, [*raw.libraries, ""], strict=True))
    )
    if catalogue is not None:
        declared = [operator for library in libraries for operator in library.operators]
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
    return Backend(
        name=raw.backend,
        location=document.locate("backend"),
        driver=_driver(document, raw.driver),
        libraries=libraries,
        fallback=_fallback(document, raw.fallback, catalogue),
        files=(path, *manifests),
    )


def read_library(path: Path, catalogue: Catalogue | None) -> Library:
    """The kernel library described by the file ``path``; raises like :func:`read_backend`.

    The file is a manifest, a backend YAML of torchgen, or ExecuTorch's functions.yaml or custom_ops.yaml.
    """
    return read_document_as_library(read_document(path), catalogue)


def read_document_as_library(document: Document, catalogue: Catalogue | None) -> Library:
    """The kernel library that ``document`` describes."""
    return _READERS[format_of(document)](document, catalogue)


def _completed(
    library: Library, document: Document, entry: str | _LibraryEntry, index: int
) -> Library:
    """``library`` with what the backend adds to it at ``libraries[index]``."""
    if isinstance(entry, str):
        return library
    changed: dict[str, Any] = {}
    if entry.name:
        _check_library_name(entry.name, document.locate("libraries", index, "name"))
        changed["library"] = entry.name
    if entry.execution is not None:
        changed["execution"] = Execution(entry.execution)
    return replace(
        library,
        name=entry.name or library.name,
        execution=changed.get("execution", library.execution),
        sources=(
            *library.sources,
            *_files(document, entry.sources, "libraries", index, "sources"),
        ),
        include_dirs=(
            *library.include_dirs,
            *_directories(document, entry.include_dirs, "libraries", index, "include_dirs"),
        ),
        kernels=tuple(replace(kernel, **changed) for kernel in library.kernels),
        stubs=tuple(replace(stub, **changed) for stub in library.stubs),
    )


def _check_library_name(name: str, location: Location) -> None:
    if not LIBRARY.fullmatch(name):
        raise SyntaxInvalid(
            f"`{name}` cannot name a library",
            location=location,
            remedy="use letters, digits, _, - and dots, and begin with a letter",
        )


def _refuse_library(document: Document) -> None:
    """Raises :class:`FormatUnknown` for a kernel library where a backend is wanted."""
    try:
        kind = format_of(document)
    except FormatUnknown:
        return  # what is missing or too much is told key by key
    if kind is not Format.BACKEND:
        raise FormatUnknown(
            f"this is {kind.value}, and a backend's description is wanted",
            location=document.locate(),
            remedy=f"name it in a backend.yaml: `libraries: [{document.path.name}]`",
        )


def _read_backend_as_library(document: Document, catalogue: Catalogue | None) -> Library:
    raise FormatUnknown(
        "this is a backend of opsmith, and a kernel library is wanted",
        location=document.locate(),
        remedy="name the manifests that it lists under `libraries`",
    )


def _read_executorch(document: Document, catalogue: Catalogue | None) -> Library:
    # The file has no name for what it holds, but its own.
    name = re.sub(r"[^\w.-]", "_", document.path.stem, flags=re.ASCII)
    name = name if LIBRARY.fullmatch(name) else f"_{name}"
    kernels, operators = read_executorch_entries(document, name, catalogue)
    return Library(
        name=name,
        location=document.locate(),
        abi=Abi.EXECUTORCH,
        execution=Execution.HOST,
        kernels=kernels,
        executorch=operators,
    )


def _read_executorch_manifest(document: Document, catalogue: Catalogue | None) -> Library:
    raw = document.convert(_ExecutorchManifest)
    _check_library_name(raw.library, document.locate("library"))
    kernels, operators = read_executorch_entries(document, raw.library, catalogue, "kernels")
    return Library(
        name=raw.library,
        location=document.locate("library"),
        abi=Abi.EXECUTORCH,
        execution=Execution.HOST,
        sources=_files(document, raw.sources, "sources"),
        include_dirs=_directories(document, raw.include_dirs, "include_dirs"),
        kernels=kernels,
        executorch=operators,
    )


def _read_manifest(document: Document, catalogue: Catalogue | None) -> Library:
    if document.data.get("abi") == Abi.EXECUTORCH.value:
        return _read_executorch_manifest(document, catalogue)
    raw = document.convert(_Manifest)
    _check_library_name(raw.library, document.locate("library"))
    if raw.class_name and not SYMBOL.fullmatch(raw.class_name):
        raise SyntaxInvalid(
            f"`{raw.class_name}` cannot be a name in C++",
            location=document.locate("class_name"),
            remedy="write the class with its namespace, like at_npu::native::NPUNativeFunctions",
        )
    execution = Execution(raw.execution)
    kernels: list[Kernel] = []
    stubs: list[StubKernel] = []
    operators: list[Declaration] = []
    metas: list[GivenMeta] = []
    for index, entry in enumerate(raw.kernels):
        _check_keys(document, index, entry)
        if "stub" in document.data["kernels"][index]:
            stubs.append(_stub_kernel(document, index, entry, raw, catalogue, stubs))
            continue
        if entry.func and catalogue is not None:
            tags = [entry.tags] if isinstance(entry.tags, str) else entry.tags
            operators.append(read_declaration(document, index, entry.func, tags))
        if entry.meta is not None:
            name = schema_name(entry.func)
            metas.append(read_meta(document, index, name, entry.meta, SYMBOL))
        if entry.func and not (entry.kernel_name or entry.autograd or entry.backward):
            continue  # declares a variant that is derived
        kernel = _kernel(document, index, entry, raw, execution, catalogue)
        for earlier in kernels:
            if earlier.operator == kernel.operator:
                raise KernelDuplicate(
                    f"two kernels for `{kernel.operator}` in library `{raw.library}`; the first is "
                    f"`{earlier.symbol or earlier.autograd}` at {earlier.location}",
                    location=kernel.location,
                    remedy="keep one; another library can hold the other, in order of preference",
                )
        kernels.append(kernel)
    return Library(
        name=raw.library,
        location=document.locate("library"),
        abi=Abi(raw.abi),
        execution=execution,
        sources=_files(document, raw.sources, "sources"),
        include_dirs=_directories(document, raw.include_dirs, "include_dirs"),
        kernels=tuple(kernels),
        stubs=tuple(stubs),
        operators=tuple(operators),
        metas=tuple(metas),
    )


_READERS: Mapping[Format, Callable[[Document, Catalogue | None], Library]] = {
    Format.BACKEND: _read_backend_as_library,
    Format.MANIFEST: _read_manifest,
    Format.TORCHGEN: read_torchgen_yaml,
    Format.EXECUTORCH: _read_executorch,
}


def _check_keys(document: Document, index: int, entry: _Kernel) -> None:
    """Which keys may and must stand together."""
    given = document.data["kernels"][index]
    if sum(key in given for key in ("op", "func", "stub")) != 1:
        raise SyntaxInvalid(
            "an entry names an operator of PyTorch (`op`), declares one (`func`) or fills a stub "
            "(`stub`), and exactly one of them",
            location=document.locate("kernels", index),
            remedy="write `op: add.out`, `func: myop::scale(Tensor self, float factor) -> Tensor` or "
            "`stub: abs_stub`",
        )
    if entry.func:
        return
    for key, value in (("meta", entry.meta), ("tags", entry.tags)):
        if value:
            raise SyntaxInvalid(
                f"`{key}` belongs to a custom operator; PyTorch has its own for "
                f"`{entry.op or entry.stub}`",
                location=document.locate("kernels", index, key),
                remedy=f"remove `{key}`",
            )


def _stub_kernel(
    document: Document,
    index: int,
    entry: _Kernel,
    manifest: _Manifest,
    catalogue: Catalogue | None,
    earlier: Sequence[StubKernel],
) -> StubKernel:
    location = document.locate("kernels", index, "stub")
    name = entry.stub.removeprefix("at::native::")
    given = document.data["kernels"][index]
    if not entry.kernel_name:
        raise _kernel_name_missing(document, index)
    if catalogue is not None:
        check_stub(name, location)
    for other in earlier:
        if other.stub == name:
            raise KernelDuplicate(
                f"two kernels for the stub `{name}` in library `{manifest.library}`; the first is "
                f"`{other.symbol}` at {other.location}",
                location=location,
                remedy="keep one; another library can hold the other, in order of preference",
            )
    for key in given:
        if key not in {"stub", "kernel_name", "dtypes"}:
            raise KernelRefused(
                f"`{key}` says nothing about the kernel of a stub: it has the type of `{name}`",
                location=document.locate("kernels", index, key),
                remedy=f"remove `{key}`; `opsmith stubs {name}` shows the type",
            )
    _check_symbol(entry.kernel_name, document.locate("kernels", index, "kernel_name"))
    place = document.locate("kernels", index, "dtypes")
    if "dtypes" in given and not entry.dtypes:
        raise KernelRefused(
            f"this kernel for `{name}` takes nothing: its list of dtypes is empty",
            location=place,
            remedy="name the dtypes that it takes, or leave `dtypes` out where it takes all",
        )
    if isinstance(entry.dtypes, dict):
        raise KernelRefused(
            "a stub's arguments have no names: its dtypes are those that the kernel computes in",
            location=place,
            remedy="write a list: `dtypes: [Float]`",
        )
    return StubKernel(
        stub=name,
        symbol=entry.kernel_name,
        library=manifest.library,
        location=location,
        dtypes=expand_dtypes(entry.dtypes, manifest.type_alias, place),
        execution=Execution(manifest.execution),
    )


def _kernel_name_missing(document: Document, index: int) -> SyntaxInvalid:
    return SyntaxInvalid(
        "the key `kernel_name` is missing",
        location=document.locate("kernels", index),
        remedy="add `kernel_name: …` here",
    )


def _check_symbol(symbol: str, location: Location) -> None:
    if not SYMBOL.fullmatch(symbol):
        raise SyntaxInvalid(
            f"`{symbol}` is not a C++ function's qualified name",
            location=location,
            remedy="write it like my_namespace::my_kernel",
        )


def _kernel(
    document: Document,
    index: int,
    entry: _Kernel,
    manifest: _Manifest,
    execution: Execution,
    catalogue: Catalogue | None,
) -> Kernel:
    location = document.locate("kernels", index, "func" if entry.func else "op")
    name = schema_name(entry.func) or _operator_name(entry.op, location, catalogue)
    for key in ("kernel_name", "autograd", "backward"):
        if symbol := getattr(entry, key):
            _check_symbol(symbol, document.locate("kernels", index, key))
    _check_functions(document, index, entry)
    guard = manifest.device_guard if entry.device_guard is None else entry.device_guard
    declared = entry.dtypes if isinstance(entry.dtypes, dict) else {"": entry.dtypes}
    place = document.locate("kernels", index, "dtypes")
    if "dtypes" in document.data["kernels"][index] and not all([declared, *declared.values()]):
        raise KernelRefused(
            f"this kernel for `{name}` takes nothing: a list of dtypes is empty",
            location=place,
            remedy="name the dtypes that it takes, or leave `dtypes` out where it takes all",
        )
    dtypes = tuple(
        (argument, expand_dtypes(names, manifest.type_alias, place))
        for argument, names in declared.items()
        if names
    )
    return Kernel(
        operator=name,
        symbol=entry.kernel_name,
        library=manifest.library,
        location=location,
        structured=entry.structured,
        meta_symbol=f"{entry.kernel_name}_meta" if entry.structured_meta == "override" else "",
        casts=entry.casts,
        dtypes=dtypes,
        execution=Execution(entry.execution) if entry.execution else execution,
        device_guard=guard,
        backward=entry.backward,
        saves=None if entry.saves is None else tuple(entry.saves),
        symint=manifest.symint if entry.symint is None else entry.symint,
        autograd=entry.autograd,
        derive=_derive(manifest.derive, guard),
        fails_over=entry.on_error == "fallback",
        class_name=_class_name(entry.kernel_name or entry.autograd, manifest.class_name),
    )


def _derive(asked: str | None, device_guard: bool) -> Derive:
    """How variants are built on a kernel: not at all, if nothing is said and it guards its device."""
    if asked is None:
        return Derive.CHEAPEST if device_guard else Derive.NOTHING
    return Derive(asked)


def _class_name(symbol: str, class_name: str) -> str:
    """The class, if ``symbol`` is a member of it."""
    return class_name if symbol.rpartition("::")[0] == class_name else ""


def _check_functions(document: Document, index: int, entry: _Kernel) -> None:
    """Refuses an entry that names no function, or functions that exclude one another."""
    if not (entry.kernel_name or entry.autograd or entry.backward):
        raise SyntaxInvalid(
            "the key `kernel_name` is missing",
            location=document.locate("kernels", index),
            remedy="add `kernel_name: …` here, or `autograd: …` for a function that differentiates too",
        )
    if entry.autograd and entry.backward:
        raise SyntaxInvalid(
            "`autograd` and `backward` exclude one another: the first is a whole differentiable "
            "function, the second the gradient of the kernel",
            location=document.locate("kernels", index, "backward"),
            remedy="keep one of the two",
        )
    if entry.saves is not None and not entry.backward:
        raise SyntaxInvalid(
            "`saves` lists the results that a backward kernel is given, and none is named",
            location=document.locate("kernels", index, "saves"),
            remedy="add `backward: …` here, or remove `saves`",
        )
    of_a_kernel = {
        "structured": ("structured: true", entry.structured),
        "on_error": ("on_error: fallback", entry.on_error == "fallback"),
    }
    for key, (shown, given) in of_a_kernel.items():
        if given and not entry.kernel_name:
            raise SyntaxInvalid(
                f"`{shown}` describes a kernel, and none is named",
                location=document.locate("kernels", index, key),
                remedy=f"add `kernel_name: …` here, or remove `{shown}`",
            )


def _operator_name(text: str, location: Location, catalogue: Catalogue | None) -> str:
    name = text.removeprefix("aten::")
    if "(" in name:
        raise SchemaInvalid(
            f"`{text}` is a schema where an operator's name belongs",
            location=location,
            remedy=f"write `op: {name.partition('(')[0]}`, or `func:` with the schema to declare an "
            "operator of your own",
        )
    if not _OPERATOR.fullmatch(name):
        raise SchemaInvalid(
            f"`{text}` is not an operator's name",
            location=location,
            remedy="write name.overload as native_functions.yaml does, e.g. add.out",
        )
    if catalogue is not None and name not in catalogue.operators:
        if "::" in name:
            custom = [other for other in catalogue.operators if "::" in other]
            raise OperatorUnknown(
                f"no operator `{name}` is declared up to here{nearest(name, custom)}",
                location=location,
                remedy=f"give its schema where its kernel is: `func: {name}(…) -> …`",
            )
        raise OperatorUnknown(
            f"torch {catalogue.torch} has no operator `{name}`{nearest(name, catalogue.operators)}",
            location=location,
            remedy="name the overload too; `opsmith plan` lists every operator",
        )
    return name


def _find_library(name: str, document: Document, index: int) -> Path:
    shipped = shipped_libraries()
    if name in shipped:
        return shipped[name]
    path = document.path.parent / name
    if _is_directory(path):
        path = path / "kernels.yaml"
    if _is_file(path):
        return path
    raise FileMissing(
        f"there is no kernel library `{name}`{nearest(name, shipped)}",
        location=document.locate("libraries", index),
        remedy=f"name a shipped library ({', '.join(shipped)}) or the path of a manifest, relative "
        "to this file",
    )


def _driver(document: Document, raw: _Driver | str) -> Driver:
    location = document.locate("driver")
    if isinstance(raw, str):
        return _shipped_driver(raw, location, host_window=True)
    if sum((raw.name is not None, raw.library is not None, bool(raw.sources))) != 1:
        raise SyntaxInvalid(
            "a driver is a shipped one, a built library or sources to build, and exactly one of them",
            location=location,
            remedy="write `driver: sim`, `driver: {library: path/to/libmychip.so}` or "
            "`driver: {sources: [mychip.cpp]}`",
        )
    if raw.name is not None:
        return _shipped_driver(raw.name, location, raw.host_window)
    library = None
    if raw.library is not None:
        (library,) = _files(document, [raw.library], "driver", "library")
    return Driver(
        location=location,
        library=library,
        sources=_files(document, raw.sources, "driver", "sources"),
        include_dirs=_directories(document, raw.include_dirs, "driver", "include_dirs"),
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
        places = [document.locate("fallback", key, index) for index in range(len(names))]
        return tuple(
            NamedOperator(_operator_name(name, place, catalogue), place)
            for name, place in zip(names, places, strict=True)
            if (key, name) != ("whole", _AUTO)
        )

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
        () if raw.whole == _AUTO else named("whole", raw.whole),
        _whole_auto(document, raw.whole),
    )


def _whole_auto(document: Document, whole: str | Sequence[str]) -> Location | None:
    """Where `auto` is said, alone or beside names."""
    if whole == _AUTO:
        return document.locate("fallback", "whole")
    return document.locate("fallback", "whole", whole.index(_AUTO)) if _AUTO in whole else None


def _files(document: Document, patterns: Sequence[str], *steps: Step) -> tuple[Path, ...]:
    """The files that ``patterns`` match, relative to the document, each pattern's in sorted order."""
    found: dict[Path, None] = {}
    for index, pattern in enumerate(patterns):
        root = document.path.parent
        matches = _matches(root, pattern)
        if not matches:
            raise FileMissing(
                f"no file matches `{pattern}` in {root}",
                location=document.locate(*steps, index),
                remedy="paths are relative to the YAML file that names them",
            )
        found.update(dict.fromkeys(path.resolve() for path in matches))
    return tuple(found)


def _matches(root: Path, pattern: str) -> list[Path]:
    """The files that ``pattern`` means, none if it cannot be a path's."""
    try:
        if not Path(pattern).is_absolute() and any(c in pattern for c in "*?["):
            found = sorted(root.glob(pattern))
        else:
            found = [root / pattern]
    # A NUL or `**name` in the pattern, or a name that is too long.
    except (ValueError, OSError):
        return []
    return [path for path in found if _is_file(path)]


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (ValueError, OSError):
        return False


def _is_directory(path: Path) -> bool:
    try:
        return path.is_dir()
    except (ValueError, OSError):
        return False


def _directories(document: Document, names: Sequence[str], *steps: Step) -> tuple[Path, ...]:
    directories = []
    for index, name in enumerate(names):
        directory = document.path.parent / name
        if not _is_directory(directory):
            raise FileMissing(
                f"there is no directory {directory}",
                location=document.locate(*steps, index),
                remedy="paths are relative to the YAML file that names them",
            )
        directories.append(directory.resolve())
    return tuple(directories)
