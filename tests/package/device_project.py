"""A vendor's project: the device of docs/start/device.md in a Python package, with one kernel in Python."""

from __future__ import annotations

import re
from pathlib import Path

DEVICE = Path(__file__).resolve().parents[2] / "docs" / "start" / "device.md"

_TITLED = re.compile(r'^```\w+ title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)

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
    package = folder / "src" / "mychip"
    package.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(pyproject)
    (package / "__init__.py").write_text(INIT)
    (package / "kernels_in_python.py").write_text(KERNELS)
    for name, text in _files().items():
        (package / name).write_text(text)
    return package / "backend.yaml"


def write_folder(folder: Path) -> Path:
    """Writes what the page has to ``folder``, without any project around it; returns its ``backend.yaml``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in _files().items():
        (folder / name).write_text(text)
    return folder / "backend.yaml"


def _files() -> dict[str, str]:
    found = _TITLED.findall(DEVICE.read_text(encoding="utf-8"))
    return dict(found)
