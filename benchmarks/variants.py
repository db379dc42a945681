"""The cost of what opsmith writes beside the same written by hand, in instructions of a whole Python call.

Two backends with the same arithmetic (``variants_backends/lean.h``): in ``generated`` opsmith writes all
variants but one, in ``by_hand`` an engineer wrote each, and for ``sub_`` PyTorch's own generator would
have.  Callgrind counts the instructions of ``x.add_(y)`` and others on four elements, in both.  Beside
the copying ``sub_`` the wrappers alone are compared, without what a call costs whose kernel does nothing.
"""

from __future__ import annotations

from pathlib import Path

from _callgrind import counted_on, instructions

from opsmith.observe.benchmarks.measurements import measured, report

BACKENDS = Path(__file__).parent / "variants_backends"
GOALS = {
    "derived in-place, from out": ("x.add_(y)", "add_.Tensor", 1.03),
    "derived functional, from out": ("x.add(y)", "add.Tensor", 1.05),
    "structured functional": ("x.mul(y)", "mul.Tensor", 1.05),
    "structured in-place": ("x.mul_(y)", "mul_.Tensor", 1.05),
    "structured out": ("torch.mul(x, y, out=z)", "mul.out", 1.05),
}
COPYING = "x.sub_(y)"
NOTHING = "x.xlogy_(y)"


def counts(backend: str) -> dict[str, float]:
    """The instructions of each statement on the backend, in a process of its own."""
    setup = f"""
    import opsmith
    opsmith.load({str(BACKENDS / backend / "backend.yaml")!r})
    x, y, z = (torch.zeros(4).to({backend!r}) for _ in range(3))
    """
    statements = [statement for statement, _, _ in GOALS.values()]
    return instructions(setup, [*statements, COPYING, NOTHING])


def main() -> None:
    peer, ours = counted_on(BACKENDS, ("by_hand", "generated"), counts)
    report(
        "instructions of a Python call: generated against by hand",
        [
            *(
                measured(
                    f"{name}: {statement}",
                    "instructions",
                    [ours[statement]],
                    [peer[statement]],
                    goal,
                    operator=operator,
                )
                for name, (statement, operator, goal) in GOALS.items()
            ),
            measured(
                f"derived in-place / functional and copy: {COPYING}, the wrapper alone",
                "instructions",
                [ours[COPYING] - ours[NOTHING]],
                [peer[COPYING] - peer[NOTHING]],
                0.4,
                operator="sub_.Tensor",
            ),
        ],
    )


if __name__ == "__main__":
    main()
