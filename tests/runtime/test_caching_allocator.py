"""opsmith_caching_allocator.h alone: ``caching_allocator.cpp`` runs it over a device that it makes up."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from opsmith.build.csrc import PUBLIC_HEADERS
from opsmith.build.toolchain import find_compiler

SOURCE = Path(__file__).with_name("caching_allocator.cpp")
CASES = re.findall(r"CASE\((\w+)\),", SOURCE.read_text())

pytestmark = pytest.mark.compiles


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("caching_allocator")
    program = folder / "caching_allocator"
    subprocess.run(
        [
            *find_compiler(folder).command,
            *("-std=c++20", "-Wall", "-Wextra", "-Werror", "-pthread"),
            *("-I", PUBLIC_HEADERS, SOURCE, "-o", program),
        ],
        check=True,
        timeout=300,
    )
    return program


@pytest.mark.parametrize("case", CASES)
def test_the_allocator(program: Path, case: str) -> None:
    done = subprocess.run([program, case], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
