"""What a process writes when it ends, for the command that started it: one file for each process."""

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
        if os.getpid() != process:
            return
        unfinished = Path(folder) / f"{process}.tmp"
        unfinished.write_bytes(msgspec.json.encode(content()))
        unfinished.replace(unfinished.with_suffix(".json"))

    atexit.register(write)
