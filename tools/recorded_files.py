"""The files of ``schema/recorded``, for the tools that write them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

import yaml

from opsmith.schema.catalogue import torch_release
from opsmith.schema.recorded import FOLDER, WHOLE, read_facts, recorded_releases, shown


def add_check(parser: argparse.ArgumentParser) -> None:
    """The option ``--check`` of a tool that records."""
    parser.add_argument("--check", action="store_true", help="compare with the file, write nothing")


def record(name: str, header: str, facts: Mapping[str, Any], *, check: bool) -> int:
    """Writes the ``facts`` of the installed torch, or compares them with the file; returns the exit status.

    ``header`` is the comment that explains the sections.
    """
    release = torch_release()
    path = FOLDER / shown(release) / f"{name}.yaml"
    text = document(name, header, {"torch": shown(release), **facts}, release)
    if check:
        same = path.exists() and path.read_text(encoding="utf-8") == text
        of = f"torch {shown(release)}: {name}.yaml"
        print(f"{of} is {'up to date' if same else 'out of date: python tools/record_release'}")
        return 0 if same else 1
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return 0


def document(name: str, header: str, facts: Mapping[str, Any], release: tuple[int, int]) -> str:
    """The text of the file: all facts, or what differs from the release whose facts are written in whole."""
    if release == WHOLE:
        return header + sections(facts)
    of = (
        f"# What differs on torch {shown(release)} from {shown(WHOLE)}, whose {name}.yaml has the rest: an\n"
        "# entry takes the place of the other one; null: there is none. Written by tools/record_release.\n"
    )
    return of + sections(differences(read_facts(name, WHOLE), facts))


def nearest_other(name: str, release: tuple[int, int]) -> tuple[int, int]:
    """The release nearest to ``release``, and not that one, of which the facts ``name`` are recorded."""
    others = [other for other in recorded_releases(name) if other != release]
    return min(others, key=lambda other: (abs(other[1] - release[1]), other))


def differences(whole: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The differences by which :func:`opsmith.schema.recorded.patched` makes ``other`` of ``whole``."""
    found: dict[str, Any] = {}
    for section, theirs in other.items():
        ours = whole[section]
        if theirs == ours:
            continue
        if isinstance(theirs, Mapping):
            names = sorted(ours.keys() | theirs.keys())
            found[section] = {n: theirs.get(n) for n in names if ours.get(n) != theirs.get(n)}
        else:
            found[section] = theirs
    return found


def sections(facts: Mapping[str, Any]) -> str:
    """YAML with a line for each entry of a section."""
    lines: list[str] = []
    for section, entries in facts.items():
        if isinstance(entries, Mapping) and entries:
            lines += [
                f"{section}:\n",
                *(f"  {_line(name, entry)}" for name, entry in entries.items()),
            ]
        else:
            lines.append(yaml.safe_dump({section: entries}, sort_keys=False))
    return "".join(lines)


def _line(name: str, entry: Any) -> str:
    text = yaml.safe_dump({name: entry}, sort_keys=False, width=10_000, default_flow_style=True)
    return f"{text.strip()[1:-1]}\n"
