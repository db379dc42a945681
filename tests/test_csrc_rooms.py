"""The folders of csrc include only what stands below them: see docs/internals/architecture.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

from opsmith.build.csrc import CSRC, INCLUDE_DIRS

# A floor may include those above it in this list; the folders of one floor may not include each other.
FLOORS = [
    {"etensor", "include", "opsmith/torch_version.h"},
    {"opsmith/device"},
    {"opsmith/fallback"},
    {"opsmith/generated"},
    {"opsmith/operators"},
    {
        "opsmith/autograd",
        "opsmith/compile",
        "opsmith/distributed",
        "opsmith/profile",
        "opsmith/sharing",
    },
    {"lean"},
    {"bridge", "executorch_library", "python", "trace"},
    {"cpu"},
]
FLOOR = {folder: level for level, folders in enumerate(FLOORS) for folder in folders}
# It is among the headers for authors, and belongs to what it includes.
OF_CPU = CSRC / "include" / "opsmith" / "wrap_to_aten.h"
SOURCES = [path for path in sorted(CSRC.rglob("*")) if path.suffix in {".h", ".cpp"}]


def folder_of(source: Path) -> str:
    parts = source.relative_to(CSRC).parts
    return "cpu" if source == OF_CPU else "/".join(parts[: 2 if parts[0] == "opsmith" else 1])


def included(source: Path) -> Iterator[Path]:
    """The files of csrc that ``source`` includes."""
    for name in re.findall(r'^ *# *include [<"](.+)[>"]', source.read_text(encoding="utf-8"), re.M):
        for folder in (source.parent, *INCLUDE_DIRS, CSRC / "etensor"):
            if (folder / name).is_file():
                yield folder / name
                break


def test_each_folder_includes_only_lower_floors() -> None:
    wrong = [
        f"{source.relative_to(CSRC)} includes {header.relative_to(CSRC)}"
        for source in SOURCES
        for header in included(source)
        if folder_of(header) != folder_of(source)
        and FLOOR[folder_of(header)] >= FLOOR[folder_of(source)]
    ]
    assert wrong == []


def test_every_folder_has_a_floor() -> None:
    folders = {folder_of(source) for source in SOURCES}
    assert folders - {"opsmith/compiled_for.cpp"} == FLOOR.keys()  # which includes none


def test_no_files_include_each_other_in_a_ring() -> None:
    """A header and its source are one."""
    graph: dict[str, set[str]] = {}
    for source in SOURCES:
        name = str(source.relative_to(CSRC).with_suffix(""))
        headers = {str(header.relative_to(CSRC).with_suffix("")) for header in included(source)}
        graph.setdefault(name, set()).update(headers - {name})
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the ring
