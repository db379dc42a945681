"""Which calls a kernel takes: the one reading of what a description says of dtypes and dim orders.

Generated code tests these conditions (``emit.wrapper``), so does the boxed kernel of Python functions, and
the calls of ExecuTorch programs are compared with them (``plan.executorch.supported``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from opsmith.description import Abi, ArgMeta
from opsmith.description.dtypes import INTEGRAL
from opsmith.plan.model import Entry, KernelCall, Operands


@dataclass(frozen=True)
class HasDtype:
    """Each Tensor of ``argument`` has one of ``dtypes``.

    ``operands`` is not empty where Python scalars are converted for the kernel: to the common dtype of
    these arguments.
    """

    argument: str
    dtypes: tuple[str, ...]
    operands: tuple[str, ...] = ()


@dataclass(frozen=True)
class ShareDtype:
    """All Tensors of ``arguments`` have the same dtype, which is one of ``dtypes``."""

    arguments: tuple[str, ...]
    dtypes: tuple[str, ...]


@dataclass(frozen=True)
class SameDtype:
    """Two arguments have the same dtype."""

    first: str
    second: str


@dataclass(frozen=True)
class HasDimOrder:
    """``argument`` has the dimensions ``dim_order``, from the outermost in memory to the innermost."""

    argument: str
    dim_order: tuple[int, ...]


@dataclass(frozen=True)
class ComputesIn:
    """The common dtype of the operands, in which the kernel computes, is one of ``dtypes``."""

    dtypes: tuple[str, ...]


@dataclass(frozen=True)
class IsLean:
    """Lean tensors can describe all Tensors of ``arguments``: they have few dimensions, and 32-bit sizes."""

    arguments: tuple[str, ...]


LeanCondition: TypeAlias = HasDtype | ShareDtype | SameDtype | HasDimOrder
Condition: TypeAlias = LeanCondition | ComputesIn | IsLean


# PyTorch's names of operands that are numbers as the first is; others may be indices, targets or masks.
_NUMBERS = frozenset(
    "batch1 batch2 bias mat mat1 mat2 source src tensor tensor1 tensor2 vec vec1 vec2 weight".split()
)


class Declared(Protocol):
    """The declarations of a kernel on lean tensors, as in :class:`~opsmith.description.Kernel`."""

    @property
    def dtypes(self) -> tuple[tuple[str, tuple[str, ...]], ...]: ...
    @property
    def arg_meta(self) -> tuple[ArgMeta, ...]: ...


def conditions(
    entry: Entry, inputs: Sequence[str], outputs: Sequence[str]
) -> tuple[Condition, ...]:
    """The conditions on a call under which the kernel of ``entry`` takes it.

    ``inputs`` and ``outputs`` name the Tensor arguments of the kernel's operator, as its schema does.

    A list of dtypes is that of the first Tensor.  Where operands are not promoted, others have one of the
    list, too, or are integers: PyTorch leaves that to kernels (``mm`` of float and half), and one that
    declares a single dtype would read the memory of another as its own.
    """
    assert entry.call is not None
    kernel = entry.call.kernel
    if kernel.abi is Abi.EXECUTORCH:
        every = (*inputs, *outputs)
        return IsLean(every), *lean_conditions(kernel, every, converted_scalars(entry.call, inputs))
    if kernel.abi.is_python:
        computes = entry.promotes
    else:
        iterator = kernel.structured and entry.group is not None and entry.group.iterator
        computes = iterator or bool(kernel.through)
    promoted = entry.promotes or entry.call.pointwise
    found: list[Condition] = []
    for argument, dtypes in kernel.dtypes:
        if argument:
            found.append(HasDtype(argument, dtypes))
        elif computes:
            found.append(ComputesIn(dtypes))
        else:
            found.append(HasDtype((*inputs, *outputs)[0], dtypes))
            others = () if promoted else inputs[1:]
            mixed = tuple(dict.fromkeys((*dtypes, *INTEGRAL)))
            found += (HasDtype(each, dtypes if each in _NUMBERS else mixed) for each in others)
    return tuple(found)


def lean_conditions(
    kernel: Declared, arguments: Sequence[str], converted: Sequence[str] = ()
) -> tuple[LeanCondition, ...]:
    """The conditions on the Tensors among ``arguments`` that a kernel on lean tensors is given."""
    found: list[LeanCondition] = []
    for argument, dtypes in kernel.dtypes:
        if not argument:
            found.append(ShareDtype(tuple(arguments), dtypes))
        else:
            operands = tuple(converted) if argument in converted else ()
            found.append(HasDtype(argument, dtypes, operands))
    tied: dict[int, str] = {}
    for meta in kernel.arg_meta:
        found.append(HasDtype(meta.argument, meta.dtypes))
        first = tied.setdefault(meta.tied, meta.argument)
        if first != meta.argument:
            found.append(SameDtype(first, meta.argument))
        found.append(HasDimOrder(meta.argument, meta.dim_order))
    return tuple(found)


def converted_scalars(call: KernelCall, inputs: Sequence[str]) -> tuple[str, ...]:
    """The operands of a lean kernel that its caller converts where they are Python scalars."""
    mixes = call.operands is Operands.SCALARS_FROM_CPU and len(inputs) > 1
    return tuple(inputs) if mixes else ()
