"""Which functions of the description differentiate an operator, and what that allows of its group.

The rules are the table of docs/describe/autograd.md: what may be mixed in a group, and why not the rest.
Called by the resolver, which has collected the kernels.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from opsmith.description import Kernel
from opsmith.errors import KernelRejected, nearest
from opsmith.plan.model import Autograd, AutogradRoute, Entry, KernelCall, Operands, Route
from opsmith.schema import Catalogue, Composite, Operator, Variant, gradient_operator, result_names


class Differentiation:
    """The functions for autograd of a backend's description, by the operator that they differentiate."""

    def __init__(self, kernels: Iterable[Kernel], catalogue: Catalogue, backend: str) -> None:
        """``kernels`` come in order of preference.

        Raises :class:`KernelRejected` for one that cannot differentiate its operator.
        """
        self._catalogue = catalogue
        self._namespace = f"opsmith_{backend}"
        self._kernels: dict[str, Kernel] = {}
        for kernel in kernels:
            if kernel.autograd or kernel.backward:
                operator = self._differentiated(kernel)
                self._check(kernel, operator)
                self._kernels.setdefault(operator.name, kernel)

    def provides_for(self, operator: Operator) -> bool:
        """Whether a kernel of ``operator`` below autograd takes no gradient away.

        That matters for CompositeImplicitAutograd operators only: others have a formula of PyTorch's.
        """
        if operator.composite is not Composite.IMPLICIT or operator.name in self._kernels:
            return True
        return operator.variant is Variant.OUT and self._functional(operator) in self._kernels

    def check_forward(self, kernel: Kernel, operator: Operator) -> None:
        """Raises :class:`KernelRejected` where ``kernel`` would take the operator's gradient away."""
        if self.provides_for(operator):
            return
        functional = self._functional(operator)
        if operator.variant is Variant.INPLACE and functional in self._kernels:
            raise KernelRejected(
                f"`{operator.name}` is CompositeImplicitAutograd: below autograd nothing would count the "
                "change of self, on which PyTorch's check of saved Tensors relies",
                location=kernel.location,
                remedy=f"remove this kernel: the variant is made of `{functional}`, which has a gradient",
            )
        where = (
            "this kernel" if functional in ("", operator.name) else f"the kernel of `{functional}`"
        )
        gradient = "or say how it is differentiated: add `backward: …` or `autograd: …`"
        raise KernelRejected(
            f"`{operator.name}` is CompositeImplicitAutograd: a kernel for the device would "
            "take the place of the decomposition that makes it differentiable",
            location=kernel.location,
            remedy="give kernels for the operators it decomposes into"
            + ("" if kernel.abi.is_python else f", {gradient} to {where}"),
        )

    def of(self, entry: Entry, operator: Operator) -> Autograd | None:
        """The registration for the autograd key of ``operator``, which ``entry`` serves below it; or None."""
        if kernel := self._kernels.get(operator.name):
            if kernel.autograd:
                return _autograd(AutogradRoute.FUNCTION, kernel, function=kernel.autograd)
            return _autograd(
                AutogradRoute.BACKWARD,
                kernel,
                function=kernel.backward,
                gradient=gradient_operator(operator, self._namespace, kernel.saves),
            )
        functional = self._functional(operator)
        provider = self._kernels.get(functional)
        if provider is None:
            return None
        if operator.variant is Variant.INPLACE:
            # Lists of Tensors are left to PyTorch's formulas.
            if operator.results is None or [one.many for one in operator.results] != [False]:
                return None
            own = entry.kernel is not None
            route = AutogradRoute.INPLACE_OR_COPY if own else AutogradRoute.INPLACE_BY_COPY
            return _autograd(route, provider, functional=functional)
        if operator.composite is Composite.IMPLICIT and entry.kernel is not None:
            return _autograd(AutogradRoute.OUT, provider)
        return None

    def _functional(self, operator: Operator) -> str:
        group = self._catalogue.group_of.get(operator.name)
        return (group.functional or "") if group is not None else ""

    def _differentiated(self, kernel: Kernel) -> Operator:
        # A structured kernel is named by its out operator and stands for the group.
        functional = self._functional(self._catalogue.operators[kernel.operator])
        name = functional if kernel.structured and functional else kernel.operator
        return self._catalogue.operators[name]

    def _check(self, kernel: Kernel, operator: Operator) -> None:
        key = "autograd" if kernel.autograd else "backward"
        functional = self._functional(operator)
        elsewhere = (
            f"write it at `op: {functional}`"
            if functional and functional != operator.name
            else f"remove `{key}`"
        )
        if operator.variant is Variant.OUT:
            raise KernelRejected(
                f"`{operator.name}` is an out variant, and PyTorch differentiates none: `{key}` would "
                "never be used",
                location=kernel.location,
                remedy=elsewhere,
            )
        if kernel.backward and (obstacle := _obstacle_to_backward(operator)):
            reason, remedy = obstacle
            # The functional variant may be no better.
            better = self._catalogue.operators.get(functional)
            if operator.variant is Variant.INPLACE and better and not _obstacle_to_backward(better):
                remedy = f"{elsewhere}; the in-place variant is made of it"
            raise KernelRejected(
                f"no gradient can be generated around `{operator.name}`: {reason}",
                location=kernel.location,
                remedy=remedy,
            )
        for name in kernel.saves or ():
            if name not in (results := result_names(operator)):
                raise KernelRejected(
                    f"`{operator.name}` has no result `{name}` to save{nearest(name, results)}",
                    location=kernel.location,
                    remedy=f"its results are {', '.join(results)}; its arguments are saved anyway",
                )


def _obstacle_to_backward(operator: Operator) -> tuple[str, str] | None:
    """Why a backward kernel cannot stand beside ``operator``, and what to write instead."""
    by_hand = (
        "write a torch::autograd::Function yourself and name the function that applies it: "
        "`autograd: …`"
    )
    if operator.variant is Variant.INPLACE:
        return "it overwrites the self that its backward kernel would be given", by_hand
    if operator.variant is not Variant.FUNCTIONAL:
        return f"it is a {operator.variant.value} variant, which writes to its arguments", by_hand
    if operator.view:
        return "its result shares self's storage, and autograd treats views in its own way", by_hand
    if operator.factory:
        return "it takes the dtype and the device of its result as arguments", by_hand
    if not operator.results or any(result.many for result in operator.results):
        return "it does not return a fixed number of Tensors", by_hand
    if not operator.tensor_arguments:
        return "it has no Tensor argument to differentiate with respect to", "remove `backward`"
    return None


def gradient_entry(autograd: Autograd) -> Entry:
    """The plan for the operator that a backward kernel is registered as."""
    operator = autograd.gradient
    assert operator is not None
    # Its dtypes are those of the forward kernel, checked by the node that calls it.
    kernel = replace(
        autograd.kernel,
        operator=operator.name,
        symbol=autograd.kernel.backward,
        structured=False,
        meta_symbol="",
        casts=False,
        dtypes=(),
    )
    return Entry(
        name=operator.name,
        route=Route.KERNEL,
        source=str(kernel.location),
        library=kernel.library,
        why=f"`{kernel.symbol}` ({kernel.location})",
        call=KernelCall(kernel, operands=Operands.of(operator)),
    )


def _autograd(
    route: AutogradRoute,
    kernel: Kernel,
    function: str = "",
    functional: str = "",
    gradient: Operator | None = None,
) -> Autograd:
    why = route.value.format(function=function, location=kernel.location, functional=functional)
    return Autograd(route, why, kernel, gradient, functional)
