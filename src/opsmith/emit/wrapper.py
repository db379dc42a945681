"""The body of one generated function, by its route.

``wrapper(entry)`` returns the C++ of the function that is registered for one operator: what the plan
says, in words, above it, then the code.  It decides nothing; each branch is a route or a derivation of
the plan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from opsmith.description import Abi, DimOrder, Execution, Kernel
from opsmith.emit.derived import (
    DerivedBody,
    formatted_as_self,
    kept_apart,
    refused_overlaps,
    structured_head,
)
from opsmith.emit.signature import Signature, Signatures, Structured
from opsmith.emit.text import address, comment, dtype_set, quoted
from opsmith.plan import Entry, Into, KernelCall, Operands, Route, Shape
from opsmith.plan.conditions import (
    ComputesIn,
    HasDimOrder,
    HasDtype,
    IsLean,
    SameDtype,
    ShareDtype,
    conditions,
    converted_scalars,
)

# The boxed kernel of the runtime that each last resort ends in.
BOXED_KERNELS: Mapping[Route, str] = {
    Route.FALLBACK: "opsmith::fallback",
    Route.DENIED: "opsmith::denied",
    Route.MISSING: "opsmith::missing",
}

# Headers of the runtime that generated functions use.
WRAPPER_HEADERS = (
    "opsmith/generated/call.h",
    "opsmith/generated/derived.h",
    "opsmith/generated/dtype_set.h",
    "opsmith/fallback/fallback.h",
    "opsmith/generated/structured.h",
)

# The C++ names, in opsmith/generated/call.h.
RUNS: Mapping[Execution, str] = {
    Execution.DEVICE: "kOnDevice",
    Execution.HOST: "kOnHost",
    Execution.COPIES: "kOnCopies",
    Execution.FALLBACK: "kOnDevice",
}


def runs_of(call: KernelCall) -> str:
    """How the kernel runs, by its C++ name."""
    if call.is_queued:
        return "kQueued"
    if call.is_recorded:
        return "kOnCopiesInOrder" if call.execution is Execution.COPIES else "kInOrder"
    return RUNS[call.execution]


_OPERANDS: Mapping[Operands, str] = {
    Operands.ONE_DEVICE: "kOneDevice",
    Operands.SCALARS_FROM_CPU: "kScalarsFromCpu",
    Operands.ANY: "kAny",
}


ON_COPIES = "opsmith/generated/on_copies.h"
"""The header of kernels that work on copies."""


@dataclass(frozen=True)
class Wrapper:
    """A generated function: its C++ name, text and the headers that it needs.

    ``target`` is the C++ expression to register, ``signature`` what it looks like.
    """

    target: str
    signature: Signature
    text: str
    headers: frozenset[str]


def wrapper(entry: Entry, signatures: Signatures) -> Wrapper:
    """The function registered for ``entry``, whose route must be one that opsmith generates.

    The functions of the rest of its chain stand before it.
    """
    # From the last of the chain to the first, which calls those behind it.
    written: list[Wrapper] = []
    for depth, link in reversed(list(enumerate(entry.chain))):
        name = _function_name(signatures[entry.name], depth)
        behind = written[-1].target if written else ""
        written.append(_Writer(link, signatures, name, behind).write())
    first = written[-1]
    text = "\n".join(each.text for each in written if each.text)
    headers = first.headers.union(*(each.headers for each in written))
    return Wrapper(first.target, first.signature, text, headers)


def _function_name(signature: Signature, depth: int) -> str:
    return f"{signature.cpp_name}_next{depth}" if depth else signature.cpp_name


def registered(wrappers: Iterable[tuple[Entry, Wrapper]]) -> dict[str, str]:
    """The function to register for each operator: the one generated for it, or its kernel itself."""
    return {entry.name: address(generated.target) for entry, generated in wrappers}


class _Writer:
    """Writes the function ``name``, which leaves what its kernel does not take to ``behind``, if any."""

    def __init__(self, entry: Entry, signatures: Signatures, name: str, behind: str) -> None:
        assert entry.call is not None
        self.entry = entry
        self.call = entry.call
        self.name = name
        self.behind = behind
        self.kernel = entry.call.kernel
        self.signatures = signatures
        # A structured kernel gets what PyTorch's meta function computed, which has no SymInt.
        symint = self.kernel.symint and not self.kernel.structured
        self.signature = signatures[entry.name].taking(symint=symint)
        self.source = signatures[self.kernel.operator].taking(symint=symint)
        self.headers = {self.signature.header}
        self.is_lean = self.kernel.abi is Abi.EXECUTORCH
        self.on_copies = self.kernel.execution is Execution.COPIES
        self.conditions = conditions(entry, *self.source.tensor_arguments())
        self.computes_in = next(
            (c.dtypes for c in self.conditions if isinstance(c, ComputesIn)), ()
        )
        self.names = self._names_of_kernels_arguments()
        if self.kernel.through:
            self.headers |= {self.source.native_header, "opsmith/generated/stub.h"}
        if self.is_lean:
            self.headers |= {"bridge/lean_call.h", "bridge/lean_checks.h"}
        if self.is_lean and (self.call.is_recorded or self.on_copies):
            self.headers.add("bridge/queued_call.h")

    def write(self) -> Wrapper:
        if self._is_direct() and not self._needs_wrapper():
            return Wrapper(
                self.source.address(self.kernel.symbol, self.kernel),
                self.signature,
                "",
                frozenset(),
            )
        body = [*self._prologue(), *self._or_fallen_back(self._or_refused(self._body()))]
        above = comment(self.signature.schema, f"{self.entry.route.value}: {self.entry.why}")
        head = self.signature.definition(self.name)
        text = f"{above}\n{head} {{\n" + "\n".join(body) + "\n}\n"
        return Wrapper(self.name, self.signature, text, frozenset(self.headers))

    def _is_direct(self) -> bool:
        """Whether the kernel is the operator's own, called with its very arguments."""
        if self.entry.route is Route.STUB:
            return not self.kernel.structured
        return self.entry.route is Route.KERNEL or self.entry.route in BOXED_KERNELS

    def _needs_wrapper(self) -> bool:
        return bool(
            self.kernel.fails_over
            or self.behind
            or self.kernel.device_guard
            or self.call.resolves_operands
            or self.kernel.dtypes
            or self.kernel.execution in (Execution.HOST, Execution.COPIES)
        )

    # ---- before the kernel

    def _prologue(self) -> list[str]:
        tensors = [p.name for p in self.signature.parameters() if p.tensor]
        factory = self.signature.factory
        lines = []
        if self.call.resolves_operands:
            self.headers.add("opsmith/generated/lazy_operands.h")
            lines += self._hand_over_if(
                f"opsmith::has_lazy_operands({', '.join(tensors)})",
                "opsmith::with_resolved_operands",
            )
        if tensors or factory:
            runs = runs_of(self.call)
            kind = "FactoryCall" if factory else "Call"
            options = ["layout", "device", "pin_memory"] if factory else []
            operands = _OPERANDS[self.call.operands]
            lines.append(
                f"const opsmith::{kind}<opsmith::Operands::{operands}, opsmith::Runs::{runs}> "
                f"call({', '.join([self._quoted_name(), *options, *tensors])});"
            )
            generators = [p.name for p in self.signature.parameters() if p.type == "Generator"]
            if generators and tensors and not factory:
                self.headers.add("opsmith/generated/generator_argument.h")
                checked = ", ".join([*generators, *tensors])
                lines.append(f"opsmith::check_generator_of({checked});")
        if factory:
            self.headers.add("opsmith/generated/factory.h")
            if tensors and self.entry.route is Route.DERIVED:
                lines += self._hand_over_if("call.elsewhere()", "opsmith::fallback")
        tests = self._tests(self.names, self.names)
        if self.is_lean:
            # A lean Scalar holds no complex number.
            scalars = [p.name for p in self.signature.parameters() if p.type == "Scalar"]
            tests += [f"opsmith::are_real({', '.join(scalars)})"] if scalars else []
        if tests:
            lines += self._refuse_unless(" && ".join(tests))
        if self.call.overlaps_on_cpu:
            lines += self._hand_over_if("opsmith::shares_elements(self)", "opsmith::fallback")
        if self.call.gaps_on_cpu:
            has_gaps = "!self.is_non_overlapping_and_dense()"
            lines += self._hand_over_if(has_gaps, "opsmith::fallback")
        if self.call.execution is Execution.COPIES:
            self.headers.add("opsmith/fallback/fallback_counts.h")
            name = self._quoted_name()
            counted = f"call.elsewhere() ? nullptr : {name}" if factory else name
            lines.append(f"const opsmith::CountedHostKernel counted({counted});")
        return lines

    def _tests(self, names: Mapping[str, str], new: Collection[str]) -> list[str]:
        """The kernel's conditions on its arguments, as C++.

        ``names`` stand for those that are there, of which ``new`` have not been tested.
        """
        tests = []
        for condition in self.conditions:
            match condition:
                case HasDtype(argument, dtypes, ()) if argument in new:
                    tests.append(self._has(dtypes, names[argument]))
                case HasDtype(argument, dtypes, operands) if argument in new:
                    asked = ", ".join(names[each] for each in (argument, *operands))
                    tests.append(f"opsmith::takes({dtype_set(dtypes)}, {asked})")
                case IsLean(arguments):
                    asked = ", ".join(
                        dict.fromkeys(names[each] for each in arguments if each in new)
                    )
                    if asked:
                        tests.append(f"opsmith::are_lean({asked})")
                case ShareDtype(arguments, dtypes):
                    every = dict.fromkeys(names[each] for each in arguments if each in names)
                    if every:
                        tests.append(
                            f"opsmith::share_dtype({dtype_set(dtypes)}, {', '.join(every)})"
                        )
                case SameDtype(first, second) if {first, second} <= names.keys():
                    if {first, second}.intersection(new):
                        tests.append(f"opsmith::share_dtype({names[first]}, {names[second]})")
                case HasDimOrder(argument, dim_order) if argument in new:
                    order = ", ".join(map(str, dim_order))
                    tests.append(f"opsmith::has_dim_order({names[argument]}, {{{order}}})")
        return tests

    def _has(self, dtypes: Sequence[str], name: str) -> str:
        """Whether what the parameter ``name`` holds has one of ``dtypes``."""
        listed = any(p.name == name and p.optional_list for p in self.signature.parameters())
        if listed:
            self.headers.add("opsmith/generated/optional_list.h")
            return f"opsmith::all_have({dtype_set(dtypes)}, {name})"
        return f"{dtype_set(dtypes)}.has({name})"

    def _names_of_kernels_arguments(self) -> dict[str, str]:
        """The parameter of this variant that stands for each Tensor argument of the kernel."""
        mine = {p.name for p in self.signature.parameters() if p.tensor}
        inputs, outs = self.source.tensor_arguments()
        names = {name: self.source.parameter_of(name) for name in inputs}
        names = {name: parameter for name, parameter in names.items() if parameter in mine}
        if self.call.derivation and self.call.derivation.rule.into is Into.SELF:
            return names | {outs[0]: "self"}
        return names | dict(zip(outs, self.signature.outputs(), strict=False))

    def _refuse_unless(self, condition: str) -> list[str]:
        return self._hand_over_if(f"!({condition})", self._last_resort())

    def _last_resort(self) -> str:
        """The boxed kernel for calls that no kernel takes; empty where another one is asked first."""
        if self.behind:
            return ""
        assert self.call.other_dtypes is not None
        return BOXED_KERNELS[self.call.other_dtypes]

    def _hand_over_if(self, condition: str, boxed: str) -> list[str]:
        return [f"if (C10_UNLIKELY({condition})) {{", self._hand_over(boxed), "}"]

    def _hand_over(self, boxed: str) -> str:
        arguments = ", ".join(parameter.name for parameter in self.signature.parameters())
        if not boxed:
            return f"return {self.behind}({arguments});"
        return f"return opsmith::call_boxed<{self.signature.ops_struct}, &{boxed}>({arguments});"

    def _or_refused(self, body: list[str]) -> list[str]:
        """``body``, and what happens where a stub within it is called in a dtype that it does not take."""
        if not (self.kernel.through and self.computes_in):
            return body
        refusal = self._hand_over(self._last_resort())
        return ["try {", *body, "} catch (const opsmith::StubRejected&) {", refusal, "}"]

    def _or_fallen_back(self, body: list[str]) -> list[str]:
        """``body``, and what stands behind its kernel, or the fallback, where that refuses the call."""
        if not self.kernel.fails_over:
            return body
        self.headers.add("opsmith/fallback/fail_over.h")
        arguments = [parameter.name for parameter in self.signature.parameters()]
        if self.behind:
            call = f"{self.behind}({', '.join(arguments)})"
            catch = "} catch (const opsmith::Unsupported&) {"
        else:
            call = f"opsmith::fail_over<{self.signature.ops_struct}>({', '.join(['refusal', *arguments])})"
            catch = "} catch (const opsmith::Unsupported& refusal) {"
        return [
            "try {",
            *body,
            catch,
            f"return {call};",
            "}",
        ]

    # ---- the kernel and what is around it

    def _body(self) -> list[str]:
        if self._is_direct() and not self.is_lean:
            run = self._run({})
            given = self.signature.returns_given
            if self.on_copies and given is not None:
                return [f"{run};", *([f"return {self._forwarded(given)};"] if given else [])]
            return [f"return {run};"]
        if self.kernel.structured:
            return self._structured()
        body = DerivedBody(
            self.call,
            self.entry.group,
            self.signatures,
            self.signature,
            self.source,
            self._run,
            self._unless_result_is_taken,
            self._elsewhere_if,
            self.headers,
        )
        return body.lines() if self.call.derivation else body.out_of_lean()

    def _unless_result_is_taken(self, names: Sequence[str]) -> list[str]:
        """Hands over where the kernel does not take a result that was allocated for it."""
        _, outs = self.source.tensor_arguments()
        tests = self._tests({**self.names, **dict(zip(outs, names, strict=True))}, outs)
        return self._refuse_unless(" && ".join(tests)) if tests else []

    def _elsewhere_if(self, condition: str) -> list[str]:
        """Hands over calls whose `out` has another dtype than the result, where the CPU can answer them."""
        return self._hand_over_if(condition, "opsmith::fallback") if self.call.casts_on_cpu else []

    def _structured(self) -> list[str]:
        structured = self._structured_class(self.kernel.operator)
        results = structured.results
        # PyTorch's own kernel is a class on top of the meta function's.
        base = f"::{self.kernel.symbol}" if self.kernel.through else structured.meta_class
        match self.signature.function.func.kind().name:
            case "functional":
                head = f"opsmith::Structured<{base}, {len(results)}> op;"
                moved = [f"op.take({i})" for i in range(len(results))]
                tail = [f"return {_packed(moved)};"]
            case "inplace":
                head = self._structured_head(base, "kInplace", ["self"])
                tail = ["op.finish();", "return self;"]
            case _:
                outs = self.signature.outputs()
                head = self._structured_head(base, "kOut", outs)
                tail = ["op.finish();", f"return {self._forwarded(outs)};"]
        arguments = structured.meta_arguments(self.signature)
        meta = f"op.meta({arguments});"
        if self.kernel.meta_symbol:
            meta = f"::{self.kernel.meta_symbol}({', '.join(filter(None, ['op', arguments]))});"
        lines = [head, f"const auto precomputed = {meta}" if structured.precomputes else meta]
        expressions = {name: f"op.result({index})" for index, name in enumerate(results)}
        if self.kernel.through:
            impl = structured.impl_arguments(self.signature, expressions)
            return [*lines, f"op.impl({impl});", *tail]
        if self.computes_in:
            lines += self._refuse_unless(f"{dtype_set(self.computes_in)}.has(op)")
        given = structured.kernel_arguments(self.signature, expressions)
        written = set(expressions.values())
        if structured.iterator:
            return [*lines, self._run_iterator(", ".join(given)), *tail]
        lines += formatted_as_self(self.call)
        if self.signature.outputs():
            lines += refused_overlaps(self.call, self.signature)
            if (
                not self.call.meta_fills
            ):  # which was done apart; and memory that holds nothing would not do
                lines.append(kept_apart(self.call, self.signature))
        if self.on_copies and not self.call.meta_fills:
            given = [f"opsmith::overwritten({a})" if a in written else a for a in given]
        return [*lines, f"{self._call(given)};", *tail]

    def _structured_head(self, base: str, how: str, given: Sequence[str]) -> str:
        return structured_head(self.call, self.signature, base, how, given, self.headers)

    def _run_iterator(self, arguments: str) -> str:
        """A call of a structured kernel with the meta function's iterator, cast unless it does so itself."""
        call = f"::{self.kernel.symbol}({arguments});"
        if self.on_copies:
            self.headers.add(ON_COPIES)
            casts = "kInTheKernel" if self.kernel.casts else "kBeforeTheKernel"
            return (
                f"opsmith::run_on_copies(op, opsmith::Access::kOverwrite, opsmith::Casts::{casts}, "
                f"[&](at::TensorIteratorBase& iter) {{ {call} }});"
            )
        if self.kernel.casts:
            return f"at::TensorIteratorBase& iter = op;\n{call}"
        return f"opsmith::run_iterator(op, [&](at::TensorIteratorBase& iter) {{ {call} }});"

    def _call(self, arguments: Sequence[str]) -> str:
        """A call of a kernel of the ``aten`` ABI."""
        if not self.on_copies:
            return f"::{self.kernel.symbol}({', '.join(arguments)})"
        self.headers.add(ON_COPIES)
        called = f"[&](auto&&... copies) {{ return ::{self.kernel.symbol}(copies...); }}"
        return f"opsmith::on_copies({', '.join([called, *arguments])})"

    def _run(self, values: Mapping[str, str]) -> str:
        """A call of the kernel, in the signature of its own operator, with other ``values`` for some."""
        arguments = [
            self._marked(p.name, values.get(p.name, p.name)) for p in self.source.parameters()
        ]
        if not self.is_lean:
            return self._call(arguments)
        orders = {DimOrder.ANY: "kAny", DimOrder.CONTIGUOUS: "kContiguous"}[self.kernel.dim_order]
        about = [
            self._quoted_name(),
            quoted(f"`{self.kernel.symbol}` (library {self.kernel.library})"),
            f"opsmith::DimOrders::{orders}",
        ]
        if scalars := converted_scalars(self.call, self.source.tensor_arguments()[0]):
            names = [self.source.parameter_of(name) for name in scalars]
            operands = ", ".join(values.get(name, name) for name in names)
            about.append(f"opsmith::scalar_dtype({operands})")
        elif self.kernel.execution is Execution.DEVICE:
            about.append("c10::ScalarType::Undefined")
        if self.kernel.execution is Execution.DEVICE:
            about.append("opsmith::Elements::kOnDevice")
        how = "lean_call"
        if self.call.is_recorded:
            how = "queue_lean_call" if self.call.is_queued else "lean_call_in_order"
        if self.on_copies:
            how += "_on_copies"
        given = [f"&::{self.kernel.symbol}", f"{{{', '.join(about)}}}", *arguments]
        return f"opsmith::{how}({', '.join(given)})"

    def _marked(self, name: str, value: str) -> str:
        """``value``, for the kernel's argument ``name``; with copies, and what the kernel does with it."""
        changes = name in self.source.changed or name in self.call.updates
        if changes and self.is_lean:
            self.headers.add("bridge/updated.h")
            value = f"opsmith::Updated({value})"
        if not self.on_copies:
            return value
        if name == "device" and self.source.factory:
            return "::std::optional<at::Device>(at::kCPU)"
        if name in self.source.outputs() and self.call.shape is not Shape.KERNEL:
            return f"opsmith::overwritten({value})"
        return f"opsmith::changed({value})" if changes else value

    def _structured_class(self, out_name: str) -> Structured:
        """PyTorch's structured class of the group, whose header the function then needs."""
        structured = Structured(out_name)
        self.headers.add(structured.header)
        return structured

    @staticmethod
    def _forwarded(names: list[str]) -> str:
        if len(names) == 1:
            return names[0]
        return f"std::forward_as_tuple({', '.join(names)})"

    def _quoted_name(self) -> str:
        return f'"{self.signature.qualified_name}"'


