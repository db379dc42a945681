"""`opsmith explain --compile`: a program's graphs, what became of each, and where they were broken."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import msgspec
import pytest

from command import run_opsmith

pytestmark = pytest.mark.compiles

PROGRAM = dedent(
    """
    import sys
    import torch
    import opsmith
    opsmith.load("sim")

    @torch.compile
    def scaled(x, y):
        z = (x * 2 + y).relu().exp()
        print("between", *sys.argv[1:])
        return z.sum(-1)

    scaled(torch.ones(3, 4, device="sim"), torch.ones(4, device="sim"))
    sys.exit(3)
    """
)


def test_graphs_and_where_they_break(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = run_opsmith(
        "explain",
        "--compile",
        program,
        "one",
        "two",
        env={"OPSMITH_HOST_WINDOW": "on"},
        timeout=600,
    )
    assert done.returncode == 3, done.stderr
    lines = done.stdout.replace(f"{tmp_path}/", "").splitlines()
    assert lines[:-1] == [
        "between one two",
        "program.py ran on sim: 2 graphs, 1 graph break",
        "inductor: cpp, since the driver has a host window, on which Inductor's C++ runs",
        "program.py:9  4 operators: 1 fused kernel",
        "program.py:11  1 operator: 1 fused kernel",
    ]
    assert lines[-1].startswith("program.py:10  graph break: ") and "`print`" in lines[-1]


def test_graphs_that_are_not_compiled(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = run_opsmith(
        "explain", "--json", "--compile", program, env={"OPSMITH_HOST_WINDOW": "off"}, timeout=600
    )
    found = msgspec.json.decode(done.stdout.splitlines()[-1])
    assert (found["status"], found["inductor"]) == (3, "eager-kernels")
    assert found["graphs"][0] == {
        "place": f"{program}:9",
        "operators": 4,
        "kernels": 0,
        "called": {
            f"aten.{name}": 1
            for name in ("mul.Tensor", "add.Tensor", "relu.default", "exp.default")
        },
        "reason": "no library of the backend has a fused kernel",
    }


def test_what_cannot_be_explained(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    done = run_opsmith("explain", "--compile", program)
    assert (done.returncode, done.stderr) == (
        1,
        f"error: there is no program `{program}`\n"
        "  remedy: name a Python file, or a module after -m; options of opsmith stand before it\n",
    )
    program.write_text("print(1)")
    done = run_opsmith("explain", "--compile", program)
    assert (done.returncode, done.stderr) == (
        1,
        f"error: `{program}` loaded no backend, so nothing was counted\n"
        '  remedy: call opsmith.load("sim") in it, or have one loaded for it: opsmith explain --compile '
        f"--backend sim {program}\n",
    )
    assert "name one operator, or a program after --compile" in run_opsmith("explain").stderr


def test_a_backend_for_a_program_that_loads_it_too(tmp_path: Path) -> None:
    """The program's own call is the first, and imports torch, which is told to load the same backend."""
    program = tmp_path / "program.py"
    program.write_text(
        'import opsmith; opsmith.load("sim"); import torch; print(torch.ones(1, device="sim") + 1)'
    )
    done = run_opsmith("fallbacks", "--backend", "sim", program)
    assert done.stdout.startswith("tensor([2.], device='sim:0')\n"), done.stderr
