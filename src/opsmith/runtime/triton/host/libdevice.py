"""The libdevice of the backend ``host``: mathematical functions of elements, by those of C++."""

from __future__ import annotations

from typing import Any

from triton.language import core

# By libdevice's names; those of C++ that it has, too.
_SAME = {
    1: "acos acosh asin asinh atan atanh cbrt ceil cos cosh erf erfc exp exp2 expm1 fabs floor lgamma log "
    "log10 log1p log2 logb nearbyint rint round sin sinh sqrt tan tanh tgamma trunc",
    2: "atan2 copysign fdim fmax fmin fmod hypot nextafter pow remainder",
}
_OTHERS = {
    "cyl_bessel_i0": (1, "bessel_i0"),
    "cyl_bessel_i1": (1, "bessel_i1"),
    "div_rn": (2, "divided"),
    "div_rz": (2, "divided_toward_zero"),
    "fast_erf": (1, "std::erf"),
    "fast_tanh": (1, "std::tanh"),
    "rsqrt": (1, "inverse_root"),
    "sqrt_rn": (1, "std::sqrt"),
}
_PREDICATES = {
    "finitef": "std::isfinite",
    "isfinited": "std::isfinite",
    "isinf": "std::isinf",
    "isnan": "std::isnan",
    "signbit": "std::signbit",
}
# Their second operand may be an integer, too.
_WITH_INTEGERS = ("pow",)
_FLOATS = (core.dtype("fp32"), core.dtype("fp64"))
_INT32 = core.dtype("int32")


def _function(name: str, symbol: str, operands: int, result: Any = None) -> Any:
    symbols = {(each,) * operands: (symbol, result or each) for each in _FLOATS}
    if name in _WITH_INTEGERS:
        symbols |= {(each, _INT32): (symbol, each) for each in _FLOATS}

    def of_elements(*args: Any, _semantic: Any = None) -> Any:
        return core.extern_elementwise(
            "", "", list(args), symbols, is_pure=True, _semantic=_semantic
        )

    of_elements.__name__ = name
    return core.extern(of_elements)


_functions = {
    **{name: (count, f"std::{name}") for count, names in _SAME.items() for name in names.split()},
    **_OTHERS,
}
globals().update(
    {name: _function(name, symbol, count) for name, (count, symbol) in _functions.items()}
)
globals().update({name: _function(name, symbol, 1, _INT32) for name, symbol in _PREDICATES.items()})
