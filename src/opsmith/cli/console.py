"""How commands talk: one rich console for people, plain lines for programs, errors on one screen."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import msgspec
import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment

from opsmith.base.output_files import write_output
from opsmith.build.progress import OnProgress
from opsmith.errors import OpsmithError, OutputRejected

# Control characters, which a terminal obeys, in a text of a file or an error, and how they are shown.
_OBEYED = {*range(32), *range(127, 160)} - {ord("\t"), ord("\n")}
_SHOWN = {code: f"\\x{code:02x}" for code in _OBEYED}


class _PlainTexts(Console):
    """A console that shows the control characters of texts in the place of sending them to the terminal."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            text = segment.text
            if not segment.is_control and not text.isprintable():
                text = text.translate(_SHOWN)
            yield Segment(text, segment.style, segment.control)


out = _PlainTexts()
err = _PlainTexts(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="End with one line of JSON, for programs.")]


def print_json(value: Any) -> None:
    """Writes ``value`` as one line of JSON to standard output."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")


def write_json(path: Path, value: Any) -> None:
    """Writes ``value`` as JSON to ``path``, whole or not at all.

    Raises :class:`~opsmith.errors.OutputRejected`.
    """
    write_output(path, msgspec.json.encode(value) + b"\n")


def many(count: int, what: str) -> str:
    """``1 call``, ``2,000 calls``."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def fail(error: OpsmithError, *, status: int = 1) -> NoReturn:
    """Prints ``error`` and ends the process with ``status``."""
    where = f"[bold]{escape(str(error.location))}[/]: " if error.location else ""
    err.print(f"[bold red]error[/]: {where}{escape(error.message)}", soft_wrap=True)
    if error.remedy:
        err.print(f"  [bold green]remedy[/]: {escape(error.remedy)}", soft_wrap=True)
    raise typer.Exit(status)


# A write fails so, and names no file; all others of opsmith's are caught where they are made.
_UNWRITTEN = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


@contextmanager
def written_output() -> Iterator[None]:
    """Writes all of standard output at the end.  Raises :class:`OutputRejected` where that cannot be."""
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:  # a process may begin without
                sys.stdout.flush()
    except OSError as error:
        if error.errno not in _UNWRITTEN or error.filename is not None:
            raise
        # Or Python tries once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise OutputRejected(
            f"standard output cannot be written: {error.strerror}",
            remedy="send it to a file on a disk with room",
        ) from None


@contextmanager
def shown_progress() -> Iterator[OnProgress]:
    """A callback that shows a build's steps on standard error: a live line, or plain lines in a log."""
    if not err.is_terminal:
        yield lambda step: err.print(escape(str(step)), soft_wrap=True, highlight=False)
        return
    with err.status("building") as status:
        yield lambda step: status.update(escape(str(step)))
