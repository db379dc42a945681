"""Whether a kernel takes a call of an ExecuTorch program, by what its manifest says of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from opsmith.description import ArgMeta, DimOrder
from opsmith.plan.executorch.kernel_keys import DTYPE_NUMBERS, Argument, CallForm, TensorMeta


class Taken(Protocol):
    """What a manifest says of the calls that a kernel takes, as in :class:`~opsmith.description.Kernel`."""

    @property
    def dtypes(self) -> tuple[tuple[str, tuple[str, ...]], ...]: ...
    @property
    def dim_order(self) -> DimOrder: ...
    @property
    def arg_meta(self) -> tuple[ArgMeta, ...]: ...


def refusal(arguments: Sequence[str], kernel: Taken, form: CallForm) -> str:
    """What of ``form`` the ``kernel`` does not take, in words; empty where it takes all of it.

    ``arguments`` are the names of the schema's arguments.
    """
    if len(form.arguments) < len(arguments):
        return f"{len(form.arguments)} arguments instead of {len(arguments)}"
    given = dict(zip(arguments, form.arguments, strict=False))
    for argument, meta in _tensors(given):
        if meta.dtype not in DTYPE_NUMBERS:
            return f"{meta.dtype} as `{argument}`"
    if kernel.arg_meta:
        return _by_arg_meta(kernel.arg_meta, given)
    for argument, meta in _tensors(given):
        if kernel.dim_order is DimOrder.CONTIGUOUS and not meta.is_contiguous:
            return f"`{argument}` in the dim order {list(meta.dim_order)}"
    return _by_dtypes(dict(kernel.dtypes), given)


def _by_arg_meta(metas: Sequence[ArgMeta], given: Mapping[str, Argument]) -> str:
    named = {meta.argument for meta in metas}
    for argument, value in given.items():
        if isinstance(value, TensorMeta) and argument not in named:
            return f"{value} as `{argument}`"
    tied: dict[int, str] = {}
    for wanted in metas:
        value = given[wanted.argument]
        if not isinstance(value, TensorMeta):
            return f"None as `{wanted.argument}`"
        fits = value.dtype in wanted.dtypes and value.dim_order == wanted.dim_order
        if not fits or tied.setdefault(wanted.tied, value.dtype) != value.dtype:
            return f"{value} as `{wanted.argument}`"
    return ""


def _by_dtypes(declared: Mapping[str, tuple[str, ...]], given: Mapping[str, Argument]) -> str:
    shared = ""
    for argument, meta in _tensors(given):
        dtypes = declared.get(argument, declared.get(""))
        if dtypes is not None and meta.dtype not in dtypes:
            return f"{meta.dtype} as `{argument}`"
        if "" in declared:
            shared = shared or meta.dtype
            if meta.dtype != shared:
                return f"{meta.dtype} beside {shared}"
    return ""


def _tensors(given: Mapping[str, Argument]) -> Iterator[tuple[str, TensorMeta]]:
    """Each Tensor with the argument that it is, or is in a list of."""
    for argument, value in given.items():
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, TensorMeta):
                yield argument, each
