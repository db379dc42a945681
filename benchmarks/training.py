"""The demo's training step on sim beside the CPU's, and how soon a second demo trains.

Both devices train in turn, epoch by epoch, in one process; the figures are medians over all steps
after the first epoch.
"""

from __future__ import annotations

import subprocess
import sys
import time

import opsmith
from opsmith.observe.benchmarks.measurements import measured, report

_START = """
import opsmith
loaded = opsmith.load("sim")
from opsmith.cli.demonstration.training import _Trainer, digits
trainer = _Trainer(loaded.name, *digits())
trainer._step(trainer.images[:64], trainer.labels[:64])
"""


def main() -> None:
    loaded = opsmith.load("sim", progress=lambda step: print(step))

    from opsmith.cli.demonstration.training import compare

    comparison = compare("sim", loaded.plan, 8, lambda epoch, device, cpu: None)
    ours, peer = comparison.device.warm_steps_ms, comparison.cpu.warm_steps_ms
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", _START], check=True)
    first = time.perf_counter() - start
    report(
        "the demo on sim; peer: the CPU",
        [
            measured("training step", "ms", ours, peer, 1.4),
            measured("second start to first step", "s", [first], goal=5.0),
        ],
    )


if __name__ == "__main__":
    main()
