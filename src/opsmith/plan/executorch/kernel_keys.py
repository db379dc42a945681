"""The keys by which ExecuTorch's registry tells the kernels of one operator apart.

``v1/`` and, for each Tensor argument, its dtype's number and its dim order: ``v1/6;0,1|6;0,1``
(``executorch/runtime/kernel/operator_registry.h``, 1.4.1).  A single ``out`` stands twice among the
arguments of a call, and so twice in the key; lists of Tensors and absent optionals are left out.  The
rank of each Tensor is part of it, by its dim order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

# c10/core/ScalarType.h, which ExecuTorch's numbers are.
DTYPE_NUMBERS: Mapping[str, int] = {
    name: number
    for number, name in enumerate(
        "Byte Char Short Int Long Half Float Double ComplexHalf ComplexFloat ComplexDouble Bool QInt8 "
        "QUInt8 QInt32 BFloat16 QUInt4x2 QUInt2x4 Bits1x8 Bits2x4 Bits4x2 Bits8 Bits16 Float8_e5m2 "
        "Float8_e4m3fn Float8_e5m2fnuz Float8_e4m3fnuz UInt16 UInt32 UInt64".split()
    )
}
DTYPE_SIZES: Mapping[str, int] = {
    name: size
    for size, names in (
        (1, "Byte Char Bool QInt8 QUInt8 QUInt4x2 QUInt2x4 Bits1x8 Bits2x4 Bits4x2 Bits8"),
        (1, "Float8_e5m2 Float8_e4m3fn Float8_e5m2fnuz Float8_e4m3fnuz"),
        (2, "Short Half BFloat16 Bits16 UInt16"),
        (4, "Int Float ComplexHalf QInt32 UInt32"),
        (8, "Long Double ComplexFloat UInt64"),
        (16, "ComplexDouble"),
    )
    for name in names.split()
}
"""The bytes of an element."""
_DTYPES = {number: name for name, number in DTYPE_NUMBERS.items()}

# kTensorDimensionLimit of runtime/core/exec_aten/util/tensor_dimension_limit.h.
MOST_DIMENSIONS = 16

# The programs' Tensors with four and five dimensions may have the channels innermost; no other order
# is written into a program (exir/passes/memory_format_ops_pass.py).
_CHANNELS_LAST = frozenset({(0, 2, 3, 1), (0, 2, 3, 4, 1)})


@dataclass(frozen=True, order=True)
class TensorMeta:
    """The part of a key for a Tensor: c10's name of its dtype, and its dimensions, outermost first."""

    dtype: str
    dim_order: tuple[int, ...]

    @property
    def is_contiguous(self) -> bool:
        """Whether the last dimension is the innermost, and so on."""
        return self.dim_order == tuple(range(len(self.dim_order)))

    @property
    def is_known(self) -> bool:
        """Whether c10 has a dtype of that name: a program of a later version may have others."""
        return self.dtype in DTYPE_NUMBERS

    def __str__(self) -> str:
        return f"{self.dtype}({','.join(map(str, self.dim_order))})"


Argument: TypeAlias = TensorMeta | tuple[TensorMeta, ...] | None
"""The value of one argument of a call: a Tensor, a list of Tensors, or None for anything else."""


@dataclass(frozen=True)
class CallForm:
    """A call of ``operator`` (``aten::add.out``) as a program makes it.

    ``arguments`` are in the schema's order, each ``out`` among them, and then what is returned: a
    single ``out`` once more, of several a list.
    """

    operator: str
    arguments: tuple[Argument, ...]

    @property
    def tensors(self) -> tuple[TensorMeta, ...]:
        """The Tensors of the key."""
        return tuple(each for each in self.arguments if isinstance(each, TensorMeta))

    @property
    def key(self) -> str:
        """The key under which the runtime looks for a kernel; empty where the call has no Tensor."""
        return kernel_key(self.tensors)

    def __str__(self) -> str:
        return " ".join([self.operator, *map(str, self.tensors)])


def dtype_name(number: int) -> str:
    """c10's name of the dtype with ``number``, ``Float`` for 6."""
    return _DTYPES.get(number, f"dtype {number}")


def kernel_key(tensors: Iterable[TensorMeta]) -> str:
    """The key of a call with ``tensors``; empty where there are none."""
    parts = [
        f"{DTYPE_NUMBERS[tensor.dtype]};{','.join(map(str, tensor.dim_order))}"
        for tensor in tensors
    ]
    return f"v1/{'|'.join(parts)}" if parts else ""


def is_possible_dim_order(order: tuple[int, ...]) -> bool:
    """Whether a program can hold a Tensor with this dim order."""
    contiguous = order == tuple(range(len(order)))
    return len(order) <= MOST_DIMENSIONS and (contiguous or order in _CHANNELS_LAST)
