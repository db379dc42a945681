"""What the library ``optimized`` looks like to the linker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import fork_server
import opsmith
from instruction_sets import SUPPORTED
from opsmith.build.cache import usable_cache
from opsmith.build.lean import instruction_sets
from opsmith.build.toolchain import find_compiler

VECTORISED = sorted((Path(opsmith.__file__).parent / "kernels").glob("*/simd/*.cpp"))


EXP = "import opsmith, torch; opsmith.load('sim'); torch.ones(3, device='sim').exp()"


@pytest.mark.usefixtures("sim")
def test_an_instruction_set_that_the_processor_lacks_is_refused() -> None:
    environment = {**os.environ, "OPSMITH_ISA": "avx10"}
    done = fork_server.run([sys.executable, "-c", EXP], env=environment)
    assert done.stderr.splitlines()[-1] == (
        "RuntimeError: aten::exp: its kernel `opsmith::optimized::native::exp_out` (library optimized) "
        f"refuses the call: OPSMITH_ISA is `avx10`, and this processor has {', '.join(SUPPORTED)}: "
        "set it to one of these, or unset it"
    )


@pytest.mark.needs("binutils")
@pytest.mark.parametrize("name", instruction_sets())
@pytest.mark.parametrize(
    "source", VECTORISED, ids=lambda path: f"{path.parent.parent.name}-{path.stem}"
)
def test_no_code_of_an_instruction_set_is_visible_outside_its_namespace(
    source: Path, name: str, tmp_path: Path
) -> None:
    """Else the linker could keep the wide one of two equal inline functions, and an old processor run it."""
    compiler = find_compiler(usable_cache()).command
    output = tmp_path / "object.o"
    options = ["-std=c++17", "-O1", "-fPIC", f"-DOPSMITH_ISA={name}", *instruction_sets()[name]]
    subprocess.run([*compiler, *options, "-c", source, "-o", output], check=True)
    listed = subprocess.run(
        ["nm", "-C", "--defined-only", "--extern-only", output],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    symbols = [line.split(maxsplit=2)[2] for line in listed.splitlines()]
    assert symbols
    namespace = f"opsmith::{source.parent.parent.name}::{name}::"
    assert [symbol for symbol in symbols if namespace not in symbol] == []
