"""Where the cache is and how it is written; :mod:`opsmith.build.cache` says what lies in it."""

from __future__ import annotations

import functools
import hashlib
import os
import pwd
import secrets
import time
import warnings
from contextlib import suppress
from pathlib import Path

from opsmith.base.trusted_files import Fault, fault_of
from opsmith.errors import FileUntrusted

VARIABLE = "OPSMITH_CACHE_DIR"

_ONE_DAY = 24 * 3600


class CacheWarning(UserWarning):
    """The cache that was asked for is not trusted, and another is used."""


def cache_root() -> Path:
    """The cache directory: ``OPSMITH_CACHE_DIR``, or ``opsmith`` in the user's own, as XDG has it.

    One that :mod:`opsmith.base.trusted_files` does not trust is left alone, with a warning.  The user's own
    takes its place, in the variable too: for drivers, and for the processes that this one starts.  Raises
    :class:`~opsmith.errors.FileUntrusted` where no cache is trusted.
    """
    xdg = os.path.expanduser(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    wanted = os.environ.get(VARIABLE) or os.path.join(xdg, "opsmith")
    return _trusted(Path(wanted).absolute(), Path(xdg, "opsmith").absolute())


@functools.cache
def _trusted(wanted: Path, own: Path) -> Path:
    """``wanted``, or else ``own``, or else the folder in the home that the system knows."""
    if (fault := _fault_in(wanted)) is None:
        return wanted
    with suppress(KeyError):  # a container's user
        for other in (own, Path(pwd.getpwuid(os.geteuid()).pw_dir, ".cache", "opsmith")):
            if other != wanted and _fault_in(other) is None:
                warnings.warn_explicit(
                    f"{_refusal(wanted, fault)}; {other} is used in its place\n"
                    f"  remedy: {_remedy(fault)}",
                    CacheWarning,
                    filename=str(wanted),
                    lineno=0,
                )
                os.environ[VARIABLE] = str(other)
                return other
    raise FileUntrusted(_refusal(wanted, fault), remedy=_remedy(fault))


def _refusal(root: Path, fault: Fault) -> str:
    return f"the cache {root} is not used: {fault.why}"


def _remedy(fault: Fault) -> str:
    return f"{fault.remedy}; or set {VARIABLE} to a folder of your own"


def _fault_in(root: Path) -> Fault | None:
    """The fault of the cache ``root``, or of a folder in it."""
    if fault := fault_of(root):
        return fault
    try:
        folders = [entry.path for entry in os.scandir(root) if entry.is_dir()]
    except OSError:  # nothing is there yet, or nothing that can be read
        return None
    return next((fault for folder in folders if (fault := fault_of(Path(folder)))), None)


def make_folder(folder: Path) -> None:
    """Creates ``folder``, and those above it, for this user alone.  Raises OSError.

    In the cache, with the rights of the folder that it is in: root may have made that for others to read.
    """
    if folder.is_dir():
        return
    make_folder(folder.parent)
    with suppress(FileExistsError):  # another process is as quick
        folder.mkdir(0o700)
        if cache_root() in folder.parents:
            folder.chmod(folder.parent.stat().st_mode & 0o7777)


def replace_file(path: Path, content: bytes) -> None:
    """Writes ``path``, of the cache, so that it is either as before or whole; raises OSError.

    Others may read it as the umask and its folder say: a cache may be shared.
    """
    make_folder(path.parent)
    temporary = path.with_name(f".tmp-{secrets.token_hex(8)}")
    try:
        with temporary.open("xb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def mark_used(*paths: Path) -> None:
    """Notes that the cache's entries ``paths`` were of use today, so that :func:`prune` keeps them."""
    now = time.time()
    for path in paths:
        # A cache that was made for us and cannot be written is still of use.
        with suppress(OSError):
            if now - path.stat().st_mtime > _ONE_DAY:
                os.utime(path)


def sealed(content: bytes) -> bytes:
    """``content`` with a digest before it, by which :func:`unsealed` tells whether it is what was written."""
    return hashlib.sha256(content).hexdigest().encode() + b"\n" + content


def unsealed(text: bytes) -> bytes:
    """The content of a :func:`sealed` text; raises ValueError where it is not as it was."""
    digest, _, content = text.partition(b"\n")
    if digest != hashlib.sha256(content).hexdigest().encode():
        raise ValueError("not what was written")
    return content
