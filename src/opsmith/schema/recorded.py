"""Facts about releases of torch that no file of its wheel states; ``tools/record_release`` records them.

``recorded/2.13`` has a release's facts in whole; the folders of the others have what differs from it.  A
torch of which nothing is recorded gets the facts of the nearest release, with a warning.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import msgspec
import yaml

FOLDER = Path(__file__).parent / "recorded"
WHOLE = (2, 13)
"""The release that the others' files are compared with."""

# The contents of the files of a release, for people.
_SUBJECTS = {
    "dispatcher": "which operators have no meta kernel",
    "stubs": "which operators DispatchStubs serve",
    "parts": "what PyTorch decomposes composites into",
    "host_readers": "which composites read host memory",
}

Release: TypeAlias = tuple[int, int]
R = TypeVar("R")


class RecordedFactsWarning(UserWarning):
    """Facts of another release stand in for those of the installed torch, of which none are recorded."""


def read_recorded(name: str, kind: type[R], release: Release) -> R:
    """The facts ``name``, of the form ``kind``, of ``release`` or else of the nearest one, with a warning."""
    _warn_of_unrecorded(release)
    return msgspec.convert(read_facts(name, nearest_release(name, release)), kind)


def read_facts(name: str, release: Release) -> Mapping[str, Any]:
    """The recorded facts ``name`` of ``release`` as YAML has them, complete."""
    whole, *differences = (_read(path) for path in files_of(name, release))
    return patched(whole, differences[0]) if differences else whole


def files_of(name: str, release: Release) -> list[Path]:
    """The files that have the recorded facts ``name`` of ``release``: those in whole, and the differences."""
    return [FOLDER / shown(each) / f"{name}.yaml" for each in dict.fromkeys((WHOLE, release))]


def patched(whole: Mapping[str, Any], differences: Mapping[str, Any]) -> Mapping[str, Any]:
    """``whole`` with ``differences``: an entry takes the place of the other one, and ``null`` removes it."""
    found = {**whole, **differences}
    for section, changes in differences.items():
        if isinstance(changes, dict):
            entries = {**whole[section], **changes}
            found[section] = {
                name: entries[name] for name in sorted(entries) if entries[name] is not None
            }
    return found


def recorded_releases(name: str) -> list[Release]:
    """The releases of which the facts ``name`` are recorded, the oldest first."""
    return sorted(_release(path.parent.name) for path in FOLDER.glob(f"*/{name}.yaml"))


def nearest_release(name: str, release: Release) -> Release:
    """The newest release up to ``release`` of which the facts are recorded, or else the oldest of all."""
    known = recorded_releases(name)
    return max((each for each in known if each <= release), default=known[0])


def releases_with(operator: str, release: Release) -> str:
    """The recorded releases that have an ATen operator which ``release`` lacks.

    ``torch 2.13 and later`` or ``torch 2.13 and earlier``, as seen from ``release``; empty for none.
    """
    having = [each for each in recorded_releases("operators") if operator in _operators(each)]
    if not having:
        return ""
    if release < having[0]:
        return f"torch {shown(having[0])} and later"
    return f"torch {shown(having[-1])} and earlier"


@functools.cache
def _operators(release: Release) -> frozenset[str]:
    return frozenset(read_facts("operators", release)["operators"])


def shown(release: Release) -> str:
    """``(2, 13)`` → ``2.13``."""
    return ".".join(map(str, release))


@functools.cache
def _warn_of_unrecorded(release: Release) -> None:
    """Warns, once in a process, of what other releases' facts stand in for."""
    taken = [
        f"{subject} ({shown(nearest)})"
        for name, subject in _SUBJECTS.items()
        if (nearest := nearest_release(name, release)) != release
    ]
    if not taken:
        return
    warnings.warn_explicit(
        f"opsmith has no facts of torch {shown(release)} on this, and plans with those of the release in "
        f"brackets: {'; '.join(taken)}\n"
        "  remedy: record them in opsmith's source tree: python tools/record_release",
        RecordedFactsWarning,
        filename=str(FOLDER),
        lineno=0,
    )


def _release(text: str) -> Release:
    major, minor = text.split(".")
    return int(major), int(minor)


def _read(path: Path) -> dict[str, Any]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), loader)
    return found
