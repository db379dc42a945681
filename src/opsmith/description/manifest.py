"""Reads a kernel library's manifest: opsmith's own, and ExecuTorch's kernels with a header of opsmith's.

Files of torchgen and ExecuTorch are read by the modules that are named for them; ``library`` tells which
is which.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import msgspec

from opsmith.description.attention import DescribedAttention, attention_limits
from opsmith.description.build_options import build_options
from opsmith.description.custom import DescribedMeta, read_declaration, read_meta, schema_name
from opsmith.description.document import Document
from opsmith.description.dtypes import expand_dtypes
from opsmith.description.entries import add_unique, declared_dtypes
from opsmith.description.external_namespaces import read_external_namespaces
from opsmith.description.formats.executorch import (
    ExecutorchHeader,
    ManifestEntry,
    read_executorch_entries,
)
from opsmith.description.model import (
    Abi,
    Derive,
    DimOrder,
    Execution,
    FusedKernel,
    GivenMeta,
    Kernel,
    Library,
    StubKernel,
    Unserved,
)
from opsmith.description.names import (
    check_library_name,
    obstacle_in_cpp,
    obstacle_in_function,
    operator_name,
)
from opsmith.description.other_releases import left_out
from opsmith.description.paths import directories_of, files_of
from opsmith.description.rng import Rng
from opsmith.description.stubs import check_stub
from opsmith.description.triton_kernels import read_triton_manifest
from opsmith.description.tvm_ffi_kernels import read_tvm_ffi_manifest
from opsmith.errors import KernelDuplicate, KernelRejected, Location, SyntaxInvalid
from opsmith.schema import Catalogue, Declaration


class _Kernel(msgspec.Struct, forbid_unknown_fields=True):
    op: str = ""
    func: str = ""
    stub: str = ""
    kernel_name: str = ""
    meta: str | DescribedMeta | None = None
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
    derive: Literal["cheapest", "functional", "out", "nothing"] | None = None
    on_error: Literal["raise", "fallback"] = "raise"
    rng: Literal["philox"] | None = None
    attention: DescribedAttention | None = None
    dtypes: list[str] | dict[str, list[str]] = []


class _FusedKernel(msgspec.Struct, forbid_unknown_fields=True):
    make: str
    run: str
    dtypes: list[str]


class _Manifest(msgspec.Struct, forbid_unknown_fields=True):
    library: str
    kernels: list[_Kernel]
    abi: Literal["aten", "executorch", "triton", "tvm_ffi"] = "aten"
    execution: Literal["device", "host"] = "device"
    device_guard: bool = True
    symint: bool = False
    derive: Literal["cheapest", "functional", "out", "nothing"] | None = None
    rng: Literal["philox"] | None = None
    capture: bool = False
    class_name: str = ""
    fused_kernel: _FusedKernel | None = None
    sources: list[str] = []
    include_dirs: list[str] = []
    compile_flags: list[str] = []
    link_flags: list[str] = []
    libraries: list[str] = []
    type_alias: dict[str, list[str]] = {}


class _ExecutorchManifest(msgspec.Struct, forbid_unknown_fields=True):
    library: str
    kernels: list[Any]
    abi: Literal["aten", "executorch"] = "executorch"
    execution: Literal["host", "device"] = "host"
    dim_order: Literal["contiguous", "any"] = "contiguous"
    on_devices: bool = True
    sources: list[str] = []
    vectorised: list[str] = []
    meta_sources: list[str] = []
    include_dirs: list[str] = []
    compile_flags: list[str] = []
    link_flags: list[str] = []
    libraries: list[str] = []
    defined_by: dict[str, list[str]] = {}
    type_alias: dict[str, list[str]] = {}


def read_manifest(document: Document, catalogue: Catalogue | None) -> Library:
    """The library of a manifest.  Raises a :class:`DescriptionError` at the place of the first mistake."""
    if document.data.get("abi") == Abi.EXECUTORCH.value:
        return _read_executorch_manifest(document, catalogue)
    if document.data.get("abi") == Abi.TRITON.value:
        return read_triton_manifest(document, catalogue)
    if document.data.get("abi") == Abi.TVM_FFI.value:
        return read_tvm_ffi_manifest(document, catalogue)
    raw = document.convert(_Manifest)
    check_library_name(raw.library, document.locate("library"))
    obstacle = obstacle_in_cpp(raw.class_name) if raw.class_name else None
    if obstacle is not None:
        raise SyntaxInvalid(
            f"`{raw.class_name}` cannot be a name in C++{obstacle}",
            location=document.locate("class_name"),
            remedy="write the class with its namespace, like at_npu::native::NPUNativeFunctions",
        )
    execution = Execution(raw.execution)
    kernels: dict[str, Kernel] = {}
    stubs: list[StubKernel] = []
    operators: list[Declaration] = []
    metas: list[GivenMeta] = []
    unserved: list[Unserved] = []
    for index, entry in enumerate(raw.kernels):
        _check_keys(document, index, entry)
        if other := left_out(document, catalogue, "kernels", index):
            unserved.append(other)
            continue
        if "stub" in document.data["kernels"][index]:
            stubs.append(_stub_kernel(document, index, entry, raw, catalogue, stubs))
            continue
        if entry.func and catalogue is not None:
            tags = [entry.tags] if isinstance(entry.tags, str) else entry.tags
            operators.append(read_declaration(document, ("kernels", index), entry.func, tags))
        if entry.meta is not None:
            name = schema_name(entry.func)
            metas.append(read_meta(document, ("kernels", index), name, entry.meta))
        if entry.func and not (entry.kernel_name or entry.autograd or entry.backward):
            continue  # declares a variant that is derived
        add_unique(_kernel(document, index, entry, raw, execution, catalogue), kernels)
    return Library(
        name=raw.library,
        location=document.locate("library"),
        abi=Abi(raw.abi),
        execution=execution,
        sources=files_of(document, raw.sources, "sources"),
        include_dirs=directories_of(document, raw.include_dirs, "include_dirs"),
        options=build_options(document, raw),
        kernels=tuple(kernels.values()),
        stubs=tuple(stubs),
        operators=tuple(operators),
        metas=tuple(metas),
        unserved=tuple(unserved),
        fused_kernel=_fused_kernel(document, raw),
    )


def _fused_kernel(document: Document, manifest: _Manifest) -> FusedKernel | None:
    if (described := manifest.fused_kernel) is None:
        return None
    for key in ("make", "run"):
        name = getattr(described, key)
        if not re.fullmatch(r"\w+::\w+", name, flags=re.ASCII):
            raise SyntaxInvalid(
                f"`{name}` is not an operator's name with its namespace",
                location=document.locate("fused_kernel", key),
                remedy=f"write it like {manifest.library}::{key}_fused; docs/kernels/fused.md has its schema",
            )
    location = document.locate("fused_kernel", "dtypes")
    return FusedKernel(
        described.make,
        described.run,
        expand_dtypes(described.dtypes, manifest.type_alias, location),
    )


def _read_executorch_manifest(document: Document, catalogue: Catalogue | None) -> Library:
    raw = document.convert(_ExecutorchManifest)
    check_library_name(raw.library, document.locate("library"))
    external = read_external_namespaces(document, raw.defined_by)
    execution = Execution(raw.execution)
    header = ExecutorchHeader(
        raw.library,
        ManifestEntry,
        DimOrder(raw.dim_order),
        raw.type_alias,
        frozenset(each.namespace for each in external),
    )
    read = read_executorch_entries(document, header, catalogue, "kernels")
    return Library(
        name=raw.library,
        location=document.locate("library"),
        abi=Abi.EXECUTORCH,
        execution=execution,
        on_devices=raw.on_devices,
        sources=files_of(document, raw.sources, "sources"),
        vectorised=files_of(document, raw.vectorised, "vectorised"),
        meta_sources=files_of(document, raw.meta_sources, "meta_sources"),
        include_dirs=directories_of(document, raw.include_dirs, "include_dirs"),
        options=build_options(document, raw),
        kernels=tuple(replace(kernel, execution=execution) for kernel in read.kernels),
        executorch=read.operators,
        operators=read.declared,
        metas=read.metas,
        unserved=read.unserved,
        external_namespaces=external,
    )


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
            raise KernelRejected(
                f"`{key}` says nothing about the kernel of a stub: it has the type of `{name}`",
                location=document.locate("kernels", index, key),
                remedy=f"remove `{key}`; `opsmith stubs {name}` shows the type",
            )
    _check_symbol(entry.kernel_name, document.locate("kernels", index, "kernel_name"))
    of_dtypes = document.locate("kernels", index, "dtypes")
    if "dtypes" in given and not entry.dtypes:
        raise KernelRejected(
            f"this kernel for `{name}` takes nothing: its list of dtypes is empty",
            location=of_dtypes,
            remedy="name the dtypes that it takes, or leave `dtypes` out where it takes all",
        )
    if isinstance(entry.dtypes, dict):
        raise KernelRejected(
            "a stub's arguments have no names: its dtypes are those that the kernel computes in",
            location=of_dtypes,
            remedy="write a list: `dtypes: [Float]`",
        )
    return StubKernel(
        stub=name,
        symbol=entry.kernel_name,
        library=manifest.library,
        location=location,
        dtypes=expand_dtypes(entry.dtypes, manifest.type_alias, of_dtypes),
        execution=Execution(manifest.execution),
    )


def _kernel_name_missing(document: Document, index: int) -> SyntaxInvalid:
    return SyntaxInvalid(
        "the key `kernel_name` is missing",
        location=document.locate("kernels", index),
        remedy="add `kernel_name: …` here",
    )


def _check_symbol(symbol: str, location: Location) -> None:
    if (obstacle := obstacle_in_function(symbol)) is not None:
        raise SyntaxInvalid(
            f"`{symbol}` is not a C++ function's qualified name{obstacle}",
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
    name = schema_name(entry.func) or operator_name(entry.op, location, catalogue)
    for key in ("kernel_name", "autograd", "backward"):
        if symbol := getattr(entry, key):
            _check_symbol(symbol, document.locate("kernels", index, key))
    _check_functions(document, index, entry)
    guard = manifest.device_guard if entry.device_guard is None else entry.device_guard
    dtypes = declared_dtypes(document, index, name, entry.dtypes, manifest.type_alias)
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
        derive=_derive(entry.derive or manifest.derive, guard),
        fails_over=entry.on_error == "fallback",
        rng=Rng(rng) if (rng := entry.rng or manifest.rng) else None,
        capture=manifest.capture,
        attention=attention_limits(document, ("kernels", index), entry.attention),
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
