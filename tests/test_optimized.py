"""The library ``optimized``, once for each instruction set that this processor has.

See ``optimized_backend/check_optimized.py``; what the library looks like to the linker is tested here.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import opsmith
from apart import run_apart
from opsmith.build.cache import usable_cache
from opsmith.build.lean import instruction_sets
from opsmith.build.toolchain import find_compiler

SOURCES = Path(opsmith.__file__).parent / "kernels" / "optimized"
FLAGS = {
    "baseline": set(),
    "avx2": {"avx2", "fma"},
    "avx512": {"avx512f", "avx512bw", "avx512_vnni"},
}


def supports(name: str) -> bool:
    described = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    flags = next((line for line in described.splitlines() if line.startswith("flags")), "")
    return FLAGS[name] <= set(flags.split())


@pytest.mark.parametrize("name", instruction_sets())
def test_each_instruction_set_computes_as_the_cpu_does(name: str) -> None:
    if not supports(name):
        pytest.skip(f"this processor has no {name}")
    run_apart("optimized_backend/check_optimized.py", OPSMITH_ISA=name)


@pytest.mark.parametrize("name", instruction_sets())
@pytest.mark.parametrize("source", sorted(SOURCES.glob("simd/*.cpp")), ids=lambda path: path.stem)
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
    assert [symbol for symbol in symbols if f"opsmith::optimized::{name}::" not in symbol] == []
