"""Files that are safe to load, and regular files read whole: whoever opens what another could have put there.

What a process loads can do all that its user can.  So it belongs to that user or to root, and nobody else may
write it, nor replace it in one of the folders above it, as OpenSSH's StrictModes has it for keys.  The
environment that Python itself runs from is trusted as it is, and so are folders that root names in
:data:`VOUCHED`.  An environment variable vouches for nothing.
"""

from __future__ import annotations

import errno
import functools
import grp
import io
import os
import pwd
import re
import shlex
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from opsmith.errors import FileUntrusted, Location

if TYPE_CHECKING:
    import ctypes

VOUCHED = Path("/etc/opsmith/trusted-folders")
"""Root's own file: a folder a line, trusted with all that is in it, whoever owns it; `#` begins a comment."""

MOST_BYTES = 1 << 30
"""The size of the largest file that is read where no program or library is expected."""
MOST_BYTES_OF_BINARIES = 1 << 36

_NAMES_LIBRARY = re.compile("OPSMITH_COLLECTIVES|OPSMITH_[A-Z]+_LIBRARY")
_ROOT = 0
# No user's own group has such a number, but for the system's own users: Debian's `staff`, of /usr/local.
_SYSTEM_GROUPS = range(100)
_MOST_LINKS = 40
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
}


# ---- reading


def open_regular(path: Path) -> BinaryIO:
    """The file ``path``, opened at once: no pipe is waited for.  Raises OSError where it is none."""
    # Without O_NONBLOCK it would wait here for who writes to a pipe.
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    kind = stat.S_IFMT(os.fstat(number).st_mode)
    if kind == stat.S_IFREG:
        return os.fdopen(number, "rb")
    os.close(number)
    if kind == stat.S_IFDIR:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, f"it is {_KINDS[kind]}, not a file", str(path))


def read_regular(path: Path, most: int = MOST_BYTES) -> bytes:
    """The content of the file ``path``, of ``most`` bytes at most.  Raises OSError."""
    with open_regular(path) as file:
        if (size := os.fstat(file.fileno()).st_size) > most:
            reason = f"it has {size:,} bytes, more than {most:,}"
            raise OSError(errno.EFBIG, reason, str(path))
        return file.read()


def read_text(path: Path, encoding: str = "utf-8") -> str:
    """As :func:`read_regular`, a text whose lines end as Python has it.  Raises UnicodeDecodeError too."""
    return io.IncrementalNewlineDecoder(None, True).decode(read_regular(path).decode(encoding))


def read_trusted(path: Path) -> bytes:
    """The content of ``path``, which is to be believed: of the cache.  Raises OSError where it is not."""
    if fault := fault_of(path):
        raise OSError(errno.EPERM, fault.why, str(path))
    return read_regular(path)


# ---- loading


def check_trusted(path: Path, location: Location | None = None) -> None:
    """Raises :class:`~opsmith.errors.FileUntrusted` where ``path`` is not safe to load."""
    if fault := fault_of(path):
        raise FileUntrusted(
            f"{path} is not loaded: {fault.why}", location=location, remedy=fault.remedy
        )


def open_library(path: Path | str, mode: int | None = None) -> ctypes.CDLL:
    """The shared library ``path``, opened once it is known to be safe.

    Raises :class:`~opsmith.errors.FileUntrusted`, or OSError as ctypes does.
    """
    import ctypes

    check_trusted(Path(path))
    check_named_libraries()  # it may open them in turn
    return ctypes.CDLL(str(path), ctypes.DEFAULT_MODE if mode is None else mode)


def check_named_libraries() -> None:
    """Raises :class:`~opsmith.errors.FileUntrusted` for a library that a variable names by its path."""
    for variable, named in os.environ.items():
        if _NAMES_LIBRARY.fullmatch(variable) and "/" in named and (fault := fault_of(Path(named))):
            raise FileUntrusted(
                f"{variable} names {named}, which is not loaded: {fault.why}", remedy=fault.remedy
            )


@dataclass(frozen=True)
class Fault:
    """Why something is not trusted, and what mends that."""

    why: str
    remedy: str


def fault_of(path: Path) -> Fault | None:
    """Why ``path``, a file or a folder, is not trusted; None where it is, and where nothing is there."""
    return _fault_on_the_way(str(path.absolute()), os.geteuid())


# The folders that this process has found sound, with the user as whom: each is asked for once.
_sound: set[tuple[int, str]] = set()


