"""The cost of calling a kernel of Triton's through its operator, above that of launching it.

One kernel is named in the three ways that ``abi: triton`` knows, compiled for this processor and called on
64 elements.  A launcher should cost 5 us more than a call of it; in the other two forms opsmith launches, and
what it does before is counted with the call.
"""

from __future__ import annotations

from pathlib import Path

from _turns import microseconds_in_turns

import opsmith
from opsmith.observe.benchmarks.measurements import measured, report

FOLDER = Path(__file__).parent / "triton_backend"


def main() -> None:
    opsmith.load(str(FOLDER / "backend.yaml"), progress=print)
    import torch

    from opsmith.driver.named import imported

    negate = imported(FOLDER / "kernels.py").negate
    x, out = torch.ones(64, device="sim"), torch.empty(64, device="sim")
    calls = {
        "a launcher": lambda: torch.neg(x, out=out),
        "a function on pointers": lambda: torch.erf(x, out=out),
        "a function of elements": lambda: torch.exp2(x, out=out),
    }
    taken = microseconds_in_turns({**calls, "launch": lambda: negate(x, out=out)}, 7, 0.2)
    launch = taken["launch"]
    report(
        "microseconds of an operator's call above its kernel's launch",
        [
            measured(
                name,
                "us",
                [ours - peer for ours, peer in zip(taken[name], launch, strict=True)],
                goal=5.0 if name == "a launcher" else None,
                is_absolute=True,
            )
            for name in calls
        ],
    )


if __name__ == "__main__":
    main()
