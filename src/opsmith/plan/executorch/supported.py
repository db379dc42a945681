"""Whether a kernel takes a call of an ExecuTorch program, by what its manifest says of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from opsmith.description import DimOrder
from opsmith.plan.conditions import (
    Declared,
    HasDimOrder,
    HasDtype,
    LeanCondition,
    SameDtype,
    ShareDtype,
    lean_conditions,
)
from opsmith.plan.executorch.kernel_keys import Argument, CallForm, TensorMeta


class Supported(Declared, Protocol):
    """A manifest's claims of the calls that a kernel takes, as in :class:`~opsmith.description.Kernel`."""

    @property
    def dim_order(self) -> DimOrder: ...


def rejection(arguments: Sequence[str], kernel: Supported, form: CallForm) -> str:
    """The part of ``form`` that the ``kernel`` does not take, in words; empty where it takes all of it.

    ``arguments`` are the names of the schema's arguments.
    """
    return next(mismatches(arguments, kernel, form), "")


def mismatches(arguments: Sequence[str], kernel: Supported, form: CallForm) -> Iterator[str]:
    """All that of ``form`` the ``kernel`` does not take, each in words."""
    if len(form.arguments) < len(arguments):
        yield f"{len(form.arguments)} arguments instead of {len(arguments)}"
        return
    given = dict(zip(arguments, form.arguments, strict=False))
    keyed = {meta.argument for meta in kernel.arg_meta}
    unknown = [f"{meta.dtype} as `{name}`" for name, meta in _tensors(given) if not meta.is_known]
    absent = [
        f"{value} as `{argument}`"
        for argument, value in given.items()
        if keyed and isinstance(value, TensorMeta) and argument not in keyed
    ] + [
        f"None as `{argument}`"
        for argument, value in given.items()
        if argument in keyed and not isinstance(value, TensorMeta)
    ]
    yield from unknown
    yield from absent
    if unknown or absent:  # the rest asks for dtypes that are known, of Tensors that are there
        return
    for argument, meta in _tensors(given):
        if kernel.dim_order is DimOrder.CONTIGUOUS and not keyed and not meta.is_contiguous:
            yield f"`{argument}` in the dim order {list(meta.dim_order)}"
    unmet = (_unmet(each, given, keyed) for each in lean_conditions(kernel, arguments))
    yield from filter(None, unmet)


def _unmet(condition: LeanCondition, given: Mapping[str, Argument], keyed: set[str]) -> str:
    """The part of ``given`` that does not meet ``condition``, in words."""
    found = list(_tensors(given))
    match condition:
        case HasDtype(wanted, dtypes):
            for argument, meta in found:
                if argument == wanted and meta.dtype not in dtypes:
                    return f"{meta if argument in keyed else meta.dtype} as `{argument}`"
        case HasDimOrder(wanted, dim_order):
            for argument, meta in found:
                if argument == wanted and meta.dim_order != dim_order:
                    return f"{meta} as `{argument}`"
        case SameDtype(first, second):
            metas = dict(found)
            if metas[first].dtype != metas[second].dtype:
                return f"{metas[second]} as `{second}`"
        case ShareDtype(_, dtypes):
            for argument, meta in found:
                if meta.dtype not in dtypes:
                    return f"{meta.dtype} as `{argument}`"
                if meta.dtype != found[0][1].dtype:
                    return f"{meta.dtype} beside {found[0][1].dtype}"
    return ""


def _tensors(given: Mapping[str, Argument]) -> Iterator[tuple[str, TensorMeta]]:
    """Each Tensor with the argument that it is, or is in a list of."""
    for argument, value in given.items():
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, TensorMeta):
                yield argument, each
