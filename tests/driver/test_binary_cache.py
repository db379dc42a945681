"""Compiled kernels on disk, as drivers keep them: what another user could have written is compiled again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from opsmith.build.csrc import PACKAGE
from opsmith.build.toolchain import find_compiler

SHARED = PACKAGE / "drivers" / "shared"
# Stores a binary where there is none, and says what it has found.
PROGRAM = """
#include "binary_cache.h"
#include <cstdio>
int main() {
  const auto found = driver_parts::cached_binary("kind", "key");
  std::puts(found ? found->c_str() : "nothing");
  if (!found) {
    driver_parts::cache_binary("kind", "key", "binary");
  }
}
"""

pytestmark = pytest.mark.compiles


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("binary_cache")
    (folder / "main.cpp").write_text(PROGRAM)
    compiled = [
        *(*find_compiler(folder).command, "-std=c++20", "-Wall", "-Wextra", "-Werror"),
        *("-I", SHARED, folder / "main.cpp", SHARED / "binary_cache.cpp", "-o", folder / "program"),
    ]
    subprocess.run(compiled, check=True, timeout=300)
    return folder / "program"


def give_away(path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root gives files to another user")
    os.chown(path, 4242, 4242)


def replace(path: Path, by: Callable[[Path], None]) -> None:
    path.unlink()
    by(path)


@pytest.mark.parametrize(
    "spoil",
    [
        give_away,
        lambda path: give_away(path.parent),
        lambda path: path.chmod(0o666),
        lambda path: path.parent.chmod(0o777),
        lambda path: replace(path, os.mkfifo),
        lambda path: replace(path, lambda link: link.symlink_to("/dev/zero")),
        lambda path: os.truncate(path, 1 << 40),
        lambda path: os.truncate(path, 10),
    ],
)
def test_only_ones_own_files_are_taken(
    spoil: Callable[[Path], None], program: Path, tmp_path: Path
) -> None:
    def found() -> str:
        environment = {"OPSMITH_CACHE_DIR": str(tmp_path / "cache")}
        return subprocess.run(
            [program], env=environment, capture_output=True, text=True, timeout=60, check=True
        ).stdout.strip()

    assert [found(), found()] == ["nothing", "binary"]
    (file,) = (tmp_path / "cache" / "kernels" / "kind").iterdir()
    folders = (tmp_path / "cache", file.parent.parent, file.parent)
    assert {path.stat().st_mode & 0o777 for path in folders} == {0o700}
    spoil(file)
    assert found() == "nothing"
