"""Operators to whose kernels PyTorch passes conjugated, negated and zero tensors as they are.

For all others the dispatcher makes ordinary Tensors of them first.  For these it has a fallthrough at the
keys Conjugate, Negative and ZeroTensor (aten/src/ATen/ConjugateFallback.cpp, NegateFallback.cpp,
ZeroTensorFallback.cpp), because PyTorch's own kernels heed the bits and a Tensor without memory; others'
need not.
tests/plan/test_lazy_operands.py compares the names with the dispatcher.  Called by the resolver.
"""

from __future__ import annotations

from opsmith.description import Abi, Kernel

NEGATED = frozenset(
    """
    linalg_solve_triangular linalg_solve_triangular.out linalg_svd linalg_svd.U repeat_interleave.Tensor
    repeat_interleave.self_Tensor repeat_interleave.self_int
    """.split()
)
"""Those that get Tensors with the neg bit."""

CONJUGATED = NEGATED.union(
    """
    _conj_physical conj_physical conj_physical_ addmm addmm.out addmm_ baddbmm baddbmm.out baddbmm_ bmm
    bmm.out dot dot.out mm mm.out vdot vdot.out
    """.split()
)
"""Those that get Tensors with the conj bit."""

ZERO_TENSORS = frozenset({"add.Scalar", "dot", "mul.Scalar", "vdot"})
"""Those that get zero tensors."""


def resolves_operands(name: str, kernel: Kernel) -> bool:
    """Whether ordinary Tensors must be made of the operands of the operator ``name`` before ``kernel`` runs.

    PyTorch's own kernels heed the bits; what a lean kernel is called by takes no zero tensor in any case.
    """
    if kernel.through:
        return False
    dtypes = {dtype for _, names in kernel.dtypes for dtype in names}
    may_be_complex = not dtypes or any(dtype.startswith("Complex") for dtype in dtypes)
    is_lean = kernel.abi is Abi.EXECUTORCH
    return (
        (name in CONJUGATED and may_be_complex)
        or name in NEGATED
        or (name in ZERO_TENSORS and not is_lean)
    )
