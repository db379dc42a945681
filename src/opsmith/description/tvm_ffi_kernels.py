"""Reads a manifest with ``abi: tvm_ffi``: operators whose kernels are functions of tvm-ffi's C ABI.

Neither tvm-ffi nor the module is loaded: whether it has a function is found when its operator is first
called.  Called by ``manifest``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from opsmith.description.document import Document
from opsmith.description.entries import FunctionEntry, FunctionManifest, library_of_functions
from opsmith.description.model import SHARED_LIBRARY, DimOrder, Execution, Library, TvmFunction
from opsmith.description.names import check_library_name
from opsmith.description.paths import named_file
from opsmith.description.python_driver import python_source
from opsmith.errors import KernelRejected, nearest
from opsmith.schema import Catalogue, Operator, Variant
from opsmith.schema.catalogue import function_schema

# The types of arguments that tvm-ffi has no value for.
_WITHOUT_VALUE = re.compile(r"Generator|Layout|MemoryFormat|Device|Stream|Storage|Dimname")


class _Kernel(FunctionEntry):
    function: str
    arguments: list[str] = msgspec.field(default_factory=list)


class _Manifest(FunctionManifest):
    kernels: list[_Kernel]
    abi: Literal["tvm_ffi"] = "tvm_ffi"
    module: str = ""
    execution: Literal["device", "host"] = "device"
    device_type: Literal["ext_dev", "cuda", "rocm"] = "ext_dev"
    dim_order: Literal["contiguous", "any"] = "contiguous"


def read_tvm_ffi_manifest(document: Document, catalogue: Catalogue | None) -> Library:
    """The library of a manifest of tvm-ffi's functions.

    Raises a :class:`~opsmith.errors.DescriptionError` at the place of the first mistake.
    """
    raw = document.convert(_Manifest)
    check_library_name(raw.library, document.locate("library"))
    module = _module(document, raw.module)

    def function(index: int, name: str) -> TvmFunction:
        entry = raw.kernels[index]
        if catalogue is not None:
            _check_arguments(document, index, entry.arguments, catalogue.operators[name])
        return TvmFunction(
            module=str(module),
            name=entry.function,
            arguments=tuple(entry.arguments),
            device_type=raw.device_type,
        )

    return library_of_functions(
        document,
        catalogue,
        raw,
        module,
        function,
        Execution(raw.execution),
        DimOrder(raw.dim_order),
    )


def _module(document: Document, text: str) -> Path | str:
    folder, location = document.path.parent, document.locate("module")
    if text.endswith(SHARED_LIBRARY):
        return named_file(text, folder, location)
    return python_source(text, folder, location) if text else ""


def _check_arguments(
    document: Document, index: int, given: Sequence[str], operator: Operator
) -> None:
    """Refuses an operator that returns new Tensors, and arguments that its function cannot be called with."""
    if operator.variant is not Variant.OUT:
        raise KernelRejected(
            f"a function of tvm-ffi's writes its result to `out`, and `{operator.name}` has none",
            location=document.locate("kernels", index, "op"),
            remedy="name the operator's out variant, from which the others are derived",
        )
    arguments = {each.name: each for each in function_schema(operator).arguments.flat_all}
    possible = [
        name for name, each in arguments.items() if not _WITHOUT_VALUE.match(str(each.type))
    ]
    order = ", ".join(possible)
    remedy = (
        f"its schema is {operator.schema}; write `arguments: [{order}]`, in the function's order"
    )
    for position, name in enumerate(given or arguments):
        location = document.locate(
            "kernels", index, *(("arguments", position) if given else ("op",))
        )
        if name not in arguments:
            raise KernelRejected(
                f"`{operator.name}` has no argument `{name}`{nearest(name, arguments)}",
                location=location,
                remedy=remedy,
            )
        if name not in possible:
            raise KernelRejected(
                f"tvm-ffi has no value for `{name}` of `{operator.name}`, a {arguments[name].type}",
                location=location,
                remedy=remedy,
            )
    left_out = [name for name in arguments if given and name not in given]
    if needed := [name for name in left_out if arguments[name].default is None]:
        raise KernelRejected(
            f"`arguments` leaves out `{needed[0]}`, which each call of `{operator.name}` gives",
            location=document.locate("kernels", index, "arguments"),
            remedy=remedy,
        )
