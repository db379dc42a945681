"""Damage to files: cut short by a full disk, altered by a bad one, emptied by a power cut, gone, or worse."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def cut(path: Path) -> None:
    """Takes the last byte away."""
    path.write_bytes(path.read_bytes()[:-1])


def altered(path: Path) -> None:
    """Changes one bit; the size stays."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def emptied(path: Path) -> None:
    """Leaves the name alone."""
    path.write_bytes(b"")


def piped(path: Path) -> None:
    """Puts a pipe in its place, from which nothing ever comes."""
    path.unlink()
    os.mkfifo(path)


def endless(path: Path) -> None:
    """Puts a link in its place, to what never ends."""
    path.unlink()
    path.symlink_to("/dev/zero")


def given_away(path: Path) -> None:
    """Gives it to another user, who may write what it likes."""
    os.chown(path, 4242, 4242)


_AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to another user")
DAMAGE = pytest.mark.parametrize(
    "damage",
    [cut, altered, emptied, Path.unlink, piped, endless, pytest.param(given_away, marks=_AS_ROOT)],
)
