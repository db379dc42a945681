"""Names in the sources of PyTorch, found without importing it."""

from __future__ import annotations

import ast
import zipfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TypeAlias

Tree: TypeAlias = "Path | zipfile.Path"

# Where the names in C++ are that no stub file has.
_LIBRARY = "torch/lib/libtorch_python.so"
_FUNCTIONS_IN_C = "torch._C._VariableFunctions"


class Sources:
    """The packages ``torch`` and ``torchgen`` in a folder or a wheel."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._names = cache(self._read_names)
        self._library = cache(self._read_library)

    def version(self) -> str:
        """As ``2.15.0+cu132``."""
        node = self._names("torch.version").get("__version__")
        assert isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant), self.tree
        return str(node.value.value)

    def exists(self, path: str) -> bool:
        return self.tree.joinpath(path).is_file()

    def signature(self, module: str, attribute: str) -> str | None:
        """The arguments of a function, as ``(self, name, *, deep=…)``; ``""`` of what is no function.

        None where ``module`` has no such ``attribute``, which may be ``Class.member``.
        """
        first, _, member = attribute.partition(".")
        place, node = self._defined(module, first)
        if node is None:
            found = not member and (
                self._files(f"{module}.{first}") or self._is_in_library(module, first)
            )
            return "" if found else None
        if member:
            node = self._member(place, node, member)
            if node is None:
                return None
        return _arguments(node) if isinstance(node, ast.FunctionDef) else ""

    def _defined(self, module: str, name: str) -> tuple[str, ast.AST | None]:
        """The module that defines ``name``, and the definition: imports are followed to where they lead."""
        names = self._names(module)
        if name not in names:
            for origin in self._stars(module):
                place, found = self._defined(origin, name)
                if found is not None:
                    return place, found
        node = names.get(name)
        if not isinstance(node, ast.ImportFrom):
            return module, node
        asked = next(each.name for each in node.names if (each.asname or each.name) == name)
        place, found = self._defined(self._origin(module, node), asked)
        return (place, found) if found is not None else (module, node)

    def _stars(self, module: str) -> list[str]:
        """The modules from which all names come."""
        if module == "torch":  # by a loop
            return [_FUNCTIONS_IN_C]
        statements = (node for name, node in self._names(module).items() if name.startswith("*"))
        return [
            self._origin(module, node) for node in statements if isinstance(node, ast.ImportFrom)
        ]

    def _origin(self, module: str, node: ast.ImportFrom) -> str:
        """The module that ``node`` imports from."""
        package = module if self._is_package(module) else module.rpartition(".")[0]
        for _ in range(node.level - 1):
            package = package.rpartition(".")[0]
        return ".".join(filter(None, (package if node.level else "", node.module)))

    def _member(self, module: str, node: ast.AST, name: str) -> ast.AST | None:
        if not isinstance(node, ast.ClassDef):
            return None
        members = dict(_bound(node.body))
        if name in members:
            return members[name]
        for method in members.values():
            if isinstance(method, ast.FunctionDef) and name in _set_on_self(method):
                return ast.Name(name)
        for base in node.bases:
            base = base.value if isinstance(base, ast.Subscript) else base
            if isinstance(base, ast.Name):
                place, of_base = self._defined(module, base.id)
                if of_base is not None and (found := self._member(place, of_base, name)):
                    return found
        return None

    def _read_names(self, module: str) -> dict[str, ast.AST]:
        names: dict[str, ast.AST] = {}
        for file in self._files(module):
            names |= dict(_bound(ast.parse(file.read_text(encoding="utf-8")).body))
        return names

    def _files(self, module: str) -> list[Tree]:
        path = module.replace(".", "/")
        endings = (".pyi", "/__init__.pyi", ".py", "/__init__.py")
        files = (self.tree.joinpath(f"{path}{ending}") for ending in endings)
        return [file for file in files if file.is_file()]

    def _is_package(self, module: str) -> bool:
        return any(file.name.startswith("__init__") for file in self._files(module))

    def _is_in_library(self, module: str, name: str) -> bool:
        in_c = module == "torch" or module.startswith("torch._C")
        # The linker lets a string be the end of another one.
        return in_c and b"%b\0" % name.encode() in self._library()

    def _read_library(self) -> bytes:
        library = self.tree.joinpath(_LIBRARY)
        return library.read_bytes() if library.is_file() else b""


def _bound(body: Sequence[ast.stmt]) -> Iterator[tuple[str, ast.AST]]:
    """The names that statements bind, with what binds each; those under ``if`` and ``try`` too."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for each in node.names:
                is_star = each.name == "*"
                yield f"* of line {node.lineno}" if is_star else each.asname or each.name, node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                for each in ast.walk(target):
                    if isinstance(each, ast.Name):
                        yield each.id, node
        for field in ("body", "orelse", "handlers", "finalbody"):
            if not isinstance(node, ast.FunctionDef | ast.ClassDef):
                yield from _bound(getattr(node, field, ()))


def _set_on_self(method: ast.FunctionDef) -> set[str]:
    """The attributes of an object that ``method`` sets."""
    return {
        each.attr
        for each in ast.walk(method)
        if isinstance(each, ast.Attribute)
        and isinstance(each.ctx, ast.Store)
        and isinstance(each.value, ast.Name)
        and each.value.id == "self"
    }


def _arguments(function: ast.FunctionDef) -> str:
    arguments = function.args
    every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    for each in (*every, arguments.vararg, arguments.kwarg):
        if each is not None:
            each.annotation = None
    ellipsis = ast.Name("…")
    arguments.defaults = [ellipsis for _ in arguments.defaults]
    arguments.kw_defaults = [each and ellipsis for each in arguments.kw_defaults]
    return f"({ast.unparse(arguments)})"
