"""The operator that computes an operator's gradients: its schema, from the forward's.

A backward kernel is registered as an operator of its own, so that tracing, profiling and functorch see
it.  Its arguments are the gradients of the results, the forward's arguments, the results, and which
gradients are wanted; it returns one for each argument that holds Tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from opsmith.schema.catalogue import function_schema, stand_in, torch_function
from opsmith.schema.operator import Operator, Variant

if TYPE_CHECKING:
    from opsmith.schema.torch_names import Argument


# Whether operands may be scalars on the CPU follows from the first; torchgen insists on the second for
# whatever takes a Generator.
_INHERITED = frozenset({"pointwise", "nondeterministic_seeded"})


def result_names(operator: Operator) -> tuple[str, ...]:
    """The names of an operator's results: the schema's, or ``result``, ``result0``, …"""
    from opsmith.schema.torch_names import return_names

    is_atens = operator.namespace == "aten"
    return tuple(return_names(torch_function(operator if is_atens else stand_in(operator))))


def gradient_operator(
    operator: Operator, namespace: str, saved: Sequence[str] | None = None
) -> Operator:
    """The operator in ``namespace`` that computes the gradients of the functional ``operator``.

    ``saved`` are those of the forward's results that it takes; None for all.

    ``relu(Tensor self) -> Tensor`` gives
    ``relu_backward(Tensor grad_result, Tensor self, Tensor result, bool[1] needs) -> Tensor``.
    """
    arguments = function_schema(operator).arguments.flat_all
    results = result_names(operator)
    saved = results if saved is None else saved
    differentiable = [argument for argument in arguments if argument.type.is_tensor_like()]
    parameters = [
        *(f"Tensor grad_{name}" for name in results),
        *(f"{argument.type} {argument.name}" for argument in arguments),
        *(f"Tensor {name}" for name in saved),
        f"bool[{len(differentiable)}] needs",
    ]
    gradients = ", ".join(_gradient_type(argument) for argument in differentiable)
    if len(differentiable) > 1:
        gradients = f"({gradients})"
    own = "" if operator.namespace == "aten" else f"{operator.namespace}_"
    name = f"{own}{operator.schema.partition('(')[0].replace('.', '_')}_backward"
    return Operator(
        name=f"{namespace}::{name}",
        schema=f"{name}({', '.join(parameters)}) -> {gradients}",
        variant=Variant.FUNCTIONAL,
        tags=tuple(tag for tag in operator.tags if tag in _INHERITED),
        tensor_arguments=(
            *(f"grad_{name}" for name in results),
            *(argument.name for argument in differentiable),
            *saved,
        ),
        namespace=namespace,
    )


def _gradient_type(argument: Argument) -> str:
    return "Tensor[]" if argument.type.is_list_like() else "Tensor"
