"""`examples/chip-async/`: an asynchronous driver in C keeps its contract, and its device computes."""

from __future__ import annotations

from pathlib import Path

from command import run_example, run_opsmith

EXAMPLE = Path(__file__).parents[2] / "examples" / "chip-async"


def test_the_driver_keeps_its_contract() -> None:
    done = run_opsmith("driver", "check", EXAMPLE / "backend.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "events" not in done.stdout and "pinned" not in done.stdout  # as in "not made: …"


def test_its_device_computes_later_and_says_what_failed() -> None:
    *lines, error = run_example("chip-async")
    assert lines == [
        "losses: those of the CPU",
        "strided operands: as on the CPU",
        "the call returns before the work is done: True",
        "a launch that will fail returns 0",
    ]
    assert "a program was launched with an address that is not in the memory of chip" in error
