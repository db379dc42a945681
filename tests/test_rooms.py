"""The rooms of docs/internals/architecture.md import only what stands below them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import opsmith

PACKAGE = Path(opsmith.__file__).parent

# A room may import those above it.
ROOMS = (
    "errors base driver schema description plan emit build runtime conformance executorch observe vendor "
    "cli".split()
)


def imported_rooms(source: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        rooms |= {name.split(".")[1] for name in names if name.startswith("opsmith.")}
    return rooms


def test_each_room_imports_only_lower_floors() -> None:
    wrong = []
    for source in sorted(PACKAGE.rglob("*.py")):
        room = source.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if room in {"__init__", "__main__"}:
            continue
        for other in imported_rooms(source):
            if ROOMS.index(other) > ROOMS.index(room):
                wrong.append(f"{source.relative_to(PACKAGE)} imports {other}")
    assert wrong == []


def test_every_room_is_in_the_list() -> None:
    rooms = {
        path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in PACKAGE.rglob("*.py")
    }
    assert rooms - {"__init__", "__main__"} == {*ROOMS}


def run_time_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes of ``tree`` but for those that only type checkers read."""
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            yield node
            yield from run_time_nodes(node)


def test_no_modules_import_each_other_in_a_ring() -> None:
    modules = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(
            ".__init__"
        ): path
        for path in PACKAGE.rglob("*.py")
    }
    imported: dict[str, set[str]] = {}
    for module, path in modules.items():
        names = set()
        for node in run_time_nodes(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                inside = {f"{node.module}.{alias.name}" for alias in node.names}
                names |= {name if name in modules else node.module for name in inside}
            elif isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
        imported[module] = names & modules.keys() - {module}
    TopologicalSorter(imported).prepare()  # raises CycleError, which names the ring
