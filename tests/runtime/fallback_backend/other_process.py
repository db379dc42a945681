"""A process beside the test's, which calls functions for it.

What they are given, and what they return, is sent as programs send it.
"""

from __future__ import annotations

import contextlib
import functools
import traceback
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

SECONDS = 120


class OtherProcess:
    """A process by ``start_method``; what was kept there under a name is given to a function as ``kept``."""

    def __init__(self, start_method: str) -> None:
        context = get_context(start_method)
        if start_method == "forkserver":
            context.set_forkserver_preload(["torch", "opsmith.runtime.load"])
        self.connection, there = context.Pipe()
        self.process: Any = context.Process(target=_obey, args=(there,), daemon=True)  # type: ignore[attr-defined]
        self.process.start()
        there.close()

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls ``function(kept, *arguments)`` there and returns its result; its error is raised here."""
        self.tell(function, *arguments)
        return self.answer()

    def tell(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Starts a call."""
        self.connection.send((function, arguments))

    def answer(self) -> Any:
        """The result of the call that was started."""
        if not self.connection.poll(SECONDS):
            raise TimeoutError("the other process does not answer")
        error, answer = self.connection.recv()
        if error is not None:
            raise error
        return answer

    def end(self) -> None:
        """Kills it."""
        self.process.kill()
        self.process.join(SECONDS)
        self.connection.close()


def _obey(connection: Connection) -> None:
    kept: dict[str, Any] = {}
    with contextlib.suppress(EOFError, OSError):
        while True:
            try:
                function, arguments = connection.recv()
                answer = functools.partial(function, kept, *arguments)()
                function = arguments = None
                connection.send((None, answer))
                answer = None
            except (EOFError, OSError):
                raise
            except Exception as error:
                traceback.clear_frames(error.__traceback__)
                connection.send((error.with_traceback(None), None))
