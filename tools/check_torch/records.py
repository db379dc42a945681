"""Records of the names and headers in each release, and how the table of names agrees with them."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from headers import included_headers
from opsmith.schema import KNOWN_RELEASES
from opsmith.torch_names import TORCH_NAMES
from sources import Sources

_RECORDS = Path(__file__).resolve().parents[2] / "tests" / "torch_names" / "releases"


class Record(msgspec.Struct, frozen=True):
    """One torch: the signature of each name of the table, None of a missing one; which headers are there."""

    torch: str
    names: dict[str, str | None]
    headers: dict[str, bool]


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
    path = _RECORDS / f"{release[0]}.{release[1]}.json"
    return msgspec.json.decode(path.read_bytes(), type=Record) if path.is_file() else None


def write_record(record: Record) -> Path:
    release = release_of(record.torch)
    path = _RECORDS / f"{release[0]}.{release[1]}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
    return path


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
    for release in KNOWN_RELEASES:
        record = read_record(release)
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
