"""The rules that entries of every manifest keep, whatever form their kernels have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from opsmith.description.document import Document
from opsmith.description.dtypes import expand_dtypes
from opsmith.description.model import (
    Abi,
    DimOrder,
    Execution,
    Kernel,
    Library,
    TritonLaunch,
    TvmFunction,
)
from opsmith.description.names import operator_name
from opsmith.description.other_releases import left_out
from opsmith.errors import KernelDuplicate, KernelRejected
from opsmith.schema import Catalogue


class FunctionEntry(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The keys of each entry whose kernel is a function of a module."""

    op: str
    dtypes: list[str] | dict[str, list[str]] = []
    on_error: Literal["raise", "fallback"] | None = None


class FunctionManifest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The keys of each manifest whose kernels are functions of one module."""

    library: str
    kernels: Sequence[FunctionEntry]
    abi: Literal["triton", "tvm_ffi"]
    module: str
    on_error: Literal["raise", "fallback"] = "raise"
    type_alias: dict[str, list[str]] = {}


def library_of_functions(
    document: Document,
    catalogue: Catalogue | None,
    manifest: FunctionManifest,
    module: Path | str,
    called: Callable[[int, str], TritonLaunch | TvmFunction],
    execution: Execution = Execution.DEVICE,
    dim_order: DimOrder = DimOrder.CONTIGUOUS,
) -> Library:
    """The library whose kernels are functions of ``module``, one for each entry that is not left out.

    ``called`` reads which function the entry with a number has for its operator.  Raises
    :class:`KernelDuplicate`.
    """
    kernels: dict[str, Kernel] = {}
    unserved = []
    for index, entry in enumerate(manifest.kernels):
        if other := left_out(document, catalogue, "kernels", index):
            unserved.append(other)
            continue
        location = document.locate("kernels", index, "op")
        name = operator_name(entry.op, location, catalogue)
        function = called(index, name)
        kernel = Kernel(
            operator=name,
            symbol=f"{manifest.module or manifest.abi}:{function.name}",
            library=manifest.library,
            location=location,
            abi=Abi(manifest.abi),
            structured=_is_shaped_by_pytorch(name, catalogue),
            dtypes=declared_dtypes(document, index, name, entry.dtypes, manifest.type_alias),
            execution=execution,
            fails_over=(entry.on_error or manifest.on_error) == "fallback",
            dim_order=dim_order,
            launch=function if isinstance(function, TritonLaunch) else None,
            function=function if isinstance(function, TvmFunction) else None,
        )
        add_unique(kernel, kernels)
    return Library(
        name=manifest.library,
        location=document.locate("library"),
        abi=Abi(manifest.abi),
        execution=execution,
        kernels=tuple(kernels.values()),
        unserved=tuple(unserved),
        modules=(module,) if isinstance(module, Path) else (),
    )


def _is_shaped_by_pytorch(operator: str, catalogue: Catalogue | None) -> bool:
    """Whether PyTorch's meta function shapes ``out`` before a kernel of ``operator`` is called."""
    group = catalogue.group_of.get(operator) if catalogue is not None else None
    return group is not None and group.structured and group.out == operator


def declared_dtypes(
    document: Document,
    index: int,
    operator: str,
    dtypes: Sequence[str] | Mapping[str, Sequence[str]],
    aliases: Mapping[str, Sequence[str]],
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The ``dtypes`` of the kernel for ``operator`` at ``kernels[index]``, by argument.

    Raises :class:`KernelRejected` for an empty list.
    """
    declared = dtypes if isinstance(dtypes, Mapping) else {"": dtypes}
    location = document.locate("kernels", index, "dtypes")
    if "dtypes" in document.data["kernels"][index] and not all([declared, *declared.values()]):
        raise KernelRejected(
            f"this kernel for `{operator}` takes nothing: a list of dtypes is empty",
            location=location,
            remedy="name the dtypes that it takes, or leave `dtypes` out where it takes all",
        )
    return tuple(
        (argument, expand_dtypes(names, aliases, location))
        for argument, names in declared.items()
        if names
    )


def add_unique(kernel: Kernel, kernels: dict[str, Kernel]) -> None:
    """Adds ``kernel`` to those of its library, by operator.

    Raises :class:`KernelDuplicate` where one of them is for its operator.
    """
    earlier = kernels.setdefault(kernel.operator, kernel)
    if earlier is not kernel:
        raise KernelDuplicate(
            f"two kernels for `{kernel.operator}` in library `{kernel.library}`; the first is "
            f"`{earlier.symbol or earlier.autograd}` at {earlier.location}",
            location=kernel.location,
            remedy="keep one; another library can hold the other, in order of preference",
        )