@dataclass(frozen=True)
class Declarations:
    """The functions that a kernel's author must define, as C++ declarations by qualified name.

    ``headers`` are those that the declarations need beyond ``at::Tensor`` and ``TensorIterator``.
    """

    by_symbol: Mapping[str, str]
    headers: frozenset[str]


def declarations(
    kernel: Kernel, signatures: Signatures, *, qualified: bool = False
) -> Declarations:
    """The functions behind ``kernel``, each declared with its namespace only where ``qualified``."""

    def named(symbol: str) -> str:
        return symbol if qualified else symbol.rpartition("::")[2]

    if kernel.abi is Abi.EXECUTORCH:
        text = signatures[kernel.operator].lean_declaration(named(kernel.symbol))
        return Declarations({kernel.symbol: text}, frozenset({"bridge/lean_call.h"}))
    if not kernel.structured:
        signature = signatures[kernel.operator].taking(symint=kernel.symint)
        text = signature.kernel_declaration(named(kernel.symbol))
        return Declarations({kernel.symbol: text}, frozenset())
    structured = Structured(kernel.operator)
    declared = {kernel.symbol: structured.kernel_declaration(named(kernel.symbol))}
    if not kernel.meta_symbol:
        return Declarations(declared, frozenset())
    declared[kernel.meta_symbol] = structured.meta_declaration(named(kernel.meta_symbol))
    return Declarations(declared, frozenset({structured.header}))


def _packed(values: list[str]) -> str:
    return values[0] if len(values) == 1 else f"std::make_tuple({', '.join(values)})"
