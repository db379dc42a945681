"""An environment into which a vendor's package can be installed: it has what the tests have.

Packages are installed for real, by ``pip``, but nothing is downloaded: what the tests' environment has
satisfies what they need, hatchling too.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import opsmith


def make_environment(folder: Path) -> dict[str, str]:
    """Makes a virtual environment in ``folder``; returns the variables of a process in it.

    ``python``, ``pip``, ``pytest`` and ``opsmith`` are its own.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    own = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    seen = [
        str(Path(opsmith.__file__).parents[1]),
        *(path for path in sys.path if "-packages" in path),
    ]
    (Path(own) / "tests.pth").write_text("".join(f"{path}\n" for path in seen))
    for command in ("opsmith", "pip", "pytest"):
        script = folder / "bin" / command
        script.write_text(f'#!/bin/sh\nexec {python} -m {command} "$@"\n')
        script.chmod(0o755)
    import ninja

    (folder / "bin" / "ninja").symlink_to(Path(ninja.BIN_DIR) / "ninja")
    left_out = {"OPSMITH_FORK_SERVER", "TORCH_DEVICE_BACKEND_AUTOLOAD"}
    return {
        **{name: value for name, value in os.environ.items() if name not in left_out},
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # which is pip's way of turning isolation off
        "PIP_NO_INDEX": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
