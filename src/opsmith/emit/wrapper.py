"""The body of one generated function, by its route.

``wrapper(entry)`` returns the C++ of the function that is registered for one operator: what the plan
says, in words, above it, then the code.  It decides nothing; each branch is a route or a derivation of
the plan.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from opsmith.description import Execution, Kernel
from opsmith.emit.signature import Parameter, Signatures, Structured
from opsmith.plan import Derivation, Elementwise, Entry, Route, Shape

# The boxed kernel of the runtime that each last resort ends in.
BOXED_KERNELS: Mapping[Route, str] = {
    Route.FALLBACK: "opsmith::fallback",
    Route.DENIED: "opsmith::denied",
    Route.MISSING: "opsmith::missing",
}


@dataclass(frozen=True)
class Wrapper:
    """A generated function: its C++ name, text and the headers that it needs.

    ``target`` is the C++ expression to register.
    """

    target: str
    text: str
    headers: frozenset[str]


def wrapper(entry: Entry, signatures: Signatures) -> Wrapper:
    """The function registered for ``entry``, whose route must be one that opsmith generates."""
    return _Writer(entry, signatures).write()


class _Writer:
    def __init__(self, entry: Entry, signatures: Signatures) -> None:
        assert entry.kernel is not None
        self.entry = entry
        self.kernel: Kernel = entry.kernel
        self.signatures = signatures
        self.signature = signatures[entry.name]
        self.source = signatures[self.kernel.operator]
        self.headers = {self.signature.header}

    def write(self) -> Wrapper:
        if self.entry.route is Route.KERNEL and not self._needs_wrapper():
            return Wrapper(f"::{self.kernel.symbol}", "", frozenset())
        body = [*self._prologue(), *self._body()]
        # An empty line keeps clang-format from running the schema and the reason into one paragraph.
        reason = f"{self.entry.route.value}: {self.entry.why}"
        paragraphs = [*textwrap.wrap(self.signature.schema, 104), "", *textwrap.wrap(reason, 104)]
        comment = "\n".join(f"// {line}".rstrip() for line in paragraphs)
        text = f"{comment}\n{self.signature.definition()} {{\n" + "\n".join(body) + "\n}\n"
        return Wrapper(self.signature.cpp_name, text, frozenset(self.headers))

    def _needs_wrapper(self) -> bool:
        return bool(
            self.kernel.device_guard
            or self.kernel.dtypes
            or self.kernel.execution is Execution.HOST
        )

    # ---- before the kernel

    def _prologue(self) -> list[str]:
        tensors = [p.name for p in self.signature.parameters() if p.tensor]
        lines = []
        if tensors:
            runs = "kOnHost" if self.kernel.execution is Execution.HOST else "kOnDevice"
            lines.append(
                f"const opsmith::Call<opsmith::Operands::{self._operands()}, opsmith::Runs::{runs}> "
                f"call({', '.join([self._quoted_name(), *tensors])});"
            )
        if self.kernel.dtypes and not self._is_iterator():
            lines += self._refuse_unless(" && ".join(self._dtype_tests()))
        return lines

    def _operands(self) -> str:
        # Variants that torchgen generates lack the tags and checks; the functional has them.
        group = self.entry.group
        name = group.functional if group is not None and group.functional else self.entry.name
        function = self.signatures[name].function
        if "pointwise" in function.tags or self._is_iterator():
            return "kScalarsFromCpu"
        return "kOneDevice" if function.device_check.name == "ExactSame" else "kAny"

    def _is_iterator(self) -> bool:
        return self.kernel.structured and Structured(self.kernel.operator).iterator

    def _dtype_tests(self) -> list[str]:
        by_name = {p.name: p for p in self.signature.parameters() if p.tensor}
        tests = []
        for argument, names in self.kernel.dtypes:
            parameter = by_name[argument] if argument else next(iter(by_name.values()))
            tests.append(f"{_dtypes(names)}.has({parameter.name})")
        return tests

    def _refuse_unless(self, condition: str) -> list[str]:
        assert self.entry.other_dtypes is not None
        boxed = BOXED_KERNELS[self.entry.other_dtypes]
        arguments = ", ".join(parameter.name for parameter in self.signature.parameters())
        return [
            f"if (C10_UNLIKELY(!({condition}))) {{",
            f"return opsmith::call_boxed<{self.signature.ops_struct}, &{boxed}>({arguments});",
            "}",
        ]

    # ---- the kernel and what is around it

    def _body(self) -> list[str]:
        if self.entry.route is Route.KERNEL:
            return [f"return {self._run()};"]
        if self.entry.route is Route.STRUCTURED:
            return self._structured()
        assert self.entry.derivation is not None
        return _DERIVATIONS[self.entry.derivation](self)

    def _structured(self) -> list[str]:
        structured = self._structured_class(self.kernel.operator)
        results = structured.results
        match self.signature.function.func.kind().name:
            case "functional":
                head = f"opsmith::Functional<{structured.meta_class}, {len(results)}> op;"
                moved = [f"std::move(op.result({i}))" for i in range(len(results))]
                tail = [f"return {_packed(moved)};"]
            case "inplace":
                head = f"opsmith::Inplace<{structured.meta_class}> op(self);"
                tail = ["op.finish();", "return self;"]
            case _:
                outs = self.signature.outputs()
                head = (
                    f"opsmith::Out<{structured.meta_class}, {len(results)}> op({', '.join(outs)});"
                )
                tail = ["op.finish();", f"return {self._forwarded(outs)};"]
        meta = f"op.meta({structured.meta_arguments(self.signature)});"
        lines = [head, f"const auto precomputed = {meta}" if structured.precomputes else meta]
        if structured.iterator and self.kernel.dtypes:
            lines += self._refuse_unless(f"{_dtypes(self.kernel.dtypes[0][1])}.has(op)")
        expressions = {name: f"op.result({index})" for index, name in enumerate(results)}
        call = (
            f"::{self.kernel.symbol}({structured.kernel_arguments(self.signature, expressions)});"
        )
        if structured.iterator:
            call = f"opsmith::run_iterator(op, [&](at::TensorIteratorBase& iter) {{ {call} }});"
        return [*lines, call, *tail]

    def _run(self, values: Mapping[str, str] | None = None) -> str:
        """A call of the kernel, in the signature of its own operator."""
        values = values or {}
        names = (p.name for p in self.source.parameters())
        return f"::{self.kernel.symbol}({', '.join(values.get(name, name) for name in names)})"

    def _allocate(self, names: list[str], *, fast: bool) -> list[str]:
        """Declares the tensors ``names`` with the shapes and dtypes of the results."""
        if self.entry.shape is Shape.META_KERNEL:
            return self._allocate_as_meta(names)
        structured = self._structured_class(self._group_out())
        allocate = [
            f"opsmith::Functional<{structured.meta_class}, {len(names)}> op;",
            f"op.meta({structured.meta_arguments(self.signature)});",
            *(f"{name} = std::move(op.result({i}));" for i, name in enumerate(names)),
        ]
        lines = [f"at::Tensor {name};" for name in names]
        if not (fast and self.entry.elementwise):
            return [*lines, "{", *allocate, "}"]
        operands = self._operand_names()
        dtype = (
            "at::kBool"
            if self.entry.elementwise is Elementwise.BOOL
            else f"{operands[0]}.scalar_type()"
        )
        return [
            *lines,
            f"if (C10_LIKELY(opsmith::elementwise_alike({', '.join(operands)}))) {{",
            f"{names[0]} = opsmith::empty_fast({operands[0]}.sizes(), {dtype}, {operands[0]}.device());",
            "} else {",
            *allocate,
            "}",
        ]

    def _structured_class(self, out_name: str) -> Structured:
        """PyTorch's structured class of the group, whose header the function then needs."""
        structured = Structured(out_name)
        self.headers.add(structured.header)
        return structured

    def _group_out(self) -> str:
        """The out operator of the entry's group, which names the structured class."""
        assert self.entry.group is not None and self.entry.group.out is not None
        return self.entry.group.out

    def _operand_names(self) -> list[str]:
        return [p.name for p in self.signature.inputs() if p.tensor]

    def _meta_call(self) -> str:
        """A call of the functional operator's meta kernel with this function's arguments."""
        assert self.entry.group is not None and self.entry.group.functional is not None
        functional = self.signatures[self.entry.group.functional]
        self.headers.add(functional.header)
        arguments = functional.dispatcher_arguments(_on_meta)
        return f"{functional.ops_struct}::redispatch(opsmith::kMeta, {arguments})"

    def _allocate_as_meta(self, names: list[str]) -> list[str]:
        if len(names) == 1:
            return [f"at::Tensor {names[0]} = opsmith::allocate_as({self._meta_call()});"]
        return [
            f"const auto shapes = {self._meta_call()};",
            *(
                f"at::Tensor {name} = opsmith::allocate_as(std::get<{index}>(shapes));"
                for index, name in enumerate(names)
            ),
        ]

    @staticmethod
    def _forwarded(names: list[str]) -> str:
        if len(names) == 1:
            return names[0]
        return f"std::forward_as_tuple({', '.join(names)})"

    def functional_from_out(self) -> list[str]:
        outs = self.source.outputs()
        moved = [f"std::move({name})" for name in outs]
        returned = outs[0] if len(outs) == 1 else _packed(moved)
        return [*self._allocate(outs, fast=True), f"{self._run()};", f"return {returned};"]

    def functional_from_inplace(self) -> list[str]:
        return [
            *self._allocate(["result"], fast=False),
            "result.copy_(self);",
            f"{self._run({'self': 'result'})};",
            "return result;",
        ]

    def out_from_functional(self) -> list[str]:
        outs = self.signature.outputs()
        if len(outs) == 1:
            return [
                f"opsmith::write_out({self._quoted_name()}, {self._run()}, {outs[0]});",
                f"return {outs[0]};",
            ]
        return [
            f"const auto results = {self._run()};",
            *(
                f"opsmith::write_out({self._quoted_name()}, std::get<{index}>(results), {out});"
                for index, out in enumerate(outs)
            ),
            f"return {self._forwarded(outs)};",
        ]

    def out_from_inplace(self) -> list[str]:
        (out,) = self.signature.outputs()
        operands = ", ".join(self._operand_names())
        return [
            f"const at::Tensor shape = {self._meta_call()};",
            f"at::Tensor result = opsmith::result_in({out}, shape, {operands});",
            "result.copy_(self);",
            f"{self._run({'self': 'result'})};",
            f"if (!result.is_same({out})) {{",
            f"opsmith::write_out({self._quoted_name()}, result, {out});",
            "}",
            f"return {out};",
        ]

    def inplace_from_out(self) -> list[str]:
        (out,) = self.source.outputs()
        operands = self._operand_names()
        if self.entry.shape is Shape.STRUCTURED_META:
            structured = self._structured_class(self._group_out())
            check = [
                f"opsmith::Inplace<{structured.meta_class}> op(self);",
                f"op.meta({structured.meta_arguments(self.signature)});",
            ]
        else:
            check = [
                f"opsmith::check_inplace_result({self._quoted_name()}, {self._meta_call()}, self);",
                *(f"opsmith::check_overlap(self, {name});" for name in operands if name != "self"),
            ]
        if self.entry.elementwise:
            condition = f"opsmith::elementwise_into({', '.join(operands)})"
            check = [f"if (C10_UNLIKELY(!{condition})) {{", *check, "}"]
        return [*check, f"{self._run({out: 'self'})};", "return self;"]

    def inplace_from_out_temporary(self) -> list[str]:
        (out,) = self.source.outputs()
        return [
            *self._allocate([out], fast=False),
            f"{self._run()};",
            f"opsmith::write_inplace({self._quoted_name()}, {out}, self);",
            "return self;",
        ]

    def inplace_from_functional(self) -> list[str]:
        return [
            f"opsmith::write_inplace({self._quoted_name()}, {self._run()}, self);",
            "return self;",
        ]

    def _quoted_name(self) -> str:
        return f'"{self.signature.qualified_name}"'


