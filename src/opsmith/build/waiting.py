"""Progress on stderr of a build that somebody waits for: nothing for a second, then its steps.

For :func:`opsmith.load`, ``OPSMITH_AUTOLOAD`` and the first Python kernel, whose callers have not asked for
a build.  On a terminal one line changes; elsewhere a line is written now and then, and at the end.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from contextlib import AbstractContextManager, nullcontext
from typing import TextIO

from opsmith.build.progress import OnProgress, Progress

_SILENT_SECONDS = 1.0
_SECONDS_BETWEEN_LINES = 15.0
_SECONDS_BETWEEN_CHANGES = 0.2


def told(progress: OnProgress | None, what: str) -> AbstractContextManager[OnProgress]:
    """Who is told of a build of ``what``: ``progress``, or where nobody asked to be, whoever reads stderr."""
    return nullcontext(progress) if progress else ShownBuild(what)


class ShownBuild:
    """Called with each step of a build of ``what``; ``with`` ends the line that it shows."""

    def __init__(self, what: str, stream: TextIO | None = None) -> None:
        self._what = what
        # A process without a console may have no stderr.
        self._stream: TextIO | None = stream or sys.stderr
        self._is_terminal = _is_terminal(self._stream)
        self._began = time.monotonic()
        self._shown_at = 0.0
        self._step: Progress | None = None
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def __call__(self, step: Progress) -> None:
        """Notes that the build is at ``step``."""
        with self._lock:
            self._step = step
        if self._thread is None:
            # A step may take half a minute: what is shown does not wait for the next one.
            self._thread = threading.Thread(target=self._show_now_and_then, daemon=True)
            self._thread.start()

    def __enter__(self) -> ShownBuild:
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()
        if self._shown_at:
            seconds = time.monotonic() - self._began
            ended = "stopped" if error[0] else "done"
            self._write(f"opsmith: building {self._what}: {ended} after {seconds:.0f} s", last=True)

    def _show_now_and_then(self) -> None:
        wait = _SILENT_SECONDS
        while not self._done.wait(wait):
            wait = _SECONDS_BETWEEN_CHANGES
            now = time.monotonic()
            between = 0.0 if self._is_terminal else _SECONDS_BETWEEN_LINES
            if self._shown_at and now - self._shown_at < between:
                continue
            self._shown_at = now
            with self._lock:
                step = self._step
            self._write(f"opsmith: building {self._what} ({now - self._began:.0f} s): {step}")

    def _write(self, text: str, last: bool = False) -> None:
        if self._stream is None:
            return
        try:
            if self._is_terminal:
                # A line that is broken into two cannot be taken back.
                text = text[: shutil.get_terminal_size().columns - 1]
                self._stream.write(f"\r\x1b[2K{text}" + ("\n" if last else ""))
            else:
                self._stream.write(f"{text}\n")
            self._stream.flush()
        except (AttributeError, OSError, ValueError):
            # Whoever read it has gone: no reason to stop the build.
            self._done.set()


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except (AttributeError, ValueError):  # what has taken its place, or a closed one
        return False
