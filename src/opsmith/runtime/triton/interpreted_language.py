"""Triton's language in its interpreter, where that reads a kernel otherwise than Triton's compiler does.

The interpreter runs a kernel as Python: ``a and b`` of two blocks is then one of them, and ``not a`` a truth.
A float or a truth among the arguments stays Python's, a float32 is cut off where it becomes a bfloat16, a
comparison of scalars that is broadcast is a number, and an inverted unsigned integer or an index of one
element is NumPy's error.  Each is mended here.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable
from typing import Any

_LOGICAL = "_opsmith_logical"
_NEGATED = "_opsmith_negated"
_METHODS = {ast.And: "logical_and", ast.Or: "logical_or"}


@functools.cache
def mend_interpreter() -> None:
    """Has Triton's interpreter compute from now on what the compiled kernel would."""
    # Here: it needs Triton.
    from triton.runtime import interpreter

    builder = interpreter.InterpreterBuilder
    vars(interpreter).update({_LOGICAL: _logical, _NEGATED: _negated})
    interpreter.FunctionRewriter.ast_transformer = _transformer(interpreter.ASTTransformer)
    interpreter._implicit_cvt = _with_numbers(interpreter._implicit_cvt)
    interpreter._patch_lang_tensor = _with_indices(interpreter._patch_lang_tensor)
    builder.cast_impl = _with_rounding(builder.cast_impl)
    builder.get_all_ones_value = _all_ones
    builder.create_splat = _splat


# ---- and, or, not


def _transformer(base: Any) -> Any:
    """The interpreter's transformer of a kernel's source, which has `and`, `or` and `not` of blocks too."""

    class Transformer(base):  # type: ignore[misc]
        def visit_Assign(self, node: ast.Assign) -> ast.AST:  # noqa: N802
            node.value = self.visit(node.value)
            assigned: ast.AST = super().visit_Assign(node)
            return assigned

        def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:  # noqa: N802
            self.generic_visit(node)
            no_arguments = ast.arguments([], [], None, [], [], None, [])
            return _call(
                _LOGICAL,
                ast.Constant(_METHODS[type(node.op)]),
                *(ast.Lambda(no_arguments, value) for value in node.values),
            )

        def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:  # noqa: N802
            self.generic_visit(node)
            return _call(_NEGATED, node.operand) if isinstance(node.op, ast.Not) else node

    return Transformer()


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


def _logical(method: str, *operands: Callable[[], Any]) -> Any:
    """``and`` or ``or``: all operands that are Tensors, unless one that is none decides.

    Source: ``CodeGenerator.visit_BoolOp`` of Triton's compiler.
    """
    blocks = []
    value: Any = None
    for operand in operands:
        value = operand()
        if _is_block(value):
            blocks.append(value)
        elif bool(value) is (method == "logical_or"):
            return value
    return functools.reduce(lambda x, y: getattr(x, method)(y), blocks) if blocks else value


def _negated(value: Any) -> Any:
    return value.__not__() if _is_block(value) else not value


def _is_block(value: Any) -> bool:
    from triton import language

    return isinstance(value, language.tensor)


# ---- numbers


def _with_numbers(convert: Callable[..., Any]) -> Callable[..., Any]:
    """``_implicit_cvt``, with which a truth or a float among the arguments has a type of Triton's, too."""

    @functools.wraps(convert)
    def converted(argument: Any) -> Any:
        import numpy
        from triton import language
        from triton.runtime.interpreter import TensorHandle

        if isinstance(argument, bool):
            data, dtype = numpy.array([argument], dtype=bool), language.int1
        elif isinstance(argument, float):
            data, dtype = numpy.array([argument], dtype=numpy.float32), language.float32
        else:
            return convert(argument)
        return language.tensor(TensorHandle(data, dtype), dtype)

    return converted


def _with_indices(patch: Callable[..., Any]) -> Callable[..., Any]:
    """``_patch_lang_tensor``, with which NumPy 2.4 makes an index of an array with one element, too."""

    @functools.wraps(patch)
    def patched(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    return patched


def _all_ones(_: Any, kind: Any) -> Any:
    """``get_all_ones_value``, of unsigned integers too."""
    import numpy
    from triton.runtime.interpreter import TensorHandle, _get_np_dtype

    return TensorHandle(numpy.full(1, -1).astype(_get_np_dtype(kind)), kind.scalar)


def _splat(_: Any, kind: Any, scalar: Any) -> Any:
    """``create_splat``, of a comparison's result too: its handle has the type of what was compared."""
    import numpy
    from triton.runtime.interpreter import TensorHandle

    data = scalar.data.reshape(-1)
    return TensorHandle(numpy.full(kind.shape, data[0], data.dtype), scalar.dtype.scalar)


def _with_rounding(cast: Callable[..., Any]) -> Callable[..., Any]:
    """``cast_impl``, which rounds to bfloat16."""

    @functools.wraps(cast)
    def rounded(self: Any, src: Any, dst_type: Any) -> Any:
        from triton.runtime.interpreter import TensorHandle

        if (str(src.dtype.scalar), str(dst_type.scalar)) != ("fp32", "bf16"):
            return cast(self, src, dst_type)
        return TensorHandle(_rounded_to_bfloat16(src.data), dst_type.scalar)

    return rounded


def _rounded_to_bfloat16(numbers: Any) -> Any:
    """The bits of float32 ``numbers`` as bfloat16, rounded to the nearest, to even in the middle."""
    import numpy

    bits = numpy.ascontiguousarray(numbers).view(numpy.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return numpy.where(numpy.isnan(numbers), 0x7FC0, rounded).astype(numpy.uint16)
