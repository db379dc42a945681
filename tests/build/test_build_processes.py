"""Several processes that build into one cache at once, and such that are ended in the middle of it.

Each build is a process of its own, whose compiler notes what it is given and, for a source that is called
slow, waits until the test lets it go on.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from fork_server import obey_interrupts
from small_builds import PATIENCE, until

BUILD = """
import sys
from pathlib import Path
from opsmith.build.cache import usable_cache
from opsmith.build.compile import Compilation
from opsmith.build.shared_library import SharedLibrary
from opsmith.build.toolchain import find_compiler
cache = usable_cache()
name, *sources = sys.argv[1:]
library = SharedLibrary(name, tuple(map(Path, sources)))
compilation = Compilation([library], find_compiler(cache), cache)
compilation.run(cache / "logs" / "test.log", lambda step: print(step, flush=True))
print(compilation.outputs()[0])
"""
# Its work beside compiling comes after the log's line, so that whoever has read that finds it at work.
COMPILER = """#!/bin/sh
source=$(for each; do case "$each" in *.cpp) basename "$each";; esac; done)
case " $* " in
  *" -c "*) echo "$source" >> {log};;
  *" -shared "*) echo link >> {log};;
esac
case "$source" in *slow*) while ! test -e {gates}/"$source"; do sleep 0.05; done;; esac
exec {compiler} "$@"
"""


class Workshop:
    """A cache, a folder of sources, and the processes that build these into it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.cache, self.gates = folder, folder / "cache", folder / "gates"
        self.log, self.compiler = folder / "log", folder / "c++"
        self.started: list[subprocess.Popen[str]] = []
        self.gates.mkdir()
        self.log.touch()
        places = {"log": shlex.quote(str(self.log)), "gates": shlex.quote(str(self.gates))}
        self.compiler.write_text(COMPILER.format(compiler="c++", **places))
        self.compiler.chmod(0o755)

    def source(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def quick_and_slow(self) -> tuple[Path, Path]:
        return self.source("quick.cpp", QUICK), self.source("slow.cpp", exported("slow", 1))

    def start(self, library: str, *sources: Path) -> subprocess.Popen[str]:
        """A process that builds ``library``, one file at a time."""
        environment = {"OPSMITH_CACHE_DIR": str(self.cache), "CXX": str(self.compiler)}
        process = subprocess.Popen(
            [sys.executable, "-c", BUILD, library, *map(str, sources)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment, "MAX_JOBS": "1"},
            preexec_fn=obey_interrupts,
        )
        self.started.append(process)
        return process

    def let_on(self, name: str) -> None:
        """Ends the waiting of those that compile the slow source ``name``."""
        (self.gates / name).touch()

    def compiled(self) -> list[str]:
        """The files that the compiler was given so far, in order; the linker's work is ``link``."""
        return self.log.read_text().splitlines()

    def programs(self) -> list[str]:
        """The programs that run in the cache's work folder: ninja, compilers, and what they run."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if os.readlink(process / "cwd").startswith(str(self.cache)):
                    found.append((process / "comm").read_text().strip())
            except OSError:
                pass  # it has ended, or is another user's
        return found


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Workshop]:
    made = Workshop(tmp_path)
    yield made
    for process in made.started:
        process.kill()
        process.wait()
    until(lambda: made.programs() == [])


def result(process: subprocess.Popen[str]) -> list[str]:
    """The lines that a build has written, the library's path last, after it ended well."""
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, out + err
    return out.splitlines()


def exported(name: str, value: int) -> str:
    return f'extern "C" __attribute__((visibility("default"))) int {name}() {{ return {value}; }}\n'


# Longer than what is slow: it is compiled first.
QUICK = exported("quick", 7) + "// " + "long " * 100 + "\n"


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_build_that_is_ended_leaves_nothing_running_and_is_continued(
    sent: signal.Signals, workshop: Workshop
) -> None:
    sources = workshop.quick_and_slow()
    build = workshop.start("test", *sources)
    until(lambda: workshop.compiled() == ["quick.cpp", "slow.cpp"])
    assert "ninja" in workshop.programs()
    os.kill(build.pid, sent)
    build.communicate(timeout=PATIENCE)
    until(lambda: workshop.programs() == [])
    workshop.let_on("slow.cpp")
    lines = result(workshop.start("test", *sources))
    assert lines[1:-1] == ["[1/2] compiling slow.cpp", "[2/2] linking libtest.so"]
    assert ctypes.CDLL(lines[-1]).quick() == 7
    assert list((workshop.cache / "work").iterdir()) == []


def test_builds_of_two_libraries_run_side_by_side(workshop: Workshop) -> None:
    common = workshop.source("common.cpp", QUICK)
    first = workshop.start(
        "first", common, workshop.source("slow_one.cpp", exported("of_first", 1))
    )
    until(lambda: "slow_one.cpp" in workshop.compiled())
    second = workshop.start("second", common, workshop.source("two.cpp", exported("of_second", 2)))
    # It ends while the first one is held.
    lines = result(second)
    assert not any("waited for" in line for line in lines)
    assert ctypes.CDLL(lines[-1]).of_second() == 2
    workshop.let_on("slow_one.cpp")
    assert ctypes.CDLL(result(first)[-1]).of_first() == 1
    assert Counter(workshop.compiled())["common.cpp"] == 1
    assert list((workshop.cache / "work").iterdir()) == []


@pytest.mark.parametrize("names", [("first", "second"), ("same", "same")], ids=["two", "one"])
def test_what_two_builds_need_is_compiled_by_one_of_them(
    names: tuple[str, str], workshop: Workshop
) -> None:
    common = workshop.source("slow_common.cpp", exported("common", 3))
    first = workshop.start(names[0], common)
    until(lambda: workshop.compiled() == ["slow_common.cpp"])
    second = workshop.start(names[1], common)
    assert second.stdout is not None
    assert second.stdout.readline() == ("another build makes 1 of the files, and is waited for\n")
    workshop.let_on("slow_common.cpp")
    for build in (first, second):
        assert ctypes.CDLL(result(build)[-1]).common() == 3
    assert workshop.compiled() == ["slow_common.cpp"] + ["link"] * len(set(names))
    assert list((workshop.cache / "work").iterdir()) == []


def test_another_build_takes_over_from_one_that_is_killed(workshop: Workshop) -> None:
    sources = workshop.quick_and_slow()
    builds = [workshop.start("test", *sources)]
    until(lambda: workshop.compiled() == ["quick.cpp", "slow.cpp"])
    builds += [workshop.start("test", *sources) for _ in range(2)]
    for build in builds[1:]:
        assert build.stdout is not None
        assert "is waited for" in build.stdout.readline()
    builds[0].kill()
    until(lambda: workshop.compiled() == ["quick.cpp", "slow.cpp", "slow.cpp"])
    workshop.let_on("slow.cpp")
    first, second = (result(build)[-1] for build in builds[1:])
    assert first == second
    assert ctypes.CDLL(first).slow() == 1
    assert workshop.compiled() == ["quick.cpp", "slow.cpp", "slow.cpp", "link"]
    assert list((workshop.cache / "work").iterdir()) == []
