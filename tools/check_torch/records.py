"""Records of the names and headers in each release, and how the table of names agrees with them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypeVar

import msgspec

from headers import included_headers
from opsmith.schema import KNOWN_RELEASES
from opsmith.schema.torch_names import TORCH_NAMES
from sources import Sources

Value = TypeVar("Value")

_RECORDS = Path(__file__).resolve().parents[2] / "tests" / "torch_names" / "releases.json"


class Record(msgspec.Struct, frozen=True):
    """One torch: the signature of each name of the table, None of a missing one; which headers are there."""

    torch: str
    names: dict[str, str | None]
    headers: dict[str, bool]


class _Changes(msgspec.Struct, frozen=True, omit_defaults=True):
    """The entries of a :class:`Record` that differ from those of the one before, and names that it lacks."""

    torch: str
    names: dict[str, str | None] = {}
    headers: dict[str, bool] = {}
    lacks: list[str] = []


def release_of(version: str) -> tuple[int, int]:
    """``(2, 15)`` for ``2.15.0a0+git1234``."""
    major, minor = re.findall(r"\d+", version)[:2]
    return int(major), int(minor)


def record_of(sources: Sources, headers: frozenset[str]) -> Record:
    """The record of the torch in ``sources``."""
    places = {
        (each.module, attribute)
        for each in TORCH_NAMES.values()
        for attribute in filter(None, (each.attribute, each.before))
    }
    folders = "torch/include", "torch/include/torch/csrc/api/include"
    return Record(
        sources.version(),
        {
            f"{module}.{attribute}": sources.signature(module, attribute)
            for module, attribute in sorted(places)
        },
        {
            header: any(sources.exists(f"{folder}/{header}") for folder in folders)
            for header in sorted(headers)
        },
    )


def read_record(release: tuple[int, int]) -> Record | None:
    """The record of ``release``, if there is one."""
    return read_records().get(release)


def read_records() -> dict[tuple[int, int], Record]:
    """The record of each release.  The file has of each but the first what differs from the one before."""
    if not _RECORDS.is_file():
        return {}
    names: dict[str, str | None] = {}
    headers: dict[str, bool] = {}
    found = {}
    for each in msgspec.json.decode(_RECORDS.read_bytes(), type=list[_Changes]):
        names = {name: names[name] for name in names if name not in each.lacks} | each.names
        headers = {name: headers[name] for name in headers if name not in each.lacks} | each.headers
        found[release_of(each.torch)] = Record(each.torch, names, headers)
    return found


def write_record(record: Record) -> Path:
    """Adds ``record`` to those of the other releases, or replaces that of its own; their file."""
    found = read_records() | {release_of(record.torch): record}
    before = Record("", {}, {})
    kept = []
    for _, each in sorted(found.items()):
        # A name that the table has lost goes from all of them.
        names = {name: each.names[name] for name in record.names if name in each.names}
        headers = {name: each.headers[name] for name in record.headers if name in each.headers}
        lacks = [*(before.names.keys() - names), *(before.headers.keys() - headers)]
        kept.append(
            _Changes(
                each.torch,
                _difference(before.names, names),
                _difference(before.headers, headers),
                sorted(lacks),
            )
        )
        before = Record(each.torch, names, headers)
    _RECORDS.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n")
    return _RECORDS


def _difference(before: dict[str, Value], now: dict[str, Value]) -> dict[str, Value]:
    return {name: each for name, each in now.items() if name not in before or before[name] != each}


def problems(record: Record) -> list[str]:
    """Where ``record`` and the table, or the sources' headers, do not agree."""
    release = release_of(record.torch)
    found = []
    for each in TORCH_NAMES.values():
        expected = each.attribute_in(release)
        lost = f"{each.qualified} ({each.lost})"
        for attribute in filter(None, (each.attribute, each.before)):
            name = f"{each.module}.{attribute}"
            if name not in record.names:
                found.append(
                    f"torch {record.torch} has no record of {name}: run tools/check_torch --record"
                )
            elif attribute == expected and record.names[name] is None:
                found.append(f"torch {record.torch} has no {lost}")
        if not expected and record.names.get(each.qualified) is not None:
            found.append(f"torch {record.torch} has {lost}, which the table denies")
    for header in sorted(included_headers(release[1])):
        if header not in record.headers:
            found.append(
                f"torch {record.torch} has no record of <{header}>: run tools/check_torch --record"
            )
        elif not record.headers[header]:
            found.append(f"torch {record.torch} has no header <{header}>")
    return found


def recorded_problems() -> list[str]:
    """:func:`problems` of every known release."""
    found = []
    records = read_records()
    for release in KNOWN_RELEASES:
        record = records.get(release)
        version = ".".join(map(str, release))
        found += problems(record) if record else [f"torch {version} has no record"]
    return found


def signatures_changed(before: Record, record: Record) -> list[str]:
    """The functions of ``record`` that take other arguments than ``before``."""
    return [
        f"{name} took {before.names[name]} in torch {before.torch}, and takes {signature}"
        for name, signature in record.names.items()
        if signature and before.names.get(name) and before.names[name] != signature
    ]
