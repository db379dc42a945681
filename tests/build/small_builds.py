"""Small libraries, and their building by the machine's own compiler or by a script that takes its place."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from opsmith.build.compile import Compilation
from opsmith.build.progress import Progress
from opsmith.build.shared_library import SharedLibrary
from opsmith.build.toolchain import Compiler
from opsmith.errors import OpsmithError

ANSWER = 'extern "C" __attribute__((visibility("default"))) int answer() { return 42; }\n'

PATIENCE = 30
"""Seconds.  A loaded machine may take its time; a defect takes for ever."""


def until(is_so: Callable[[], bool]) -> None:
    """Waits until something is so; fails where it never is."""
    end = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)


def built(library: SharedLibrary, compiler: Compiler, cache: Path) -> tuple[Path, list[str]]:
    """The library's path, and the steps that building it took."""
    steps: list[Progress] = []
    compilation = Compilation([library], compiler, cache)
    compilation.run(cache / "logs" / "test.log", steps.append)
    return compilation.outputs()[0], [str(step) for step in steps if step.done]


def failure(library: SharedLibrary, compiler: Compiler, cache: Path) -> OpsmithError:
    """The error with which building ``library`` ends."""
    with pytest.raises(OpsmithError) as caught:
        built(library, compiler, cache)
    return caught.value


def library_of(*sources: Path, **options: tuple[Path, ...]) -> SharedLibrary:
    return SharedLibrary("test", sources, **options)


def written(path: Path, text: str) -> Path:
    path.write_text(dedent(text))
    return path


def script(path: Path, text: str) -> Path:
    """An executable shell script."""
    written(path, f"#!/bin/sh\n{dedent(text)}").chmod(0o755)
    return path
