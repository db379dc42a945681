"""``opsmith fuzz``: programs that do not differ, wrong kernels that they find, what is shrunk."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor

import opsmith
from command import run_opsmith
from opsmith.conformance.fuzzing.draw import draw_program
from opsmith.conformance.fuzzing.judge import Difference, first_difference
from opsmith.conformance.fuzzing.operators import reason_left_out, signatures
from opsmith.conformance.fuzzing.program import Leaf, Program, Ref, Step
from opsmith.conformance.fuzzing.shrink import shrunk
from opsmith.conformance.protocol import Board
from opsmith.schema import GENERATED, read_catalogue

pytestmark = pytest.mark.isolated

WRONG = Path(__file__).with_name("wrong_kernels.py")


@pytest.fixture(scope="module")
def sim() -> opsmith.LoadedBackend:
    sim = opsmith.load("sim")

    @sim.kernel("sinh.out", dtypes=[torch.float32])
    def even(self: Tensor, *, out: Tensor) -> Tensor:
        return out.copy_(self.abs().exp().sub_(self.abs().neg().exp()).div_(2))

    return sim


def fuzz(*arguments: str, status: int) -> tuple[dict[str, Any], str]:
    done = run_opsmith("fuzz", *arguments, "--json")
    assert done.returncode == status, done.stdout + done.stderr
    *printed, summary = done.stdout.splitlines()
    return json.loads(summary), "\n".join(printed)


def test_programs_of_a_fixed_seed_do_not_differ() -> None:
    summary, printed = fuzz("--programs", "150", "--seed", "8", "-j", "2", status=0)
    assert (summary["programs"], summary["differing"], summary["classes"]) == (150, 0, [])
    assert summary["steps"] > 1000 and len(summary["operators"]) > 600
    assert "150 programs, " in printed and "; 0 programs differ, in 0 classes" in printed


def test_wrong_kernels_and_crashes_are_found_and_shown(tmp_path: Path) -> None:
    output = tmp_path / "findings.json"
    declared = tmp_path / "expected_failures.yaml"
    declared.write_text(
        "expected_failures:\n"
        "  - {operators: [trunc*], checks: [fuzz], dtypes: [float32], reason: its kernel reads address 0}\n"
        "  - {operators: [abs*], checks: [fuzz], dtypes: [float16], reason: another dtype}\n"
    )
    summary, printed = fuzz(
        *("--programs", "120", "--seed", "5", "-j", "2"),
        *("--kernels", str(WRONG), "-o", str(output), "--expected-failures", str(declared)),
        status=1,
    )
    kinds = {(each["operator"].rstrip("_"), each["kind"]) for each in summary["classes"]}
    assert ("abs", "values") in kinds or ("absolute", "values") in kinds, kinds
    written = json.loads(output.read_text())
    expected = {
        (each["operator"].partition(".")[0].rstrip("_"), each["kind"])
        for each in written["expected_findings"]
    }
    assert expected == {("trunc", "crashed")}
    assert f", {len(written['expected_findings'])} as expected; " in printed
    found = written["findings"]
    assert len(found) == summary["differing"]
    # The program that is printed runs, without the wrong kernel here, and shows both sides.
    shown = next(each["program"] for each in summary["classes"] if each["kind"] == "values")
    assert shown in printed
    done = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True)
    assert {line.split()[0] for line in done.stdout.splitlines()} >= {"cpu", "sim"}


def test_what_differs_is_shrunk_to_a_program_that_says_so(sim: opsmith.LoadedBackend) -> None:
    x, s0, s1 = Ref("x"), Ref("s0"), Ref("s1")
    program = Program(
        {
            "x": Leaf(torch.float32, (1.0, -2.0, 0.5), (2, 3), (1, 2), 1, requires_grad=True),
            "y": Leaf(torch.float64, (3.0,), (3,)),
        },
        (
            Step("s0", "add.Tensor", (x, Ref("y")), (("alpha", 2),)),
            Step("s1", "transpose.int", (x, 0, -1)),
            Step("s2", "mul.Tensor", (s0, s0)),
            Step("s3", "sinh", (s1,)),
            Step("s4", "neg", (Ref("s3"),)),
        ),
    )
    found = first_difference(program, "sim")
    assert found is not None
    assert (found.operator, found.kind, found.step) == ("sinh", "values", 3)
    tried: list[tuple[Program, Difference, Program]] = []
    small, found = shrunk(program, found, "sim", tries=lambda *attempt: tried.append(attempt))
    assert small in [each for _, _, each in tried] and tried[-1][:2] == (small, found)
    comment = f"{found.operator}, {found.kind}:\n{found.text}"
    assert small.text("sim", "sim", comment) == (
        """\
# sinh, values:
# result 0 differs by 2
import torch
from math import inf, nan
import opsmith

opsmith.load("sim")


def shown(value):
    if not isinstance(value, torch.Tensor):
        return [*map(shown, value)] if isinstance(value, (list, tuple)) else value
    return value.cpu(), value.dtype, value.stride(), value.requires_grad, value._version


for device in "cpu", "sim":
    a0 = torch.tensor([-2.0], dtype=torch.float32, device=device)
    try:
        s3 = torch.ops.aten.sinh.default(a0)
        print(device, shown(s3))
    except Exception as error:
        print(device, repr(error))
    print(device, *map(shown, (a0,)))
"""
    )


def test_expanded_tensors_go_on_with_the_numbers_of_the_cpu(sim: opsmith.LoadedBackend) -> None:
    """Of two results that go into one tensor either may be the last, and a later step does not differ."""
    x, y, matrix = Ref("x"), Ref("y"), Ref("matrix")
    program = Program(
        {
            "matrix": Leaf(torch.float32, (2.0, 1.0, 1.0, 3.0), (3, 2, 2), (0, 2, 1)),
            "x": Leaf(torch.float32, (1.0,) * 10, (3, 2, 2), (0, 6, 3)),
            "y": Leaf(torch.float32, (7.0,) * 12, (3, 2, 2)),
        },
        (
            Step("s0", "linalg_lu.out", (matrix,), (("P", x), ("L", y), ("U", y))),
            Step("s1", "slice.Tensor", (x, 0, 0, 2)),
            Step("s2", "neg", (y,)),
        ),
    )
    assert first_difference(program, "sim") is None


def test_what_a_worker_has_noted_is_left_behind_with_the_step(tmp_path: Path) -> None:
    board = Board(tmp_path / "board")
    board.note(b"abs")
    board.at(3, on_device=True)
    assert Board(tmp_path / "board").read() == (3, True, b"abs")
    board.note(b"")
    board.at(0, on_device=False)
    assert Board(tmp_path / "board").read() == (0, False, b"")


def test_a_program_is_the_same_whoever_draws_it() -> None:
    Random(1).random()
    torch.manual_seed(3)
    once = [draw_program(11, index) for index in (4, 9)]
    torch.manual_seed(7)
    again = [draw_program(11, index) for index in (9, 4)]
    assert once == again[::-1]
    assert once[0] != once[1] and once[0] != draw_program(12, 4)


def test_every_operator_is_drawn_or_left_out_with_a_reason() -> None:
    drawn = {signature.operator for each in signatures().values() for signature in each}
    assert len(drawn) > 1400
    written = [
        operator
        for operator in read_catalogue().operators.values()
        if operator.namespace == "aten" and GENERATED not in operator.tags
    ]
    assert {each.name for each in written if not reason_left_out(each)} == drawn
