"""Expressions of ints in a manifest of Triton's kernels: the size of a grid, an argument of a function.

They are Python's: numbers, the names of the operator's arguments and of the entry's ``options``,
``+ - * // %``, ``cdiv(a, b)``, ``min``, ``max``, ``next_power_of_2(a)``, and of a Tensor ``numel(x)``,
``size(x, dim)`` and ``stride(x, dim)``.  Nothing else is taken: a description from a stranger runs nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Sequence
from typing import Any

_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod)
# The functions, with how many arguments each has; the first of those of a Tensor is its name.
_OF_TENSORS = {"numel": 1, "size": 2, "stride": 2}
_OF_INTS = {"cdiv": (2, 2), "next_power_of_2": (1, 1), "min": (2, 8), "max": (2, 8)}


def obstacle_in_expression(text: str, names: Collection[str] | None) -> str | None:
    """Why ``text`` is no expression over ``names``; None where it is one.

    Without ``names`` all are taken on trust.
    """
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        return f"{error.msg}"
    return _obstacle(tree, names)


def _obstacle(node: ast.AST, names: Collection[str] | None) -> str | None:
    match node:
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            return None
        case ast.Name(id=name):
            known = names is None or name in names
            return None if known else f"`{name}` is none of {', '.join(sorted(names or ()))}"
        case ast.BinOp(left=left, op=op, right=right) if isinstance(op, _OPERATORS):
            return _obstacle(left, names) or _obstacle(right, names)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _obstacle(operand, names)
        case ast.Call(func=ast.Name(id=function), args=arguments, keywords=[]):
            if not _takes(function, arguments):
                return f"`{ast.unparse(node)}` is no call of {', '.join([*_OF_TENSORS, *_OF_INTS])}"
            return next((found for each in arguments if (found := _obstacle(each, names))), None)
    return f"`{ast.unparse(node)}` is none of ints, names, + - * // % and calls"


def _takes(function: str, arguments: Sequence[ast.expr]) -> bool:
    if function in _OF_TENSORS:
        return len(arguments) == _OF_TENSORS[function] and isinstance(arguments[0], ast.Name)
    least, most = _OF_INTS.get(function, (1, 0))
    return least <= len(arguments) <= most


def function_of(
    expressions: Sequence[str], parameters: Sequence[str]
) -> Callable[..., tuple[int, ...]]:
    """A function of ``parameters``, by position, that returns the values of ``expressions``.

    Tensors are whatever has ``numel()``, ``shape`` and ``stride()``.  The expressions are checked ones.
    """
    values = [_AsPython().visit(ast.parse(text, mode="eval").body) for text in expressions]
    body = ast.Tuple(
        [ast.Call(ast.Name("int", ast.Load()), [each], []) for each in values], ast.Load()
    )
    arguments = ast.arguments([], [ast.arg(each) for each in parameters], None, [], [], None, [])
    tree = ast.fix_missing_locations(ast.Expression(ast.Lambda(arguments, body)))
    names: dict[str, Any] = {
        "__builtins__": {},
        "int": int,
        "min": min,
        "max": max,
        "cdiv": lambda a, b: -(-a // b),
        "next_power_of_2": lambda a: 1 << max(a - 1, 0).bit_length(),
    }
    made: Callable[..., tuple[int, ...]] = eval(compile(tree, "<launch>", "eval"), names)
    return made


class _AsPython(ast.NodeTransformer):
    """Calls about a Tensor as calls of its methods."""

    def visit_Call(self, node: ast.Call) -> ast.expr:
        assert isinstance(node.func, ast.Name)
        self.generic_visit(node)
        if (function := node.func.id) not in _OF_TENSORS:
            return node
        tensor, *dims = node.args
        method = ast.Attribute(tensor, "shape" if function == "size" else function, ast.Load())
        if function == "size":
            return ast.Subscript(method, dims[0], ast.Load())
        return ast.Call(method, dims, [])
