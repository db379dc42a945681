"""The folder of a running build, which goes with it: also where the build is killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from opsmith.base.cache_folder import make_folder


@contextmanager
def work_directory(cache: Path) -> Iterator[Path]:
    """A folder of the cache for one running build; those of builds that were killed are removed."""
    every = cache / "work"
    make_folder(every)
    with ExitStack() as held:
        with _without_dead(every):
            folder = Path(tempfile.mkdtemp(prefix="build-", dir=every))
            held.callback(os.close, _locked(folder / "lock"))
        held.callback(shutil.rmtree, folder, ignore_errors=True)
        yield folder
    with suppress(OSError), _without_dead(every):
        pass  # one that ran beside this one may have been killed


@contextmanager
def _without_dead(every: Path) -> Iterator[None]:
    """Removes the folders in ``every`` that no build holds, and keeps other builds from doing so meanwhile.

    A folder that is made and not locked yet would be taken for a dead one.
    """
    with ExitStack() as held:
        held.callback(os.close, _locked(every.with_name("work.lock"), wait=True))
        for folder in every.iterdir():
            with suppress(OSError), ExitStack() as ours:
                ours.callback(os.close, _locked(folder / "lock", is_needed=True))
                shutil.rmtree(folder, ignore_errors=True)
        yield


def _locked(path: Path, wait: bool = False, is_needed: bool = False) -> int:
    """A descriptor of ``path`` that holds its lock, until it is closed.

    Where the file system has no locks it holds none, unless one ``is_needed``: then OSError is raised, as
    where another process has it.  It is open for reading: the file may be another user's.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        descriptor = os.open(path, os.O_RDONLY | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        if is_needed:
            os.close(descriptor)
            raise
    return descriptor
