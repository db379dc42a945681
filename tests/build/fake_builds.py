"""A backend ``chip`` that is built in a second: its compiler only notes what it is given.

For what a build does with files; nothing that it makes can be loaded.
"""

from __future__ import annotations

import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

from opsmith.build.backend import BuiltBackend, build_backend

_COMPILER = """#!/bin/sh
case "$*" in
  *--version*) echo "fake 1.0"; exit;;
  *-fsyntax-only*|*-dumpmachine*) exit;;
esac
case " $* " in *" -c "*) sleep ${{FAKE_SECONDS:-0}}; echo object >> {log};; *) echo library >> {log};; esac
while test $# -gt 0; do
  case "$1" in -o) echo "made as $2" > "$2";; esac
  shift
done
"""
_MANIFEST = """\
library: chiplib
sources: [kernels.cpp]
kernels:
  - {op: relu, kernel_name: chip::relu}
"""


@dataclass(frozen=True)
class FakeBuild:
    """A description, the cache that it is built into, and what takes the compiler's place."""

    description: Path
    cache: Path
    compiler: Path

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a process that builds it."""
        return {"OPSMITH_CACHE_DIR": str(self.cache), "CXX": str(self.compiler), "MAX_JOBS": "1"}

    def build(self) -> tuple[BuiltBackend, list[str]]:
        """The result and the reports of :func:`build_backend`, in a process that has these variables."""
        steps: list[str] = []
        built = build_backend(self.description, progress=lambda step: steps.append(str(step)))
        return built, steps

    def made(self) -> list[str]:
        """The compiler's work since this was last asked: each ``object`` and ``library``."""
        log = _log(self.compiler)
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return lines

    def copied(self, folder: Path) -> FakeBuild:
        """The same description and cache, in ``folder``."""
        return FakeBuild(
            shutil.copytree(self.description.parent, folder / "chip") / self.description.name,
            shutil.copytree(self.cache, folder / "cache"),
            self.compiler,
        )


def fake_build(folder: Path, driver: str = "{sources: [driver.c]}") -> FakeBuild:
    """A backend in ``folder``, of which nothing is built."""
    compiler = folder / "c++"
    compiler.write_text(_COMPILER.format(log=shlex.quote(str(_log(compiler)))))
    compiler.chmod(0o755)
    chip = folder / "chip"
    chip.mkdir()
    (chip / "driver.c").touch()
    (chip / "kernels.cpp").touch()
    (chip / "kernels.yaml").write_text(_MANIFEST)
    description = chip / "backend.yaml"
    description.write_text(
        f"backend: chip\ndriver: {driver}\nlibraries: [kernels.yaml]\nfallback: cpu\n"
    )
    return FakeBuild(description, folder / "cache", compiler)


def _log(compiler: Path) -> Path:
    return compiler.with_name("made")
