"""Fits the polynomials of src/opsmith/kernels/optimized/simd: python tools/fit_elementary

exp, e^x - 1, log, sin and cos by Remez' algorithm in 40 digits; the normal distribution's Φ - 1/2 and erf,
odd rational functions, by least squares that are weighted anew until the largest error no longer falls
(Lawson's method), with the denominator of the step before as the weight that makes them linear.  Prints
coefficients, lowest degree first, and errors.  Needs mpmath and NumPy, which PyTorch brings.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from mpmath import cos, exp, log, lu_solve, matrix, mp, mpf, pi, polyval, sin, sqrt

mp.dps = 40
Function = Callable[[mpf], mpf]
# |r| of x = n·ln 2 + r, and a little more.
REDUCED = log(2) / 2 * mpf("1.0005")
# f of 1 + f between √½ and √2, and a little more.
MANTISSA = (sqrt(mpf("0.4999")) - 1, sqrt(mpf("2.0004")) - 1)
# r² of x = n·π/2 + r, and a little more.
SQUARE = (mpf("1e-9"), (pi / 4) ** 2 * mpf("1.002"))
POINTS = 2000


def remez(
    function: Function, weight: Function, degree: int, low: mpf, high: mpf
) -> tuple[list[mpf], mpf]:
    """The polynomial whose error times ``weight`` is least at its largest from low to high; that error."""
    count = degree + 2
    middle, half = (low + high) / 2, (high - low) / 2
    nodes = [middle - half * cos(pi * (2 * i + 1) / (2 * count)) for i in range(count)]
    grid = [middle + half * (mpf(2 * i) / POINTS - 1) for i in range(POINTS + 1)]
    for _ in range(12):
        system, right = matrix(count, count), matrix(count, 1)
        for i, x in enumerate(nodes):
            for j in range(degree + 1):
                system[i, j] = x**j
            system[i, degree + 1] = (-1) ** i / weight(x)
            right[i] = function(x)
        solution = lu_solve(system, right)
        coefficients = [solution[j] for j in range(degree + 1)]
        errors = [weight(x) * (function(x) - polyval(coefficients[::-1], x)) for x in grid]
        found = extrema(errors)
        if len(found) < count:
            break
        while len(found) > count:
            found.pop(0 if abs(errors[found[0]]) < abs(errors[found[-1]]) else -1)
        nodes = [grid[i] for i in found]
    return coefficients, max(abs(error) for error in errors)


def extrema(errors: list[mpf]) -> list[int]:
    """Where the error is largest in each run of one sign."""
    places: list[int] = []
    begin = 0
    for i in range(1, len(errors) + 1):
        if i == len(errors) or (errors[i] > 0) != (errors[begin] > 0):
            places.append(max(range(begin, i), key=lambda k: abs(errors[k])))
            begin = i
    return places


def rational(
    wanted: Callable[[float], float], end: float, numerator: int, denominator: int, relative: bool
) -> tuple[list[float], list[float], float]:
    """P, Q and the largest error, of itself or of the result, of x·P(x²)/Q(x²) for 0 < x ≤ end."""
    x = (np.cos(np.linspace(0, math.pi, 801 if relative else 4001)) + 1) / 2 * end
    x = x[x > 1e-4]
    results = np.array([wanted(v) for v in x])
    unit = results if relative else np.ones_like(x)
    u = (x / end) ** 2
    shape, weight = np.ones_like(x), np.ones_like(x)
    best: tuple[list[float], list[float], float] = ([], [], math.inf)
    for _ in range(300 if relative else 400):
        scale = np.sqrt(weight) / shape / unit
        columns = [x * u**i for i in range(numerator + 1)]
        columns += [-results * u**i for i in range(1, denominator + 1)]
        solution = np.linalg.lstsq(
            np.stack(columns, 1) * scale[:, None], results * scale, rcond=None
        )[0]
        p, q = solution[: numerator + 1], np.concatenate([[1.0], solution[numerator + 1 :]])
        below = np.polyval(q[::-1], u)
        errors = np.abs(x * np.polyval(p[::-1], u) / below - results) / unit
        if errors.max() < best[2]:
            best = (
                list(p / end ** (2.0 * np.arange(numerator + 1))),
                list(q / end ** (2.0 * np.arange(denominator + 1))),
                errors.max(),
            )
        shape = np.abs(below)
        weight = weight * (errors / errors.max() + 1e-3)
        weight /= weight.max()
    return best


def exponential(x: mpf) -> mpf:
    """(e^x - 1 - x) / x²."""
    return mpf(1) / 2 + x / 6 + x * x / 24 if abs(x) < mpf("1e-6") else (exp(x) - 1 - x) / x**2


def logarithm(f: mpf) -> mpf:
    """(log(1 + f) - f + f²/2) / f³."""
    small = mpf(1) / 3 - f / 4 + f * f / 5
    return small if abs(f) < mpf("1e-6") else (log(1 + f) - f + f * f / 2) / f**3


def sine(u: mpf) -> mpf:
    """(sin r - r) / r³ of u = r²."""
    return (sin(sqrt(u)) / sqrt(u) - 1) / u


def cosine(u: mpf) -> mpf:
    """(cos r - 1 + r²/2) / r⁴ of u = r²."""
    return (cos(sqrt(u)) - 1 + u / 2) / u**2


def shown(coefficients: list[mpf] | list[float]) -> str:
    return ", ".join(f"{float(np.float32(float(each))):.9g}" for each in coefficients)


def main() -> None:
    tiny = mpf("1e-12")
    for what, weight in (
        ("exp", lambda x: (x * x + tiny) / exp(x)),
        ("e^x - 1", lambda x: abs(x) + tiny),
    ):
        coefficients, error = remez(exponential, weight, 4, -REDUCED, REDUCED)
        print(f"{what}: q = {shown(coefficients)}; of the result 2^{float(log(error, 2)):.1f}")
    coefficients, error = remez(
        logarithm, lambda f: abs(f**3 / log(1 + f)) if f else tiny, 7, *MANTISSA
    )
    print(f"log: q = {shown(coefficients)}; of the result 2^{float(log(error, 2)):.1f}")
    for name, of_square, weight in (
        ("sin", sine, lambda u: u * sqrt(u) / sin(sqrt(u))),
        ("cos", cosine, lambda u: u**2),
    ):
        coefficients, error = remez(of_square, weight, 2, *SQUARE)
        print(f"{name}: q = {shown(coefficients)}; of the result 2^{float(log(error, 2)):.1f}")
    for name, function, end, numerator, relative in (
        ("Φ - 1/2", lambda v: math.erf(v / math.sqrt(2)) / 2, 5.5, 5, False),
        ("erf", math.erf, 3.95, 6, True),
    ):
        p, q, largest = rational(function, end, numerator, 5, relative)
        print(f"{name}: P = {shown(p)}")
        print(f"{' ' * len(name)}  Q = {shown(q)}; within {largest:.1e}")


if __name__ == "__main__":
    main()
