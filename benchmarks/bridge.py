"""Costs of the bridge: one kernel on lean tensors beside the same for at::Tensor, in instructions.

Callgrind counts those of whole Python calls, on four elements and on a thousand, with all three variants
around the out kernel (``bridge_backends/``).
"""

from __future__ import annotations

from pathlib import Path

from _callgrind import counted_on, instructions

from opsmith.observe.benchmarks.measurements import measured, report

BACKENDS = Path(__file__).parent / "bridge_backends"
GOAL = 1.15
SIZES = (4, 1000)
STATEMENTS = {
    "out": ("torch.add(x{n}, y{n}, out=z{n})", "add.out"),
    "functional": ("x{n}.add(y{n})", "add.Tensor"),
    "in-place": ("x{n}.add_(y{n})", "add_.Tensor"),
}


def counts(backend: str) -> dict[str, float]:
    """The instructions of each statement on the backend, in a process of its own."""
    made = "; ".join(
        f"x{n}, y{n}, z{n} = (torch.zeros({n}).to({backend!r}) for _ in range(3))" for n in SIZES
    )
    setup = f"import opsmith; opsmith.load({str(BACKENDS / backend / 'backend.yaml')!r}); {made}"
    return instructions(setup, [text.format(n=n) for text, _ in STATEMENTS.values() for n in SIZES])


def main() -> None:
    peer, ours = counted_on(BACKENDS, ("aten", "lean"), counts)
    report(
        "instructions of a Python call: a kernel on lean tensors against one on at::Tensor",
        [
            measured(
                f"{variant}, {n} elements",
                "instructions",
                [ours[statement.format(n=n)]],
                [peer[statement.format(n=n)]],
                GOAL,
                operator=operator,
            )
            for variant, (statement, operator) in STATEMENTS.items()
            for n in SIZES
        ],
    )


if __name__ == "__main__":
    main()
