"""C++ for a kernel in Triton's IR: a function that runs one program, with loops over the elements of blocks.

Each operation is one statement, so that a kernel can be read beside its IR, and the compiler of C++ does the
rest.  What Triton means for a GPU alone, such as layouts and the stages of a loop, is left out.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence
from typing import Any

from opsmith.runtime.triton.host.ir import (
    NAME,
    VALUE,
    Operation,
    Region,
    Type,
    functions,
    type_of,
    types_of,
)

# Of elements a and b: what C++ computes as Triton does, wrapping integers (-fwrapv).
_BINARY = {
    "arith.addi": "a + b",
    "arith.addf": "a + b",
    "arith.subi": "a - b",
    "arith.subf": "a - b",
    "arith.muli": "a * b",
    "arith.mulf": "a * b",
    "arith.divsi": "quotient(a, b)",
    "arith.divui": "quotient(u(a), u(b))",
    "arith.divf": "a / b",
    "tt.precise_divf": "a / b",
    "arith.remsi": "remainder_of(a, b)",
    "arith.remui": "remainder_of(u(a), u(b))",
    "arith.remf": "std::fmod(W(a), W(b))",
    "arith.andi": "a & b",
    "arith.ori": "a | b",
    "arith.xori": "a ^ b",
    "arith.shli": "u(a) << u(b)",
    "arith.shrsi": "a >> u(b)",
    "arith.shrui": "u(a) >> u(b)",
    "arith.maxsi": "std::max(a, b)",
    "arith.minsi": "std::min(a, b)",
    "arith.maxui": "std::max(u(a), u(b))",
    "arith.minui": "std::min(u(a), u(b))",
    "arith.maxnumf": "larger<false>(W(a), W(b))",
    "arith.minnumf": "smaller<false>(W(a), W(b))",
    "arith.maximumf": "larger<true>(W(a), W(b))",
    "arith.minimumf": "smaller<true>(W(a), W(b))",
    "tt.mulhiui": "high_product(a, b)",
    "tt.addptr": "a + b",
}
_UNARY = {
    "arith.negf": "-a",
    "math.absi": "a < 0 ? -a : a",
    "math.absf": "std::fabs(W(a))",
    "math.rsqrt": "1 / std::sqrt(W(a))",
    "tt.precise_sqrt": "std::sqrt(W(a))",
    **{
        f"math.{name}": f"std::{name}(W(a))"
        for name in (
            "acos acosh asin asinh atan atanh ceil cos cosh erf exp exp2 expm1 floor log log10 log1p log2 "
            "round sin sinh sqrt tan tanh trunc"
        ).split()
    },
}
# From an element a to one of the type T.
_CONVERSIONS = {
    "arith.extsi": "a",
    "arith.extui": "u(a)",
    "arith.trunci": "a",
    "arith.extf": "a",
    "arith.truncf": "a",
    "tt.fp_to_fp": "a",
    "arith.sitofp": "W(a)",
    "arith.uitofp": "W(u(a))",
    "arith.fptosi": "W(a)",
    "arith.fptoui": "static_cast<std::make_unsigned_t<T>>(W(a))",
    "arith.index_cast": "a",
    "arith.bitcast": "bits<T>(a)",
    "tt.bitcast": "bits<T>(a)",
    "tt.int_to_ptr": "reinterpret_cast<T>(a)",
    "tt.ptr_to_int": "reinterpret_cast<T>(a)",
}
_COMPARED = {
    "eq": "a == b",
    "ne": "a != b",
    **{
        f"s{name}": f"a {sign} b"
        for name, sign in zip(("lt", "le", "gt", "ge"), ("<", "<=", ">", ">="), strict=True)
    },
    **{
        f"u{name}": f"u(a) {sign} u(b)"
        for name, sign in zip(("lt", "le", "gt", "ge"), ("<", "<=", ">", ">="), strict=True)
    },
}
# Unordered comparisons are true where an operand is NaN.
_COMPARED_FLOATS = {
    "oeq": "a == b",
    "ogt": "a > b",
    "oge": "a >= b",
    "olt": "a < b",
    "ole": "a <= b",
    "one": "a < b || a > b",
    "ord": "a == a && b == b",
    "ueq": "!(a < b || a > b)",
    "ugt": "!(a <= b)",
    "uge": "!(a < b)",
    "ult": "!(a >= b)",
    "ule": "!(a > b)",
    "une": "a != b",
    "uno": "a != a || b != b",
}
_ATOMIC = {
    "fadd": "old + b",
    "add": "old + b",
    "max": "std::max(old, b)",
    "min": "std::min(old, b)",
    "umax": "static_cast<T>(std::max(u(old), u(b)))",
    "umin": "static_cast<T>(std::min(u(old), u(b)))",
    "and": "static_cast<T>(old & b)",
    "or": "static_cast<T>(old | b)",
    "xor": "static_cast<T>(old ^ b)",
    "exch": "b",
}
_FLOATS = {"f16": "e", "f32": "f", "f64": "d"}
_SAME_ELEMENTS = ("tt.expand_dims", "tt.reshape")
_NOTHING = ("tt.print", "gpu.barrier", "tt.return")


def cpp_of_kernel(module: str, name: str) -> str:
    """The C++ of the function ``name`` of a printed ``module``.

    Its arguments lie in a block that is laid out as a C struct.  Raises :class:`NotImplementedError` for an
    operation that is not known here.
    """
    found = functions(module)
    return _Writer().kernel(found[name], name)


class _Writer:
    def __init__(self) -> None:
        self._lines: list[str] = []
        self._values: dict[str, tuple[str, Type]] = {}

    def kernel(self, function: Operation, name: str) -> str:
        (region,) = function.regions
        offset = 0
        for argument, kind in region.arguments:
            size = (
                8 if kind.element.startswith("!") else max(1, int(kind.element.lstrip("bfi")) // 8)
            )
            offset = -(-offset // size) * size
            self._bind(argument, kind)
            self._say(f"{_cpp(kind.element)} {self._name(argument)};")
            self._say(f"std::memcpy(&{self._name(argument)}, arguments + {offset}, {size});")
            offset += size
        self._region(region)
        body = "\n".join(f"  {line}" for line in self._lines)
        given = "const char* arguments, const uint32_t id[3], const uint32_t grid[3]"
        signature = f'extern "C" void {name}({given})'
        return f"{signature} {{\n{body}\n}}\n"

    def _say(self, line: str) -> None:
        self._lines.append(line)

    def _bind(self, value: str, kind: Type, name: str = "") -> str:
        name = name or "v" + re.sub(r"\W", "_", value[1:].replace("-", "minus"))
        self._values[value] = (name, kind)
        return name

    def _name(self, value: str) -> str:
        return self._values[value][0]

    def _type(self, value: str) -> Type:
        return self._values[value][1]

    def _at(self, value: str, index: str = "i") -> str:
        name, kind = self._values[value]
        return f"{name}[{index}]" if kind.shape else name

    def _widened(self, value: str) -> str:
        wide = "f64" if self._type(value).element == "f64" else "f32"
        return f"static_cast<{wide}>({self._at(value)})"

    def _define(self, value: str, kind: Type, element: str) -> None:
        """``value`` is that of which ``element`` is the element ``i``."""
        name, cpp = self._bind(value, kind), _cpp(kind.element)
        if kind.element == "i1":
            element = f"({element}) & 1"
        if kind.shape:
            self._say(
                f"const auto {name} = block<{cpp}, {kind.count}>("
                f"[&](int i) {{ return static_cast<{cpp}>({element}); }});"
            )
        else:
            self._say(f"const auto {name} = static_cast<{cpp}>({element});")

    def _each(self, kind: Type, statement: str) -> None:
        loop = f"for (int i = 0; i < {kind.count}; ++i) " if kind.shape else ""
        self._say(f"{loop}{{ {statement} }}")

    def _region(self, region: Region) -> list[str]:
        """Writes the operations; gives what the last one, a terminator, hands out."""
        for operation in region.operations[:-1]:
            self._operation(operation)
        last = region.operations[-1]
        if last.name in ("scf.yield", "scf.condition", "tt.return") or last.name.endswith(
            ".return"
        ):
            return last.operands
        self._operation(last)
        return []

    def _operation(self, operation: Operation) -> None:
        name, operands = operation.name, operation.operands
        special = getattr(self, "_" + name.replace(".", "_"), None)
        if special is not None:
            special(operation)
        elif name in _BINARY:
            self._elementwise(operation, _BINARY[name], self._type(operands[0]))
        elif name in _UNARY:
            self._elementwise(operation, _UNARY[name], self._type(operands[0]))
        elif name in _CONVERSIONS:
            self._elementwise(operation, _CONVERSIONS[name], operation.result_type)
        elif name in _SAME_ELEMENTS:
            self._bind(
                operation.results[0],
                operation.result_type,
                self._name(operands[0]),
            )
        elif name not in _NOTHING:
            raise NotImplementedError(f"the operation `{name}`")

    def _elementwise(self, operation: Operation, expression: str, kind: Type) -> None:
        operands = operation.operands
        source = self._type(operands[0]).element
        wide = "f64" if "f64" in (source, kind.element) else "f32"
        given = {"T": _cpp(kind.element), "a": self._at(operands[0])}
        if len(operands) > 1:
            given["b"] = self._at(operands[1])
        expression = re.sub(r"\bW\(", f"static_cast<{wide}>(", expression)
        if source == "i1" and operation.name in ("arith.extsi", "arith.sitofp"):
            given["a"] = f"-{given['a']}"
        self._define(operation.results[0], kind, _filled(expression, given))

    # ---- what is not of each element alone ----

    def _arith_constant(self, operation: Operation) -> None:
        kind = type_of(operation.types or "i1")
        text = operation.text.strip()
        if dense := re.search(r"dense<([^\[>]*)>", text):
            text = dense[1]
        elif kind.shape:
            raise NotImplementedError(f"the constant `{text}`")
        self._define(operation.results[0], kind, _literal(text, kind.element))

    def _arith_cmpi(self, operation: Operation) -> None:
        self._compare(operation, _COMPARED)

    def _arith_cmpf(self, operation: Operation) -> None:
        self._compare(operation, _COMPARED_FLOATS)

    def _compare(self, operation: Operation, known: dict[str, str]) -> None:
        expression = known[operation.word]
        self._elementwise(operation, expression, self._type(operation.operands[0]).of("i1"))

    def _arith_select(self, operation: Operation) -> None:
        chosen, first, second = operation.operands
        kind = self._type(first)
        self._define(
            operation.results[0],
            kind,
            f"{self._at(chosen)} ? {self._at(first)} : {self._at(second)}",
        )

    def _math_fma(self, operation: Operation) -> None:
        values = ", ".join(map(self._widened, operation.operands))
        self._define(operation.results[0], operation.result_type, f"std::fma({values})")

    def _tt_clampf(self, operation: Operation) -> None:
        x, low, high = map(self._widened, operation.operands)
        carries = "true" if "all" in operation.text else "false"
        self._define(
            operation.results[0],
            operation.result_type,
            f"smaller<{carries}>(larger<{carries}>({x}, {low}), {high})",
        )

    def _tt_extern_elementwise(self, operation: Operation) -> None:
        values = ", ".join(map(self._at, operation.operands))
        kind = operation.result_type
        self._define(operation.results[0], kind, f"{operation.attribute('symbol')}({values})")

    def _tt_get_program_id(self, operation: Operation) -> None:
        self._of_axis(operation, "id")

    def _tt_get_num_programs(self, operation: Operation) -> None:
        self._of_axis(operation, "grid")

    def _of_axis(self, operation: Operation, name: str) -> None:
        axis = "xyz".index(operation.word)
        self._define(operation.results[0], operation.result_type, f"{name}[{axis}]")

    def _tt_make_range(self, operation: Operation) -> None:
        self._define(
            operation.results[0], operation.result_type, f"{operation.attribute('start')} + i"
        )

    def _tt_splat(self, operation: Operation) -> None:
        kind = operation.result_type
        self._define(operation.results[0], kind, self._at(operation.operands[0]))

    def _tt_unsplat(self, operation: Operation) -> None:
        kind = operation.result_type
        self._define(
            operation.results[0], Type((), kind.element), self._at(operation.operands[0], "0")
        )

    def _tt_broadcast(self, operation: Operation) -> None:
        (source,) = operation.operands
        kind, of_source = operation.result_type, self._type(source)
        steps = [
            0 if size == 1 else step
            for size, step in zip(of_source.shape, _strides(of_source.shape), strict=True)
        ]
        self._define(operation.results[0], kind, self._at(source, _index(kind.shape, steps)))

    def _tt_trans(self, operation: Operation) -> None:
        (source,) = operation.operands
        order = [int(each) for each in operation.attribute("order").split(",")]
        kind, steps = operation.result_type, _strides(self._type(source).shape)
        self._define(
            operation.results[0],
            kind,
            self._at(source, _index(kind.shape, [steps[each] for each in order])),
        )

    def _tt_join(self, operation: Operation) -> None:
        first, second = (self._at(each, "i / 2") for each in operation.operands)
        self._define(
            operation.results[0],
            operation.result_type,
            f"i % 2 ? {second} : {first}",
        )

    def _tt_split(self, operation: Operation) -> None:
        (source,) = operation.operands
        kind = operation.result_type
        for half, result in enumerate(operation.results):
            self._define(result, kind, self._at(source, f"2 * i + {half}"))

    def _tt_cat(self, operation: Operation) -> None:
        first, second = operation.operands
        kind, half = operation.result_type, self._type(first).count
        self._define(
            operation.results[0],
            kind,
            f"i < {half} ? {self._at(first)} : {self._at(second, f'i - {half}')}",
        )

    def _tt_gather(self, operation: Operation) -> None:
        source, indices = operation.operands
        axis, kind = (
            int(operation.attribute("axis")),
            self._type(indices).of(self._type(source).element),
        )
        steps = _strides(self._type(source).shape)
        along, steps[axis] = steps[axis], 0
        index = f"{_index(kind.shape, steps)} + {self._at(indices)} * {along}"
        self._define(operation.results[0], kind, self._at(source, index))

    def _tt_load(self, operation: Operation) -> None:
        pointer, *rest = operation.operands
        kind = self._type(pointer)
        element = f"*{self._at(pointer)}"
        if rest:
            other = self._at(rest[1]) if len(rest) > 1 else f"{_cpp(kind.pointee)}{{}}"
            element = f"{self._at(rest[0])} ? {element} : {other}"
        self._define(operation.results[0], kind.of(kind.pointee), element)

    def _tt_store(self, operation: Operation) -> None:
        pointer, value, *mask = operation.operands
        guard = f"if ({self._at(mask[0])}) " if mask else ""
        self._each(self._type(pointer), f"{guard}*{self._at(pointer)} = {self._at(value)};")

    def _tt_atomic_rmw(self, operation: Operation) -> None:
        pointer, value, *mask = operation.operands
        given = {"T": _cpp(self._type(pointer).pointee), "b": self._at(value)}
        where = self._at(mask[0]) if mask else "true"
        self._exchange(operation, _filled(_ATOMIC[operation.word], given), where)

    def _tt_atomic_cas(self, operation: Operation) -> None:
        _, expected, value = map(self._at, operation.operands)
        self._exchange(operation, f"old == {expected} ? {value} : old", "true")

    def _exchange(self, operation: Operation, following: str, where: str) -> None:
        pointer = operation.operands[0]
        kind = self._type(pointer)
        cpp = _cpp(kind.pointee)
        self._define(
            operation.results[0],
            kind.of(kind.pointee),
            f"exchange<{cpp}>({self._at(pointer)}, {where}, "
            f"[&]({cpp} old) -> {cpp} {{ return {following}; }})",
        )

    def _tt_dot(self, operation: Operation) -> None:
        a, b, c = operation.operands[:3]
        kind, (*_, rows, depth), columns = (
            self._type(c),
            self._type(a).shape,
            self._type(b).shape[-1],
        )
        cpp = _cpp(kind.element)
        name = self._bind(operation.results[0], kind)
        self._say(f"auto {name} = {self._name(c)};")
        self._say(f"for (int i = 0; i < {kind.count // columns}; ++i)")
        self._say(f"  for (int k = 0; k < {depth}; ++k)")
        left = f"static_cast<{cpp}>({self._name(a)}[i * {depth} + k])"
        right = f"static_cast<{cpp}>({self._name(b)}[(i / {rows} * {depth} + k) * {columns} + j])"
        self._say(
            f"    for (int j = 0; j < {columns}; ++j) {name}[i * {columns} + j] += {left} * {right};"
        )

    def _tt_reduce(self, operation: Operation) -> None:
        inner, size, kinds = self._along(operation)
        outputs = types_of(operation.types.rpartition(" -> ")[2])
        names = [
            self._bind(result, kind)
            for result, kind in zip(operation.results, outputs, strict=True)
        ]
        combine = self._combination(operation.regions[0], names[0])
        for name, kind in zip(names, outputs, strict=True):
            cpp = _cpp(kind.element)
            self._say(f"std::vector<{cpp}> {name}_of({kind.count});")
        self._say(f"for (int o = 0; o < {outputs[0].count}; ++o) {{")
        for name, operand, kind in zip(names, operation.operands, kinds, strict=True):
            cpp = _cpp(kind.element)
            source = f"{self._name(operand)}[(o / {inner} * {size} + k) * {inner} + o % {inner}]"
            self._say(
                f"  auto {name}_in = block<{cpp}, {size}>([&](int k) {{ return {source}; }});"
            )
        # As a tree: the error of a sum grows with its logarithm.
        self._say(f"  for (int half = {size} / 2; half > 0; half /= 2)")
        nearer = [f"{name}_in[k]" for name in names]
        given = ", ".join([*nearer, *(f"{name}_in[k + half]" for name in names), *nearer])
        self._say(f"    for (int k = 0; k < half; ++k) {combine}({given});")
        for name in names:
            self._say(f"  {name}_of[o] = {name}_in[0];")
        self._say("}")
        for name, kind in zip(names, outputs, strict=True):
            self._say(
                f"const auto {name} = {f'std::move({name}_of)' if kind.shape else f'{name}_of[0]'};"
            )

    def _tt_scan(self, operation: Operation) -> None:
        inner, size, kinds = self._along(operation)
        names = [
            self._bind(result, kind) for result, kind in zip(operation.results, kinds, strict=True)
        ]
        combine = self._combination(operation.regions[0], names[0])
        for name, operand in zip(names, operation.operands, strict=True):
            self._say(f"auto {name} = {self._name(operand)};")
        place = f"{size} - 1 - k" if operation.attribute("reverse") == "true" else "k"
        before = f"{size} - k" if operation.attribute("reverse") == "true" else "k - 1"
        self._say(f"for (int o = 0; o < {kinds[0].count // size}; ++o)")
        self._say(f"  for (int k = 1; k < {size}; ++k) {{")
        for label, at in (("now", place), ("last", before)):
            self._say(
                f"    const int {label} = (o / {inner} * {size} + {at}) * {inner} + o % {inner};"
            )
        pairs = ", ".join(
            [*(f"{name}[last]" for name in names), *(f"{name}[now]" for name in names)]
        )
        self._say(f"    {combine}({pairs}, {', '.join(f'{name}[now]' for name in names)});")
        self._say("  }")

    def _along(self, operation: Operation) -> tuple[int, int, list[Type]]:
        """Of a reduction or a scan: the elements behind its axis, the axis' size, and its operands' types."""
        kinds = [self._type(each) for each in operation.operands]
        axis, shape = int(operation.attribute("axis")), kinds[0].shape
        return math.prod(shape[axis + 1 :]), shape[axis], kinds

    def _combination(self, region: Region, name: str) -> str:
        """A lambda of two elements of each operand, and of references to its results."""
        half = len(region.arguments) // 2
        given = []
        for argument, kind in region.arguments:
            given.append(f"const {_cpp(kind.element)} {self._bind(argument, kind)}")
        results = [
            f"{_cpp(kind.element)}& r{at}" for at, (_, kind) in enumerate(region.arguments[:half])
        ]
        self._say(f"const auto {name}_combined = [&]({', '.join([*given, *results])}) {{")
        for at, value in enumerate(self._region(region)):
            self._say(f"  r{at} = {self._name(value)};")
        self._say("};")
        return f"{name}_combined"

    # ---- control flow ----

    def _scf_for(self, operation: Operation) -> None:
        loop = re.match(rf" ({NAME}) = (\S+) to (\S+) step (\S+)", operation.text)
        assert loop is not None
        kind = type_of(operation.types)
        carried = re.search(r"iter_args\((.*?)\) -> ", operation.text)
        pairs = [each.split(" = ") for each in carried[1].split(", ")] if carried else []
        names = []
        for (argument, start), result in zip(pairs, operation.results, strict=True):
            name = self._bind(result, self._type(start))
            self._say(f"auto {name} = {self._name(start)};")
            self._bind(argument, self._type(start), name)
            names.append(name)
        index, cpp = self._bind(loop[1], kind), _cpp(kind.element)
        first, end, step = (self._name(each) for each in loop.groups()[1:])
        self._say(f"for ({cpp} {index} = {first}; {index} < {end}; {index} += {step}) {{")
        self._hand_on(self._region(operation.regions[0]), names)
        self._say("}")

    def _hand_on(self, values: Sequence[str], names: Sequence[str]) -> None:
        for at, value in enumerate(values):
            self._say(f"auto next{at} = {self._name(value)};")
        for at, name in enumerate(names):
            self._say(f"{name} = std::move(next{at});")

    def _declared(self, results: Sequence[str], kinds: Sequence[Type]) -> list[str]:
        names = []
        for result, kind in zip(results, kinds, strict=True):
            cpp = _cpp(kind.element)
            name = self._bind(result, kind)
            self._say(f"{f'std::vector<{cpp}>' if kind.shape else cpp} {name}{{}};")
            names.append(name)
        return names

    def _scf_if(self, operation: Operation) -> None:
        results = operation.text.partition("->")[2]
        names = self._declared(operation.results, types_of(results) if results else [])
        self._say(f"if ({self._name(operation.operands[0])}) {{")
        for at, region in enumerate(operation.regions):
            if at:
                self._say("} else {")
            for name, value in zip(names, self._region(region), strict=False):
                self._say(f"{name} = {self._name(value)};")
        self._say("}")

    def _scf_while(self, operation: Operation) -> None:
        starts = re.findall(rf"({NAME}) = ({VALUE})", operation.text)
        before, after = operation.regions
        names = []
        for argument, start in starts:
            names.append(self._bind(argument, self._type(start)))
            self._say(f"auto {names[-1]} = {self._name(start)};")
        results = self._declared(operation.results, types_of(operation.types.rpartition(" -> ")[2]))
        self._say("while (true) {")
        self._say("{")
        holds, *values = self._region(before)
        for result, value in zip(results, values, strict=True):
            self._say(f"{result} = {self._name(value)};")
        self._say(f"if (!{self._name(holds)}) break;")
        self._say("}")
        for (argument, kind), result in zip(after.arguments, results, strict=True):
            self._bind(argument, kind, result)
        self._hand_on(self._region(after), names)
        self._say("}")

    def _tt_assert(self, operation: Operation) -> None:
        (holds,) = operation.operands
        text = operation.text.split('"')[1]
        self._each(
            self._type(holds),
            f'if (!{self._at(holds)}) {{ std::fputs("{text}\\n", stderr); std::abort(); }}',
        )


def _cpp(element: str) -> str:
    """The C++ type of an element."""
    if element.startswith("!tt.ptr<"):
        return f"{_cpp(Type((), element).pointee.split(',')[0])}*"
    if element not in ("bf16", "f16", "f32", "f64", "i1", "i8", "i16", "i32", "i64", "index"):
        raise NotImplementedError(f"the element type `{element}`")
    return "i64" if element == "index" else element


def _literal(text: str, element: str) -> str:
    if element not in (*_FLOATS, "bf16"):
        number = {"true": 1, "false": 0}.get(text)
        return f"{(int(text) if number is None else number) % 2**64}ull"
    if text.startswith("0x"):
        bits = int(text, 16)
        if element == "bf16":
            value = struct.unpack("f", struct.pack("I", bits << 16))[0]
        else:
            kind = _FLOATS[element]
            value = struct.unpack(kind, struct.pack({"e": "H", "f": "I", "d": "Q"}[kind], bits))[0]
        if math.isnan(value):
            return "NAN"
        if math.isinf(value):
            return "INFINITY" if value > 0 else "-INFINITY"
        text = repr(value)
    return text


def _filled(expression: str, given: dict[str, Any]) -> str:
    """``expression`` with what its names a, b and T stand for."""
    return re.sub(r"\b[abT]\b", lambda name: given.get(name[0], name[0]), expression)


def _strides(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[at + 1 :]) for at in range(len(shape))]


def _index(shape: Sequence[int], steps: Sequence[int]) -> str:
    """Where the element ``i`` of a block of ``shape`` lies in memory with ``steps`` along its dimensions."""
    terms = [
        f"i / {stride} % {size} * {step}"
        for size, stride, step in zip(shape, _strides(shape), steps, strict=True)
        if step and size > 1
    ]
    return " + ".join(terms) or "0"
