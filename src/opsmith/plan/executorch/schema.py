"""The operators that ExecuTorch can call kernels of: out variants on the types that its values have.

Reads a kernel's schema through torchgen and refuses, at the kernel's place, what ExecuTorch's runtime
could not call.  Called by ``executorch``.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from opsmith.description import Kernel
from opsmith.errors import KernelRejected
from opsmith.plan.attention import FUSED_NAMESPACE
from opsmith.schema import Catalogue, Operator, Variant
from opsmith.schema.catalogue import function_schema

if TYPE_CHECKING:
    from opsmith.schema.torch_names import Argument

# Types that runtime/core/evalue.h can hold and executorch/codegen/api/et_cpp.py has in C++ (1.4.1): not
# Device, which the documentation lists.
_TYPES = frozenset("Tensor int SymInt float bool str Scalar ScalarType MemoryFormat".split())
_LISTS = frozenset("Tensor int SymInt float bool".split())

_OUT_NAME = re.compile(r"out|\w+_out")


@dataclass(frozen=True)
class LeanArgument:
    """An argument as ExecuTorch passes it.

    ``type`` is the schema's without what makes it optional or a list: ``Tensor``, ``int``, ``Scalar``, …;
    ``optional``: it may be None; ``holes``: members of the list may be.  ``changed``: the operator writes to
    it beside its outputs.
    """

    name: str
    type: str
    optional: bool = False
    is_list: bool = False
    holes: bool = False
    out: bool = False
    changed: bool = False

    @property
    def is_tensor(self) -> bool:
        """Whether it is one Tensor, or None in the place of one."""
        return self.type == "Tensor" and not self.is_list


@dataclass(frozen=True)
class LeanOperator:
    """An out variant with its arguments in their order."""

    operator: Operator
    arguments: tuple[LeanArgument, ...]

    @property
    def name(self) -> str:
        """The name that programs have for it, ``aten::add.out``."""
        return self.operator.qualified_name

    @property
    def schema(self) -> str:
        """Its schema, with the namespace."""
        return f"{self.operator.namespace}::{self.operator.schema}"

    @property
    def outs(self) -> tuple[LeanArgument, ...]:
        """The arguments that the kernel writes its results to."""
        return tuple(argument for argument in self.arguments if argument.out)


def lean_operator(
    kernel: Kernel, catalogue: Catalogue, external_namespaces: Collection[str] = frozenset()
) -> LeanOperator:
    """The operator of ``kernel``, as ExecuTorch calls it.

    ``external_namespaces`` are the namespaces that others define, whose schemas are taken as they are.
    Raises :class:`KernelRejected` where it cannot.
    """
    operator = catalogue.operators.get(kernel.operator)
    if operator is None:
        # A name without namespace is ATen's, but a functions.yaml may declare one that ATen does not have.
        raise _rejection(
            kernel,
            f"`{kernel.operator}` is declared without a namespace, and torch {catalogue.torch} has no such "
            "operator",
            f"give it one of your own: `func: mylib::{kernel.operator}(…) -> …`",
        )
    if operator.variant is not Variant.OUT:
        raise _rejection(kernel, *_no_out_variant(operator, catalogue))
    schema = function_schema(operator)
    outs = {argument.name for argument in schema.arguments.out}
    arguments = tuple(
        replace(_argument(kernel, operator, argument), out=argument.name in outs)
        for argument in schema.arguments.flat_all
    )
    if operator.namespace not in {"aten", FUSED_NAMESPACE, *external_namespaces}:
        _check_custom(kernel, operator)
    return LeanOperator(operator, arguments)


def _no_out_variant(operator: Operator, catalogue: Catalogue) -> tuple[str, str]:
    """The message for an operator that is no out variant, and the remedy."""
    name = operator.name
    group = catalogue.group_of.get(name)
    out = group.out if group else None
    if out:
        instead = f"write the kernel for `{out}`"
    elif operator.namespace == "aten":
        instead = f"PyTorch has no out variant of `{name}`: leave it to the runtime"
    else:
        instead = f"declare `{_out_name(name)}(…, *, Tensor(a!) out) -> Tensor(a!)`"
    return (
        f"`{name}` is {_ARTICLES[operator.variant]} operator, and ExecuTorch calls out variants only: its "
        "memory is planned before it runs",
        instead,
    )


_ARTICLES = {
    Variant.FUNCTIONAL: "a functional",
    Variant.INPLACE: "an in-place",
    Variant.MUTABLE: "a mutable",
    Variant.SCRATCH: "a scratch",
}


def _argument(kernel: Kernel, operator: Operator, argument: Argument) -> LeanArgument:
    base, suffixes = _split(str(argument.type))
    suffix = "".join("[]" if each.startswith("[") else each for each in suffixes)
    lists = _LISTS | ({"Tensor"} if suffix == "?[]" else set())
    allowed = base in _TYPES if suffix in {"", "?"} else base in lists
    if (
        not allowed
        or suffix not in {"", "?", "[]", "[]?", "?[]"}
        or (suffix == "?[]" and base != "Tensor")
    ):
        raise _rejection(
            kernel,
            f"`{argument.name}` of `{operator.name}` has the type {argument.type}, which no value of "
            "ExecuTorch has",
            "its arguments are Tensor, int, bool, float, str, Scalar, ScalarType and MemoryFormat, each "
            "optional too, and lists of Tensor, Tensor?, int, bool and float",
        )
    return LeanArgument(
        argument.name,
        base,
        optional=suffix in {"?", "[]?"},
        is_list="[]" in suffix,
        holes=suffix == "?[]",
        changed=argument.annotation is not None and argument.annotation.is_write,
    )


def _split(kind: str) -> tuple[str, list[str]]:
    """``int[2]?`` → ``int`` and ``[2]``, ``?``."""
    found = re.fullmatch(r"(?P<base>\w+)(?P<rest>(\?|\[\d*\])*)", kind)
    if found is None:
        return kind, []
    return found["base"], re.findall(r"\?|\[\d*\]", found["rest"])


def _check_custom(kernel: Kernel, operator: Operator) -> None:
    """How ExecuTorch asks operators that are not ATen's to be named."""
    overload = operator.name.partition(".")[2]
    if not _OUT_NAME.fullmatch(overload):
        raise _rejection(
            kernel,
            f"`{operator.name}` is not named as ExecuTorch finds an out variant: <name>.out, or "
            "<name>.<overload>_out",
            f"rename it `{_out_name(operator.name)}`",
        )


def _out_name(name: str) -> str:
    """How the out variant of a custom operator is called: ``myop::scale.Scalar`` → ``….Scalar_out``."""
    base, _, overload = name.partition(".")
    return f"{base}.{overload}_out" if overload else f"{base}.out"


def _rejection(kernel: Kernel, message: str, remedy: str) -> KernelRejected:
    return KernelRejected(message, location=kernel.location, remedy=remedy)
