"""The dtype names that a manifest may use: c10's ``ScalarType`` names, as ExecuTorch's YAML does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opsmith.errors import KernelRejected, Location, nearest

# c10/core/ScalarType.h, the dtypes that ordinary strided tensors have.
SCALAR_TYPES: tuple[str, ...] = (
    "Byte",
    "Char",
    "Short",
    "Int",
    "Long",
    "Half",
    "Float",
    "Double",
    "ComplexHalf",
    "ComplexFloat",
    "ComplexDouble",
    "Bool",
    "BFloat16",
    "Float8_e5m2",
    "Float8_e4m3fn",
    "Float8_e5m2fnuz",
    "Float8_e4m3fnuz",
    "Float8_e8m0fnu",
    "UInt16",
    "UInt32",
    "UInt64",
)

# Those of indices, masks and counts among them.
INTEGRAL: tuple[str, ...] = (
    "Byte", "Char", "Short", "Int", "Long", "Bool", "UInt16", "UInt32", "UInt64",
)  # fmt: skip

# By torch.dtype's names; most are c10's in lower case.
SCALAR_TYPE_OF: Mapping[str, str] = {
    "uint8": "Byte",
    "int8": "Char",
    "int16": "Short",
    "int32": "Int",
    "int64": "Long",
    "float16": "Half",
    "float32": "Float",
    "float64": "Double",
    "complex32": "ComplexHalf",
    "complex64": "ComplexFloat",
    "complex128": "ComplexDouble",
} | {name.lower(): name for name in SCALAR_TYPES}


def expand_dtypes(
    names: Sequence[str], aliases: Mapping[str, Sequence[str]], location: Location
) -> tuple[str, ...]:
    """``names`` with each alias replaced by its dtypes, in order and without repetition.

    Raises :class:`KernelRejected` for a name that is neither a dtype nor an alias.
    """
    expanded: dict[str, None] = {}
    for name in names:
        if name in aliases:
            expanded.update(dict.fromkeys(expand_dtypes(aliases[name], {}, location)))
        elif name in SCALAR_TYPES:
            expanded[name] = None
        else:
            raise KernelRejected(
                f"unknown dtype `{name}`{nearest(name, [*aliases, *SCALAR_TYPES])}",
                location=location,
                remedy="use a c10 ScalarType name such as Float or Long, or a name from type_alias",
            )
    return tuple(expanded)
