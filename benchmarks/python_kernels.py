"""The cost of calling a Python kernel, in instructions of a whole Python call on the device.

The same no-op functions are registered with ``backend.kernel`` and with ``torch.library``; callgrind
counts ``x.neg()`` and others on four elements.  What ``torch.library`` offers for a variant that has no
function of its own is a function around the functional one, so that is what its peer is.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from _callgrind import instructions

import opsmith
from opsmith.observe.benchmarks.measurements import measured, report

# At least 1.3 times cheaper.
GOAL = 1 / 1.3

# The statement and the goal of each measurement.
MEASURED = {
    "functional": ("x.neg()", GOAL),
    "two operands and a number": ("x.add(y)", GOAL),
    "in-place, derived from functional": ("x.relu_()", None),
    "functional, derived from out": ("x.mul(y)", None),
}
SETUP = """
import opsmith
backend = opsmith.load("sim")
x, y = torch.zeros(4).to("sim"), torch.zeros(4).to("sim")
def neg(self):
    return self
def add(self, other, *, alpha=1):
    return self
def relu(self):
    return self
def mul_out(self, other, *, out):
    pass
def relu_(self):
    return self.copy_(relu(self))
def mul(self, other):
    out = torch.empty_like(self)
    mul_out(self, other, out=out)
    return out
"""
OURS = """
backend.kernel("neg")(neg)
backend.kernel("add.Tensor")(add)
backend.kernel("relu")(relu)
backend.kernel("mul.out")(mul_out)
"""
# The warnings that it overrides compiled kernels are not ours to hide.
PEERS = """
library = torch.library.Library("aten", "IMPL")
library.impl("neg", neg, "PrivateUse1")
library.impl("add.Tensor", add, "PrivateUse1")
library.impl("relu_", relu_, "PrivateUse1")
library.impl("mul.Tensor", mul, "PrivateUse1")
"""


def counts(registration: str) -> dict[str, float]:
    """The instructions of each statement, in a process of its own."""
    return instructions(SETUP + registration, [statement for statement, _ in MEASURED.values()])


def main() -> None:
    # Builds what is missing, here where it is fast.
    opsmith.load("sim", progress=print).kernel("neg")(lambda self: self).remove()
    with ThreadPoolExecutor(2) as pool:
        ours, peers = pool.map(counts, (OURS, PEERS))
    report(
        "instructions of a Python call: a Python kernel by opsmith and by torch.library",
        [
            measured(
                f"{name}: {statement}", "instructions", [ours[statement]], [peers[statement]], goal
            )
            for name, (statement, goal) in MEASURED.items()
        ],
    )


if __name__ == "__main__":
    main()
