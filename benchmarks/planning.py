"""The time to plan every ATen operator: for sim, from nothing and from the cache, and with more kernels.

The peer is torchgen's parse of native_functions.yaml alone.  Each figure is the median of five
processes, because a second plan in one process would find the schemas parsed.  The plans that grow have
kernels for so many operators of ATen, or custom operators of four signatures in turn; the plan for sim has
parsed ATen's schemas before.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from opsmith.observe.benchmarks.measurements import measured, report

ROUNDS = 5
KERNELS = 10, 1000, 2000
CUSTOM_OPERATORS = 1000, 5000, 20_000
_CUSTOM = (
    'func: "my::scale{n}(Tensor self, float factor=2.0) -> Tensor", meta: {{same_as: self}}',
    'func: "my::add{n}.out(Tensor self, Tensor b, *, Tensor(a!) out) -> Tensor(a!)", tags: [pointwise]',
    'func: "my::ends{n}(Tensor self, SymInt n) -> (Tensor, Tensor)", meta: "chip::ends_meta"',
    'func: "my::square{n}(Tensor self) -> Tensor", backward: "chip::back", meta: {{same_as: self}}',
)
_PLAN = """
import sys, time
from pathlib import Path
start = time.perf_counter()
from opsmith.plan import plan_backend
plan_backend(sys.argv[2], Path(sys.argv[1]))
print(time.perf_counter() - start)
"""
_PARSE = """
import time
start = time.perf_counter()
from opsmith.schema.catalogue import _native_functions
_native_functions()
print(time.perf_counter() - start)
"""


def seconds(script: str, *arguments: str) -> float:
    """The seconds that ``script`` prints, run in a process of its own."""
    command = [sys.executable, "-c", script, *arguments]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def described(folder: Path, entries: list[str]) -> Path:
    """A backend with a kernel for each of ``entries``, which begin those of its manifest."""
    folder.mkdir()
    kernels = "\n".join(f'  - {{{entry}, kernel_name: "chip::f"}}' for entry in entries)
    (folder / "kernels.yaml").write_text(f"library: chiplib\nkernels:\n{kernels}\n")
    path = folder / "backend.yaml"
    path.write_text("backend: chip\ndriver: sim\nlibraries: [kernels.yaml]\n")
    return path


def growing(folder: Path) -> dict[str, Path]:
    """Backends by what they have."""
    from opsmith.schema import Composite, read_catalogue

    aten = read_catalogue().operators.values()
    names = [each.name for each in aten if each.composite is not Composite.IMPLICIT]
    backends = {
        f"kernels for {count:,} operators": described(
            folder / f"aten{count}", [f"op: {name}" for name in names[:count]]
        )
        for count in KERNELS
    }
    for count in CUSTOM_OPERATORS:
        entries = [_CUSTOM[n % len(_CUSTOM)].format(n=n) for n in range(count)]
        backends[f"{count:,} custom operators"] = described(folder / f"custom{count}", entries)
    return backends


def main() -> None:
    fresh, cached, parse = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        backends = growing(Path(folder))
        grown: dict[str, list[float]] = {name: [] for name in backends}
        for _ in range(ROUNDS):
            with tempfile.TemporaryDirectory() as cache:
                fresh.append(seconds(_PLAN, cache, "sim"))
                cached.append(seconds(_PLAN, cache, "sim"))
                for name, path in backends.items():
                    grown[name].append(seconds(_PLAN, cache, str(path)))
            parse.append(seconds(_PARSE))
    goals = {"20,000 custom operators": 3.0}
    report(
        "planning every ATen operator; peer: torchgen's parse",
        [
            measured("plan from nothing", "s", fresh, parse, 1.5, is_absolute=True),
            measured("plan from the cache", "s", cached, parse, 0.1, is_absolute=True),
            *(
                measured(f"{name}, planned", "s", rounds, goal=goals.get(name), is_absolute=True)
                for name, rounds in grown.items()
            ),
        ],
    )


if __name__ == "__main__":
    main()
