"""Releases of torch that no environment has, fetched by pip to compile against.

A build reads headers, ``torchgen`` and the names of libraries, and never imports torch: the wheel alone is
enough, without the gigabytes of packages that one for CUDA requires.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from opsmith.base.cache_folder import make_folder
from opsmith.build.progress import OnProgress, Progress
from opsmith.errors import EnvironmentUnusable
from opsmith.schema import requirement


def fetched_torch(release: str, cache: Path, progress: OnProgress) -> Path:
    """The folder of ``cache`` that holds torch ``release``, ``2.14``, as ``PYTHONPATH`` takes it.

    pip fetches it where it is missing, some 500 MB, from the index that it is configured for.  Raises
    :class:`~opsmith.errors.EnvironmentUnusable` where it cannot.
    """
    wanted = requirement(release)
    folder = cache / "torch" / f"{release}-{sys.implementation.cache_tag}"
    if (folder / "torch").is_dir():
        return folder
    progress(Progress(f"fetching {wanted}"))
    make_folder(folder.parent)
    with tempfile.TemporaryDirectory(dir=folder.parent) as made:
        command = [sys.executable, "-m", "pip", "install", "--no-deps", "--target", made, wanted]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
        if done.returncode:
            lines = (done.stderr.strip() or done.stdout.strip()).splitlines()[-4:]
            raise EnvironmentUnusable(
                f"pip could not fetch {wanted}:" + "".join(f"\n  {line}" for line in lines),
                remedy="name an environment that has it: --python VENV/bin/python",
            )
        unfinished = Path(made) / "finished"
        unfinished.mkdir()
        for name in ("torch", "torchgen", *_metadata(Path(made))):
            shutil.move(Path(made) / name, unfinished / name)
        try:
            os.replace(unfinished, folder)
        except OSError:
            if not (folder / "torch").is_dir():  # else another process was faster
                raise
    return folder


def _metadata(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("torch-*.dist-info")]
