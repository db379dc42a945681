"""The cost of what opsmith writes beside the same written by hand, in instructions of a whole Python call.

Two backends with the same arithmetic (``variants_backends/lean.h``): in ``generated`` opsmith writes all
variants but one, in ``by_hand`` an engineer wrote each, and for ``sub_`` PyTorch's own generator would
have.  Callgrind counts the instructions of ``x.add_(y)`` and others on four elements, in both, through
torch.utils.benchmark.
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

BACKENDS = Path(__file__).parent / "variants_backends"
CALLS = 2000
STATEMENTS = {
    "derived in-place, from out": ("x.add_(y)", 1.03),
    "derived functional, from out": ("x.add(y)", 1.05),
    "structured functional": ("x.mul(y)", 1.05),
    "structured in-place": ("x.mul_(y)", 1.05),
    "structured out": ("torch.mul(x, y, out=z)", 1.05),
    "derived in-place / functional and copy": ("x.sub_(y)", 0.4),
}


def instructions(backend: str, statement: str) -> float:
    """Callgrind's instructions of one call of ``statement`` on the backend."""
    setup = f"""
        import torch
        import opsmith
        opsmith.load({str(BACKENDS / backend / "backend.yaml")!r})
        x, y, z = (torch.zeros(4).to({backend!r}) for _ in range(3))
        for _ in range(10):
            {statement}
    """
    timer = Timer(statement, setup)
    counted = timer.collect_callgrind(CALLS, collect_baseline=False)
    return counted.counts(denoise=False) / CALLS


def main() -> None:
    if shutil.which("valgrind") is None:
        sys.exit("variants.py needs valgrind: apt-get install valgrind")
    # torch.utils.benchmark starts whatever `python` it finds first.
    os.environ["OPSMITH_SIM_MEMORY"] = "256MiB"  # valgrind has little address space to give
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for backend in ("by_hand", "generated"):
        build_backend(BACKENDS / backend / "backend.yaml", progress=lambda step: print(step))
    measurements = []
    # A process loads one backend, so each measurement has one of its own.
    with get_context("spawn").Pool(2, maxtasksperchild=1) as pool:
        for name, (statement, goal) in STATEMENTS.items():
            peers = [(backend, statement) for backend in ("generated", "by_hand")]
            ours, peer = pool.starmap(instructions, peers, chunksize=1)
            measurements.append(
                Measurement(name, f"{ours:,.0f}", f"{peer:,.0f}", ours / peer, goal)
            )
    report("instructions of a Python call: generated against by hand", measurements)


if __name__ == "__main__":
    main()
