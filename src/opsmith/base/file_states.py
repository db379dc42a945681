"""The state of files and folders, by which a later process tells that none has changed, without reading them.

A file's state is its size, its number in the file system, and the times of its last change.  The system sets
the time of a change (``ctime``) itself: no program puts it back, as it may put back ``mtime``.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable

# Some file systems keep whole seconds, or two: within them a second change leaves the same time.
_COARSEST_SECONDS = 2


def state_of(paths: Iterable[str]) -> str:
    """A digest of the states of ``paths``, in this order; a path at which there is nothing has one too."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path}\0{_state(path)}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _state(path: str) -> str:
    try:
        status = os.stat(path)
    except OSError:
        return ""
    return f"{status.st_mode} {status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"


def are_older(paths: Iterable[str], moment: float) -> bool:
    """Whether all of ``paths`` changed before ``moment``, by so much that a later change has another time."""
    return all(_changed(path) < moment - _COARSEST_SECONDS for path in paths)


def _changed(path: str) -> float:
    try:
        return os.stat(path).st_ctime
    except OSError:
        return 0.0
