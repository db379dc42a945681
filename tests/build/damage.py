"""Damage to files: cut short by a full disk, altered by a bad one, emptied by a power cut, removed."""

from __future__ import annotations

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


DAMAGE = pytest.mark.parametrize("damage", [cut, altered, emptied, Path.unlink])
