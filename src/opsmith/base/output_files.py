"""A file that a user asked for, written so that it is either as before or whole.

Called by the commands with an ``--output``; refuses folders, and makes none.  Only a regular file is ever
replaced: what a device or a pipe is given it is given in place.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from opsmith.errors import OutputRejected


def check_writable(path: Path) -> None:
    """Raises :class:`~opsmith.errors.OutputRejected` where :func:`write_output` could not write ``path``.

    For before long work whose result would be lost.
    """
    target = _target(path)
    try:
        kind = _kind(target)
    except OSError as error:
        raise _rejection(path, os.strerror(error.errno or errno.EIO)) from None
    reason = _OBSTACLES.get(kind)
    if reason is None and not target.parent.is_dir():
        reason = errno.ENOENT
    written = [target] * (kind != 0)
    if kind in _REPLACED:
        written.append(target.parent)
    if reason is None and not all(os.access(each, os.W_OK) for each in written):
        reason = errno.EACCES
    if reason is not None:
        raise _rejection(path, os.strerror(reason))


def write_output(path: Path, content: bytes | Iterable[bytes]) -> None:
    """Writes ``content``, or its pieces, to ``path``; an interrupted write leaves what was there before.

    A link stays one, and what it points to is written.  A device or a named pipe is written in place, a pipe
    once somebody reads from it.  Raises :class:`~opsmith.errors.OutputRejected`.
    """
    check_writable(path)
    target = _target(path)
    try:
        if _kind(target) not in _REPLACED:
            # Without O_CREAT: a device that has gone must not leave a file in its place.
            _write(os.open(target, os.O_WRONLY), content)
            return
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        try:
            _write(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), content)
            if _kind(target) not in _REPLACED:
                raise _rejection(path, "it has become something else than a file meanwhile")
            os.replace(temporary, target)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
    except OSError as error:
        raise _rejection(path, error.strerror or str(error)) from None


# The types of a path whose place another file can take: a file, or nothing.
_REPLACED = frozenset({stat.S_IFREG, 0})
_OBSTACLES = {
    stat.S_IFDIR: errno.EISDIR,
    stat.S_IFLNK: errno.ELOOP,
    stat.S_IFSOCK: errno.ENXIO,
}


def _target(path: Path) -> Path:
    """The target of ``path``, links followed; still a link only where they lead back to themselves."""
    return Path(os.path.realpath(path))


def _kind(target: Path) -> int:
    """The type of ``target`` as ``stat`` names it; 0 where there is nothing."""
    try:
        return stat.S_IFMT(os.lstat(target).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return 0


def _write(descriptor: int, content: bytes | Iterable[bytes]) -> None:
    with open(descriptor, "wb") as file:
        file.writelines([content] if isinstance(content, bytes) else content)


def _rejection(path: Path, reason: str) -> OutputRejected:
    return OutputRejected(
        f"`{path}` cannot be written: {reason}", remedy="name a file in a folder of yours"
    )