_DERIVATIONS: Mapping[Derivation, Callable[[_Writer], list[str]]] = {
    Derivation.FUNCTIONAL_FROM_OUT: _Writer.functional_from_out,
    Derivation.FUNCTIONAL_FROM_INPLACE: _Writer.functional_from_inplace,
    Derivation.OUT_FROM_FUNCTIONAL: _Writer.out_from_functional,
    Derivation.OUT_FROM_INPLACE: _Writer.out_from_inplace,
    Derivation.INPLACE_FROM_OUT: _Writer.inplace_from_out,
    Derivation.INPLACE_FROM_OUT_TEMPORARY: _Writer.inplace_from_out_temporary,
    Derivation.INPLACE_FROM_FUNCTIONAL: _Writer.inplace_from_functional,
}


def kernel_declaration(kernel: Kernel, name: str, signatures: Signatures) -> str:
    """The C++ declaration of ``kernel``, called ``name``, as its author must define it."""
    if kernel.structured:
        return Structured(kernel.operator).kernel_declaration(name)
    return signatures[kernel.operator].kernel_declaration(name)


def _on_meta(parameter: Parameter) -> str:
    return f"opsmith::meta({parameter.name})" if parameter.tensor else parameter.name


def _dtypes(names: tuple[str, ...]) -> str:
    return f"opsmith::DtypeSet{{{', '.join(f'at::ScalarType::{name}' for name in names)}}}"


def _packed(values: list[str]) -> str:
    return values[0] if len(values) == 1 else f"std::make_tuple({', '.join(values)})"
