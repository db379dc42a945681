"""The cache directory: where it is, and what lies where.

    catalogues/  PyTorch's operators, by its version
    plans/       plans by torch version and content of the description
    generated/   emitted C++ by content
    preludes/    PyTorch's headers, precompiled, by compiler and flags
    objects/     compiled files by content of sources, headers and flags, each with its seal
    libraries/   linked libraries by content of their objects, each with its seal
    backends/    which libraries serve a description, by compiler
    starts/      what the next start finds while no file has changed
    inspected/   operators with their dispatch tables, by the library that was loaded
    compilers/   what was learned of each compiler
    runtimes/    the operators that each ExecuTorch has kernels for
    logs/        the last failed build's output, by backend
    work/        a folder for each running build; empty otherwise
    locks        a byte for each file that is being made; it stays empty

Every file is written under a temporary name and renamed, so that what has its name is whole.  All of
it can be made again: nothing is lost when the directory, or anything in it, is removed.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from opsmith.base.cache_folder import VARIABLE, cache_root, make_folder, replace_file
from opsmith.base.trusted_files import fault_of
from opsmith.build.stored import is_sound, seal_of
from opsmith.errors import CacheUnusable

# Below this size nothing is removed; above it, what was not used for so long.
PRUNED_ABOVE_BYTES = 4 << 30
UNUSED_AFTER_SECONDS = 30 * 24 * 3600

# Their entries are files or directories that carry the time of their last use.
_PRUNED_FOLDERS = (
    "catalogues",
    "plans",
    "generated",
    "preludes",
    "objects",
    "libraries",
    "backends",
    "starts",
    "inspected",
)


def usable_cache() -> Path:
    """:func:`cache_root`, created and checked to be writable; raises :class:`CacheUnusable`."""
    root = cache_root()
    try:
        if root.exists() and not root.is_dir():
            raise unusable(root, "it is a file, not a directory")
        make_folder(root)
        with tempfile.TemporaryFile(dir=root) as probe:
            probe.write(b"opsmith")
    except OSError as error:
        raise unusable(root, error.strerror or str(error)) from None
    return root


def unusable(root: Path, reason: str) -> CacheUnusable:
    """The error for a cache directory that cannot be written to."""
    return CacheUnusable(
        f"the cache directory {root} cannot be written: {reason}",
        remedy=f"free some space there, or set {VARIABLE} to a directory of your own",
    )


def write_whole(path: Path, content: bytes) -> None:
    """Writes ``path``, in the cache, so that it is either as before or whole.

    Raises :class:`CacheUnusable`.
    """
    try:
        replace_file(path, content)
    except OSError as error:
        raise unusable(cache_root(), error.strerror or str(error)) from None


def is_usable(path: Path) -> bool:
    """Whether ``path``, of the store, may be linked or loaded: trusted, and with the bytes of its seal."""
    return not any(map(fault_of, (path, seal_of(path)))) and is_sound(path)


def discard_untrusted(path: Path) -> None:
    """Removes what lies at ``path``, of the store, and is not trusted, so that a build makes it again."""
    for each in (path, seal_of(path)):
        if fault_of(each):
            with suppress(OSError):
                each.unlink()


def size_in_bytes(root: Path) -> int:
    """How much the files of the cache directory ``root`` take."""
    total = 0
    for folder, _, names in os.walk(root):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_size
    return total


def prune(root: Path) -> None:
    """Removes what was not used for 30 days, where the cache has outgrown 4 GiB.

    Loaded libraries live on: their files go, not their pages.
    """
    if size_in_bytes(root) <= PRUNED_ABOVE_BYTES:
        return
    oldest_kept = time.time() - UNUSED_AFTER_SECONDS
    for folder in _PRUNED_FOLDERS:
        for entry in (root / folder).glob("*"):
            with suppress(OSError):
                if entry.stat().st_mtime < oldest_kept:
                    _remove(entry)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
