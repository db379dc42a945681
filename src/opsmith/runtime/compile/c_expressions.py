"""The operations of Inductor's loops as C expressions, for fused kernels: docs/kernels/fused.md."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import sympy
import torch

from opsmith.schema.torch_names import (
    CSE,
    CSEVariable,
    ExprPrinter,
    IndentedBuffer,
    OpOverrides,
    V,
    ValueRanges,
    get_bounds_index_expr,
    upcast_compute_type,
)


@dataclass(frozen=True)
class ElementType:
    """How elements of a dtype are called in macros, and the C type of a value of it."""

    name: str
    c: str


TYPES = {
    torch.float32: ElementType("Float", "float"),
    torch.float64: ElementType("Double", "double"),
    torch.float16: ElementType("Half", "float"),
    torch.bfloat16: ElementType("BFloat16", "float"),
    torch.int64: ElementType("Long", "long"),
    torch.int32: ElementType("Int", "int"),
    torch.int16: ElementType("Short", "short"),
    torch.int8: ElementType("Char", "char"),
    torch.uint8: ElementType("Byte", "uchar"),
    torch.bool: ElementType("Bool", "bool"),
}


def number(value: float, dtype: torch.dtype) -> str:
    """``value`` as a constant of ``dtype``."""
    if dtype == torch.bool:
        return str(int(bool(value)))
    if not dtype.is_floating_point:
        value = int(value)
        if value == torch.iinfo(torch.int64).min:
            return f"(-{2**63 - 1}L - 1)"
        return f"{value}L" if dtype == torch.int64 else str(value)
    if math.isnan(value):
        return f"({TYPES[dtype].c})NAN"
    if math.isinf(value):
        return f"({TYPES[dtype].c}){'-' if value < 0 else ''}INFINITY"
    suffix = "" if dtype == torch.float64 else "f"
    return f"{float(value)!r}{suffix}"


class _Printer(ExprPrinter):
    """Expressions of indices and sizes, in C."""

    def _call(self, function: str, expr: sympy.Expr) -> str:
        return f"{function}({', '.join(map(self._print, expr.args))})"

    def _divided(self, x: sympy.Expr, by: sympy.Expr) -> str:
        function = "{} / {}" if x.is_nonnegative and by.is_positive else "FLOOR_DIVIDED({}, {})"
        return "(" + function.format(self.parenthesize(x, 60), self.parenthesize(by, 60)) + ")"

    def _print_FloorDiv(self, expr: sympy.Expr) -> str:  # noqa: N802
        return self._divided(*expr.args)

    def _print_ModularIndexing(self, expr: sympy.Expr) -> str:  # noqa: N802
        x, by, size = expr.args
        quotient = self.parenthesize(x, 60) if by == 1 else self._divided(x, by)
        if x.is_nonnegative:
            return f"({quotient} % {self.parenthesize(size, 60)})"
        return f"POSITIVE_REST({quotient}, {self._print(size)})"

    def _print_PythonMod(self, expr: sympy.Expr) -> str:  # noqa: N802
        return self._call("POSITIVE_REST", expr)

    def _print_Where(self, expr: sympy.Expr) -> str:  # noqa: N802
        condition, taken, other = map(self._print, expr.args)
        return f"({condition} ? {taken} : {other})"

    def _extremum(self, function: str, expr: sympy.Expr) -> str:
        first, *others = map(self._print, expr.args)
        for other in others:
            first = f"{function}({first}, {other})"
        return str(first)

    def _print_Min(self, expr: sympy.Expr) -> str:  # noqa: N802
        return self._extremum("LESSER", expr)

    def _print_Max(self, expr: sympy.Expr) -> str:  # noqa: N802
        return self._extremum("GREATER", expr)

    def _print_Abs(self, expr: sympy.Expr) -> str:  # noqa: N802
        return self._call("ABSOLUTE", expr)

    def _print_Not(self, expr: sympy.Expr) -> str:  # noqa: N802
        return f"!({self._print(expr.args[0])})"

    def _print_Piecewise(self, expr: sympy.Expr) -> str:  # noqa: N802
        *cases, (last, _) = expr.args
        text = self._print(last)
        for value, condition in reversed(cases):
            text = f"({self._print(condition)} ? {self._print(value)} : {text})"
        return str(text)

    def _print_BooleanTrue(self, _: sympy.Expr) -> str:  # noqa: N802
        return "1"

    def _print_BooleanFalse(self, _: sympy.Expr) -> str:  # noqa: N802
        return "0"

    def _print_ToFloat(self, expr: sympy.Expr) -> str:  # noqa: N802
        return f"((float){self.parenthesize(expr.args[0], 100)})"

    def _print_IntTrueDiv(self, expr: sympy.Expr) -> str:  # noqa: N802
        x, by = (self.parenthesize(each, 100) for each in expr.args)
        return f"((float){x} / (float){by})"

    def _print_FloorToInt(self, expr: sympy.Expr) -> str:  # noqa: N802
        return f"((long)floor({self._print(expr.args[0])}))"

    def _print_CeilToInt(self, expr: sympy.Expr) -> str:  # noqa: N802
        return f"((long)ceil({self._print(expr.args[0])}))"

    def _print_RoundToInt(self, expr: sympy.Expr) -> str:  # noqa: N802
        return f"((long)rint({self._print(expr.args[0])}))"

    def _print_TruncToFloat(self, expr: sympy.Expr) -> str:  # noqa: N802
        return self._call("trunc", expr)

    def _print_FloatPow(self, expr: sympy.Expr) -> str:  # noqa: N802
        return self._call("pow", expr)

    def _print_TruncToInt(self, expr: sympy.Expr) -> str:  # noqa: N802
        return f"((long)({self._print(expr.args[0])}))"

    def _print_Function(self, expr: sympy.Expr) -> NoReturn:  # noqa: N802
        raise NotImplementedError(f"no fused kernel calculates `{expr}`")

    def _print_Float(self, expr: sympy.Expr) -> str:  # noqa: N802
        return number(float(expr), torch.float32)


print_expression: Callable[[sympy.Expr], str] = _Printer().doprint


class TypedCse(CSE[CSEVariable, str]):
    """Declares each variable with its type."""

    def newvar(
        self, bounds: Any = None, dtype: torch.dtype | None = None, shape: Any = None
    ) -> CSEVariable:
        self.prefix = f"{TYPES[dtype].c} " if dtype is not None else ""
        known = ValueRanges.unknown() if bounds is None else bounds
        return super().newvar(known, dtype, shape)


def _function(name: str) -> Callable[..., str]:
    """An operation that is a function of that name, of floats and doubles."""
    return lambda *operands: f"{name}({', '.join(map(str, operands))})"


def _of_dtype(name: str) -> Callable[..., str]:
    """An operation that is a function for each dtype, ``name`` and the dtype's: of the first operand's."""

    def call(first: CSEVariable, *others: CSEVariable) -> str:
        dtype = upcast_compute_type(first.dtype or torch.float32)
        return f"{name}_{TYPES[dtype].name}({', '.join(map(str, (first, *others)))})"

    return call


class Operations(OpOverrides):
    """Each operation of Inductor's loops as an expression in C."""

    # Operations that are C's functions, with the same names in OpenCL C and CUDA C++.
    for _name in (
        "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh "
        "erf erfc lgamma floor ceil trunc atan2 hypot copysign nextafter fmod sqrt rsqrt fma"
    ).split():
        locals()[_name] = staticmethod(_function(_name))
    round = staticmethod(_function("rint"))
    remainder = staticmethod(_of_dtype("remainder"))
    floordiv = staticmethod(_of_dtype("floor_divided"))
    truncdiv = staticmethod(_of_dtype("divided"))
    mod = staticmethod(_of_dtype("rest"))
    pow = staticmethod(_of_dtype("power"))
    sigmoid = staticmethod(_function("SIGMOID"))
    maximum = staticmethod(_function("MAXIMUM"))
    minimum = staticmethod(_function("MINIMUM"))
    relu = staticmethod(_function("RELU"))
    abs = staticmethod(_function("ABSOLUTE"))
    sign = staticmethod(_function("SIGN"))
    signbit = staticmethod(_function("SIGN_BIT"))
    isnan = staticmethod(_function("IS_NAN"))
    isinf = staticmethod(_function("IS_INF"))
    rand = staticmethod(_function("UNIFORM"))
    randn = staticmethod(_function("NORMAL"))
    randint64 = staticmethod(_function("INTEGER_FROM"))

    @staticmethod
    def neg(x: CSEVariable) -> str:
        return f"-{x}"

    @staticmethod
    def where(condition: CSEVariable, taken: CSEVariable, other: CSEVariable) -> str:
        return f"{condition} ? {taken} : {other}"

    @staticmethod
    def logical_and(a: CSEVariable, b: CSEVariable) -> str:
        return f"(({a}) != 0) & (({b}) != 0)"

    @staticmethod
    def logical_or(a: CSEVariable, b: CSEVariable) -> str:
        return f"(({a}) != 0) | (({b}) != 0)"

    @staticmethod
    def logical_xor(a: CSEVariable, b: CSEVariable) -> str:
        return f"(({a}) != 0) ^ (({b}) != 0)"

    @staticmethod
    def bitwise_not(x: CSEVariable) -> str:  # type: ignore[override]
        return f"!{x}" if x.dtype == torch.bool else f"~{x}"

    @staticmethod
    def constant(value: float, dtype: torch.dtype) -> str:
        return number(value, upcast_compute_type(dtype))

    @staticmethod
    def to_dtype(
        x: CSEVariable,
        dtype: torch.dtype,
        src_dtype: torch.dtype | None = None,
        use_compute_types: bool = True,
    ) -> str:
        if dtype == torch.bool:
            return f"{x} != 0"
        if x.dtype is not None and x.dtype.is_floating_point and not dtype.is_floating_point:
            # Elsewhere than in the range of long the conversion has no meaning.
            return f"({TYPES[dtype].c})(long){x}"
        return f"ROUNDED({TYPES[dtype].name}, ({TYPES[dtype].c}){x})"

    @staticmethod
    def index_expr(expr: sympy.Expr, dtype: torch.dtype) -> CSEVariable:
        kernel = V.kernel
        text = f"({TYPES[dtype].c})({kernel.index_to_str(kernel.prepare_indexing(expr))})"
        bounds = get_bounds_index_expr(expr)
        found: CSEVariable = kernel.cse.generate(kernel.compute, text, bounds=bounds, dtype=dtype)
        return found

    value_expr = index_expr

    @staticmethod
    def masked(mask: CSEVariable, body: Callable[[], CSEVariable], other: float) -> CSEVariable:
        kernel = V.kernel
        inside = IndentedBuffer()
        with kernel.swap_buffers(inside), inside.indent():
            result = body()
        dtype = result.dtype
        assert dtype is not None
        found: CSEVariable = kernel.cse.newvar(dtype=dtype)
        kernel.compute.writeline(f"{TYPES[dtype].c} {found} = {number(other, dtype)};")
        kernel.compute.writeline(f"if ({mask}) {{")
        kernel.compute.splice(inside)
        kernel.compute.writeline(f"  {found} = {result};")
        kernel.compute.writeline("}")
        return found
