"""Files of processes for the command that started them: one for each process, whole or not at all."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec


def write_at_exit(folder: str, content: Callable[[], Any]) -> None:
    """Has this process write ``content()`` as JSON to ``<folder>/<pid>.json`` when it ends.

    A process that was forked off writes nothing: it has what its parent had until then.
    """
    process = os.getpid()

    def write() -> None:
        if os.getpid() == process:
            write_of_process(Path(folder), content())

    atexit.register(write)


def write_of_process(folder: Path, content: Any) -> None:
    """Writes ``content`` as JSON to ``<folder>/<pid>.json``, in the place of what stood there."""
    unfinished = folder / f"{os.getpid()}.tmp"
    unfinished.write_bytes(msgspec.json.encode(content))
    unfinished.replace(unfinished.with_suffix(".json"))
