"""A file that a user asked for, written so that it is either as before or whole.

Called by the commands with an ``--output``; refuses folders, and makes none.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from opsmith.errors import OutputRefused


def check_writable(path: Path) -> None:
    """Raises :class:`~opsmith.errors.OutputRefused` where :func:`write_output` could not write ``path``.

    For before long work whose result would be lost.
    """
    if path.is_dir():
        raise _refused(path, os.strerror(errno.EISDIR))
    if not path.parent.is_dir():
        raise _refused(path, os.strerror(errno.ENOENT))
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise _refused(path, os.strerror(errno.EACCES))


def write_output(path: Path, content: bytes | Iterable[bytes]) -> None:
    """Writes ``content``, or its pieces, to ``path``; an interrupted write leaves what was there before.

    Raises :class:`~opsmith.errors.OutputRefused`.
    """
    check_writable(path)
    target = path.resolve()  # a link stays one
    try:
        if target.exists() and not target.is_file():
            _write(target, content)  # a device or a pipe must not be replaced by a file
            return
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        try:
            _write(temporary, content)
            os.replace(temporary, target)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
    except OSError as error:
        raise _refused(path, error.strerror or str(error)) from None


def _write(path: Path, content: bytes | Iterable[bytes]) -> None:
    with path.open("wb") as file:
        file.writelines([content] if isinstance(content, bytes) else content)


def _refused(path: Path, reason: str) -> OutputRefused:
    return OutputRefused(
        f"`{path}` cannot be written: {reason}", remedy="name a file in a folder of yours"
    )
