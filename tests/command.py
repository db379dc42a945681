"""The ``opsmith`` command, as a user types it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any


def run_opsmith(
    *arguments: object, env: dict[str, str] | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Runs ``opsmith`` on a terminal of 120 columns; ``env`` is added to this process's."""
    return subprocess.run(
        [Path(sys.executable).with_name("opsmith"), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "COLUMNS": "120", **(env or {})},
        preexec_fn=obey_interrupts,
        **options,
    )


def obey_interrupts() -> None:
    """For ``preexec_fn``: where tests run in the background, what they start ignores SIGINT too."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
