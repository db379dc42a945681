"""The cost of a derived variant beside a hand-written one, in instructions of a whole Python call.

Two backends with the same arithmetic: ``handwritten`` registers three kernels as they are, ``derived``
has the out kernel only.  Callgrind counts the instructions of ``x.add_(y)`` and others on four elements,
in both, through torch.utils.benchmark.
"""

from __future__ import annotations

import os
import shutil
import sys
from multiprocessing import get_context
from pathlib import Path

from _report import Measurement, report
from torch.utils.benchmark import Timer

from opsmith.build.backend import build_backend

BACKENDS = Path(__file__).parent / "dispatch_backends"
CALLS = 2000
STATEMENTS = {
    "add_ (in-place)": ("x.add_(y)", 1.05),
    "add (functional)": ("x.add(y)", 1.10),
}


def instructions(backend: str, statement: str) -> float:
    """Callgrind's instructions of one call of ``statement`` on the backend."""
    setup = f"""
        import torch
        import opsmith
        opsmith.load({str(BACKENDS / backend / "backend.yaml")!r})
        x, y = (torch.zeros(4).to({backend!r}) for _ in range(2))
        for _ in range(10):
            {statement}
    """
    timer = Timer(statement, setup)
    counted = timer.collect_callgrind(CALLS, collect_baseline=False)
    return counted.counts(denoise=False) / CALLS


def main() -> None:
    if shutil.which("valgrind") is None:
        sys.exit("dispatch.py needs valgrind: apt-get install valgrind")
    # torch.utils.benchmark starts whatever `python` it finds first.
    os.environ["OPSMITH_SIM_MEMORY"] = "256MiB"  # valgrind has little address space to give
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for backend in ("handwritten", "derived"):
        build_backend(BACKENDS / backend / "backend.yaml", progress=lambda step: print(step))
    measurements = []
    # A process loads one backend, so each measurement has one of its own.
    with get_context("spawn").Pool(2, maxtasksperchild=1) as pool:
        for name, (statement, goal) in STATEMENTS.items():
            peers = [(backend, statement) for backend in ("derived", "handwritten")]
            ours, peer = pool.starmap(instructions, peers, chunksize=1)
            measurements.append(
                Measurement(name, f"{ours:,.0f}", f"{peer:,.0f}", ours / peer, goal)
            )
    report("instructions of a Python call: derived against hand-written", measurements)


if __name__ == "__main__":
    main()
