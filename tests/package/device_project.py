"""A vendor's project: a device in a Python package, with one kernel in Python."""

from __future__ import annotations

import shutil
from pathlib import Path

CHIP = Path(__file__).with_name("chip")

PYPROJECT = """\
[project]
name = "mychip-torch"
version = "1.2"
description = "A chip"
license = "MIT"
requires-python = ">=3.10"
dependencies = ["numpy"]

[project.entry-points."torch.backends"]
mychip = "mychip:autoload"
"""
INIT = """\
from pathlib import Path


def autoload():
    import opsmith

    opsmith.autoload(Path(__file__).with_name("backend.yaml"))
"""
KERNELS = """\
import opsmith

device = opsmith.load("mychip")


@device.kernel("neg.out")
def neg(self, *, out):
    out.copy_(0 - self)
    return out
"""


def write_project(folder: Path, pyproject: str = PYPROJECT) -> Path:
    """Writes the project to ``folder``; returns its ``backend.yaml``."""
    package = Path(shutil.copytree(CHIP, folder / "src" / "mychip"))
    (folder / "pyproject.toml").write_text(pyproject)
    (package / "__init__.py").write_text(INIT)
    (package / "kernels_in_python.py").write_text(KERNELS)
    return package / "backend.yaml"


def write_folder(folder: Path) -> Path:
    """Copies the description to ``folder``, without any project around it; returns its ``backend.yaml``."""
    return Path(shutil.copytree(CHIP, folder)) / "backend.yaml"
