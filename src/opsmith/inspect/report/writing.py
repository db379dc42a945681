"""A file that a user asked for, written so that it is either as before or whole."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from opsmith.errors import OutputRefused


def check_writable(path: Path, option: str) -> None:
    """Raises :class:`~opsmith.errors.OutputRefused` where :func:`write_output` could not write ``path``.

    Called before anything is gathered; ``option`` is where the user named the file.
    """
    if path.is_dir():
        raise _refused(path, option, "it is a folder")
    if not path.parent.is_dir():
        raise _refused(path, option, f"there is no folder {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise _refused(path, option, "permission denied")


def write_output(path: Path, content: bytes, option: str) -> None:
    """Writes ``content`` to ``path``; an interrupted write leaves what was there before.

    Raises :class:`~opsmith.errors.OutputRefused`.
    """
    check_writable(path, option)
    target = path.resolve()  # a link stays one
    try:
        if target.exists() and not target.is_file():
            target.write_bytes(content)  # a device or a pipe must not be replaced by a file
            return
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        try:
            temporary.write_bytes(content)
            os.replace(temporary, target)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
    except OSError as error:
        raise _refused(path, option, error.strerror or str(error)) from None


def _refused(path: Path, option: str, reason: str) -> OutputRefused:
    return OutputRefused(
        f"`{path}` cannot be written: {reason}", remedy=f"name another file with {option}"
    )
