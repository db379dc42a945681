"""A user's program, run as a process of its own: what it did is written to files by the runtime inside it.

The commands that look at a program set the runtime's environment variables and read the files after
the program has ended, so that it behaves as without them: its output, its status, Ctrl-C.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from opsmith.errors import FileMissing
from opsmith.runtime.autoload import TORCH_VARIABLE
from opsmith.runtime.autoload import VARIABLE as AUTOLOAD_VARIABLE

_Report = TypeVar("_Report")


@dataclass(frozen=True)
class Program:
    """A script, or a module as ``python -m`` runs it, with its arguments."""

    name: str
    arguments: tuple[str, ...] = ()
    is_module: bool = False

    @property
    def command(self) -> list[str]:
        how = ["-m"] if self.is_module else []
        return [sys.executable, *how, self.name, *self.arguments]

    def run(self, environment: Mapping[str, str], *, backend: str | None) -> int:
        """Runs the program to its end, with ``backend`` loaded for it, if given.

        Returns its exit status, 128 and the signal's number where a signal ended it.  ``environment``
        is added to this process's.  Raises :class:`~opsmith.errors.FileMissing`.
        """
        if not self.is_module and not Path(self.name).is_file():
            raise FileMissing(
                f"there is no program `{self.name}`",
                remedy="name a Python file, or a module after -m; options of opsmith stand before it",
            )
        # It comes by `import torch`, whatever the user has said of packages that load themselves.
        loading = {} if backend is None else {AUTOLOAD_VARIABLE: backend, TORCH_VARIABLE: "1"}
        status = _run(self.command, {**os.environ, **environment, **loading})
        return status if status >= 0 else 128 - status

    def run_reporting(
        self,
        variable: str,
        report: type[_Report],
        *,
        backend: str | None,
        environment: Mapping[str, str] | None = None,
    ) -> tuple[int, list[_Report]]:
        """Runs the program as :meth:`run` does: its status, and what each of its processes has written.

        ``variable`` tells the runtime in them the folder for their files, each a ``report``.
        """
        with tempfile.TemporaryDirectory(prefix="opsmith-program-") as folder:
            status = self.run({**(environment or {}), variable: folder}, backend=backend)
            return status, [
                msgspec.json.decode(path.read_bytes(), type=report)
                for path in sorted(Path(folder).glob("*.json"))
            ]


def _run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    interrupted = False
    with subprocess.Popen(command, env=environment) as process:
        while True:
            try:
                status = process.wait()
                break
            except KeyboardInterrupt:
                interrupted = True  # the terminal has sent it to the program too, which decides
    # Python forgets what interrupted it when much is done at exit, as the counts are written.
    return -signal.SIGINT if interrupted and status else status
