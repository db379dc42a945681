"""Inputs of a report as large and as varied as real ones, made without running anything.

Seven hundred entries like OpInfo's in twelve dtypes and all checks, nearly all passing; the same each time.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace

from opsmith.base.cache_folder import cache_root
from opsmith.build.backend import build_backend
from opsmith.conformance.build_digest import build_digest
from opsmith.conformance.results import Check, Results, Status, Verdict
from opsmith.description import find_backend
from opsmith.observe.benchmarks.measurements import measured
from opsmith.observe.benchmarks.runs import BenchmarkResult, BenchRun
from opsmith.observe.explain.advice import Advice
from opsmith.observe.programs.coverage import OperatorUse, ProgramCoverage, RouteUse
from opsmith.observe.report.report_data import OperatorColumns
from opsmith.plan import plan_backend
from opsmith.schema import torch_version

DTYPES = (
    "float32 float64 bfloat16 float16 complex64 complex128 int64 int32 int16 int8 uint8 bool"
).split()
CHECKS = tuple(
    Check(name)
    for name in "forward backward out in-place non-contiguous empty dtypes determinism meta".split()
)
_FLOATING = set(DTYPES[:6])
_ONLY_FLOATING = {Check.BACKWARD, Check.NONCONTIGUOUS}


FAILS = Verdict(
    "add", Check.FORWARD, "float32", Status.FAILED, 3, 0.1, "</script><script>alert(1)</script>"
)


def planted_results(operators: Iterable[str], *, backend: str = "sim", seed: int = 5) -> Results:
    """Results with an entry for each name without overload and underscore among ``operators``."""
    draw = random.Random(seed)
    names = sorted(operators)
    bases: dict[str, list[str]] = {}
    for name in names:
        base = name.partition(".")[0]
        if not base.startswith("_") and not base.endswith("_") and "backward" not in base:
            bases.setdefault(base, []).append(name)
    chosen = sorted(draw.sample(sorted(bases), min(len(bases), 700)))
    for wanted in ("add", "cumsum", "linalg_norm", "relu"):
        if wanted in bases and wanted not in chosen:
            chosen.append(wanted)
    verdicts: list[Verdict] = []
    called: dict[str, tuple[str, ...]] = {}
    for base in sorted(chosen):
        entry = _as_opinfo(base)
        called[entry] = ("empty.memory_format", "_copy_from", *bases[base][:2])
        weak = draw.random() < 0.05
        for dtype in DTYPES:
            for check in CHECKS:
                verdicts.append(_verdict(draw, entry, check, dtype, weak))
    description = find_backend(backend)
    return Results(
        backend=backend,
        torch=torch_version(),
        description="/chips/sim/backend.yaml",
        started="2026-02-03T10:00:00Z",
        updated="2026-02-03T10:12:00Z",
        complete=True,
        verdicts=tuple(verdicts),
        operators=called,
        build=build_digest(description, build_backend(description)),
    )


def results_of_sim() -> Results:
    """Such results for all operators of sim, with one that fails and says so in HTML."""
    entries = plan_backend("sim", cache_root()).entries
    return with_verdict(planted_results(entry.name for entry in entries), FAILS)


def with_verdict(results: Results, verdict: Verdict) -> Results:
    """``results`` with ``verdict`` in the place of the one for its entry, check and dtype."""
    kept = (
        each
        for each in results.verdicts
        if (each.entry, each.check, each.dtype) != (verdict.entry, verdict.check, verdict.dtype)
    )
    return replace(results, verdicts=(*kept, verdict))


def with_routes(operators: OperatorColumns, routes: dict[str, str]) -> OperatorColumns:
    """``operators``, of which some take other routes."""
    strings = (*operators.strings, *routes.values())
    column = list(operators.route)
    for name, route in routes.items():
        column[operators.name.index(name)] = strings.index(route)
    return replace(operators, strings=strings, route=tuple(column))


def planted_coverage() -> ProgramCoverage:
    """A program that spent most of its time in three operators that fell back."""

    def use(name: str, route: str, calls: int, seconds: float, fell_back: int) -> OperatorUse:
        on_cpu = seconds * fell_back / calls
        return OperatorUse(name, route, "", calls, seconds, fell_back, on_cpu, "it is so planned")

    return ProgramCoverage(
        program="train.py",
        backend="sim",
        torch=torch_version(),
        status=0,
        routes=(
            RouteUse("structured", 2, 4888, 0.29, "on the device"),
            RouteUse("fallback", 4, 572, 0.8, "on the host, in place"),
        ),
        operators=(
            use("cumsum", "fallback", 120, 0.4, 120),
            use("topk.values", "fallback", 40, 0.3, 40),
            use("addmm", "structured", 900, 0.2, 12),
            use("add.Tensor", "structured", 4000, 0.1, 0),
        ),
        kernels=(
            Advice(("cumsum",), 0.4, 120, "  - op: cumsum.out\n    kernel_name: sim::cumsum_out"),
        ),
        elsewhere=3,
    )


def planted_bench(ours: float) -> BenchRun:
    """A run of one benchmark, in which opsmith takes ``ours`` µs."""
    measurements = (
        measured("add_, 4 elements", "µs", [ours, ours], [2.0, 2.0], 1.0, operator="add_.Tensor"),
    )
    results = (BenchmarkResult("variants", "derived variants", 3.0, measurements),)
    return BenchRun(torch_version(), "a machine, 2 cores", "2026-02-03T09:00:00+00:00", results)


def _verdict(draw: random.Random, entry: str, check: Check, dtype: str, weak: bool) -> Verdict:
    if check in _ONLY_FLOATING and dtype not in _FLOATING:
        return Verdict(entry, check, dtype, Status.SKIPPED, message=f"{dtype} has no gradient")
    if check is Check.OUT and draw.random() < 0.3:
        return Verdict(entry, check, dtype, Status.SKIPPED, message="the entry has no out=")
    status = Status.PASSED
    message = ""
    if weak and draw.random() < 0.08:
        status = draw.choice(
            [*3 * [Status.FAILED], Status.EXPECTED_FAILURE, Status.CRASHED, Status.TIMED_OUT]
        )
        message = (
            f"sample {draw.randrange(9)}: Tensor-likes are not close! Mismatched elements: "
            f"{draw.randrange(1, 90)} / 100; greatest absolute difference: {draw.random():.4f} at "
            f"index ({draw.randrange(10)},)"
        )
    return Verdict(entry, check, dtype, status, draw.randrange(1, 11), draw.random() / 50, message)


def _as_opinfo(base: str) -> str:
    for prefix in ("linalg_", "fft_", "special_"):
        if base.startswith(prefix):
            return base.replace("_", ".", 1)
    return base
