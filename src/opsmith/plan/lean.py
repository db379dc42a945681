"""Which kernels on lean tensors can serve a PyTorch device, and why the others cannot.

Such a kernel is an out variant that is given its result's shape, so something must tell that shape.  Called
by the resolver.
"""

from __future__ import annotations

from opsmith.description import Kernel
from opsmith.plan.derivation import shape_is_dynamic
from opsmith.plan.executorch.schema import lean_operator
from opsmith.plan.meta import Metas
from opsmith.schema import Catalogue, Composite, Operator

# The bridge makes contiguous copies with these: a kernel of one would be called to copy its own operand.
_COPIES_OPERANDS = frozenset({"clone.out"})


class LeanKernels:
    """The kernels of the ``executorch`` ABI, as a device of ``catalogue``'s torch sees them."""

    def __init__(self, catalogue: Catalogue, metas: Metas) -> None:
        self._catalogue = catalogue
        self._metas = metas

    def obstacle(self, kernel: Kernel) -> str:
        """Why ``kernel`` serves ExecuTorch's programs only; empty where it serves the device too.

        Raises :class:`~opsmith.errors.KernelRejected` for one that can serve neither.
        """
        operator = self._catalogue.operators.get(kernel.operator)
        if operator is None:
            return f"serves ExecuTorch's programs only: torch {self._catalogue.torch} has no such operator"
        lean = lean_operator(kernel, self._catalogue, self._metas.external_namespaces)
        if any(
            argument.is_list and (argument.out or argument.changed) for argument in lean.arguments
        ):
            return "serves ExecuTorch's programs only: it writes to a list of Tensors"
        if reason := self._reason(operator, kernel):
            return f"serves ExecuTorch's programs only: {reason}"
        return ""

    def _reason(self, operator: Operator, kernel: Kernel) -> str:
        if operator.name in _COPIES_OPERANDS:
            return (
                "operands that a kernel cannot be given as they lie are copied with this operator"
            )
        if operator.composite is Composite.IMPLICIT:
            return (
                "the operator is CompositeImplicitAutograd, and PyTorch's decomposition is what makes it "
                "differentiable"
            )
        return self._unshaped(operator, kernel)

    def _unshaped(self, operator: Operator, kernel: Kernel) -> str:
        group = self._catalogue.group_of.get(operator.name)
        if group is None or group.functional is None:
            return "it has no functional variant, whose meta kernel would tell the result's shape"
        functional = self._catalogue.operators[group.functional]
        if functional.factory:
            return (
                f"`{functional.name}` is told its result's dtype and device, which no argument of the out "
                "variant tells its meta kernel; PyTorch makes it of other operators"
            )
        if shape_is_dynamic(functional, kernel):
            if self._metas.given_for(functional) is not None:
                return ""
            return "the shape of its result depends on its operands' elements, and no `meta:` tells its rank"
        if operator.namespace != "aten":
            shaped = self._metas.of(functional) is not None
            return "" if shaped else "nothing says how its result is shaped: add `meta: …`"
        if not (group.structured or functional.meta):
            return (
                f"`{functional.name}` has no meta kernel, and no `meta:` tells the result's shape"
            )
        return ""
