"""Python packages that register kernels, as the decorators in their modules tell: nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from opsmith.base.trusted_files import read_regular


def has_python_kernels(folder: Path) -> bool:
    """Whether ``folder`` is a Python package with a module that registers kernels in Python."""
    if not (folder / "__init__.py").is_file():
        return False
    return any(_registers(path) for path in sorted(folder.rglob("*.py")))


def _registers(path: Path) -> bool:
    try:
        tree = ast.parse(read_regular(path))
    except (OSError, SyntaxError, ValueError):
        return False
    return any(
        isinstance(decorator, ast.Call)
        and isinstance(decorator.func, ast.Attribute)
        and decorator.func.attr in {"kernel", "structured", "operator"}
        for decorator in _decorators(tree)
    )


def _decorators(tree: ast.AST) -> Iterator[ast.expr]:
    """A decorator of functions, or a call with one: ``backend.kernel("mm")(multiply)``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from node.decorator_list
        elif isinstance(node, ast.Call):
            yield node.func