def _fault_on_the_way(place: str, user: int, links: int = 0) -> Fault | None:
    """The fault of a folder above ``place``, or of a link, or of what is there."""
    if (user, place) in _sound:
        return None
    folder = os.path.dirname(place)
    if folder != place and (fault := _fault_on_the_way(folder, user, links)):
        return fault
    try:
        status = os.lstat(place)
    except OSError:  # whoever opens it says why it cannot
        return None
    kind = stat.S_IFMT(status.st_mode)
    if kind not in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
        return Fault(f"{place} is {_KINDS[kind]}, not a file", f"rm {shlex.quote(place)}")
    fault = _fault(place, status, user)
    if fault and not _is_vouched_for(place):
        return fault
    if kind == stat.S_IFLNK and links < _MOST_LINKS:
        return _fault_on_the_way(os.path.join(folder, os.readlink(place)), user, links + 1)
    if kind == stat.S_IFDIR:
        _sound.add((user, place))
    return None


def _fault(place: str, status: os.stat_result, user: int) -> Fault | None:
    """Why what lies at ``place`` is not trusted by ``user``."""
    kind = stat.S_IFMT(status.st_mode)
    is_owned = status.st_uid in (_ROOT, user)
    # In a user namespace the folders that are root's may belong to another number.
    if not is_owned and not (kind == stat.S_IFDIR and status.st_uid == os.stat("/").st_uid):
        link = " -h" if kind == stat.S_IFLNK else ""
        us = "root" if user == _ROOT else f"{_user(user)} or root"
        return Fault(
            f"{place} belongs to {_user(status.st_uid)}, not to {us}",
            _remedy(f"chown{link} {_user(user)}", place, user, is_owned),
        )
    if kind == stat.S_IFLNK or (kind == stat.S_IFDIR and status.st_mode & stat.S_ISVTX):
        return None
    if status.st_mode & stat.S_IWOTH:
        return Fault(
            f"everybody may write to {place}",
            _remedy("chmod go-w", place, user, status.st_uid == user),
        )
    if status.st_mode & stat.S_IWGRP and not _is_private(
        status.st_gid, {_ROOT, user, status.st_uid}
    ):
        return Fault(
            f"the group {_group(status.st_gid)} may write to {place}",
            _remedy("chmod g-w", place, user, status.st_uid == user),
        )
    return None


def _remedy(command: str, place: str, user: int, is_owned: bool) -> str:
    """``command`` on ``place``, which ``user`` may run where it ``is_owned``, and what makes it needless."""
    sudo = "" if is_owned or user == _ROOT else "sudo "
    return (
        f"if you trust what is there: {sudo}{command} {shlex.quote(place)}; or let root name the folder in "
        f"{VOUCHED}"
    )


def _is_private(group: int, users: set[int]) -> bool:
    """Whether nobody but ``users`` is in ``group``, as far as the system tells.

    Debian, Ubuntu and Fedora give each user a group of the same name, and have new folders writable by it.
    """
    try:
        entry = grp.getgrgid(group)
        names = {pwd.getpwuid(each).pw_name for each in users}
    except KeyError:  # a container's user, which has no name
        return group in users
    is_own = entry.gr_name in names or (group in _SYSTEM_GROUPS and not _is_user(entry.gr_name))
    return is_own and names.issuperset(entry.gr_mem)


def _is_user(name: str) -> bool:
    try:
        return bool(pwd.getpwnam(name))
    except KeyError:
        return False


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _group(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


# ---- what is vouched for


def _is_vouched_for(place: str) -> bool:
    """Whether ``place`` is in a folder that is trusted as it is, or on the way to one."""
    return any(
        place == folder or place.startswith(f"{folder}/") or folder.startswith(f"{place}/")
        for folder in (*_environment(), *_named_by_root())
    )


@functools.cache
def _environment() -> frozenset[str]:
    """The folders of this Python and of opsmith: their code runs in this process already."""
    folders = (sys.prefix, sys.base_prefix, str(Path(__file__).parents[2]))
    return frozenset(map(os.path.realpath, folders)) - {"/"}


@functools.cache
def _named_by_root() -> frozenset[str]:
    """The folders in :data:`VOUCHED`, where that file is root's alone."""
    try:
        for place in (VOUCHED.parent, VOUCHED):
            status = os.lstat(place)
            if status.st_uid != _ROOT or status.st_mode & (stat.S_IWOTH | stat.S_IWGRP):
                return frozenset()
        text = read_regular(VOUCHED).decode(errors="surrogateescape")
    except OSError:
        return frozenset()
    lines = (line.strip() for line in text.splitlines())
    return frozenset(
        os.path.realpath(line) for line in lines if line.startswith("/") and line != "/"
    )
