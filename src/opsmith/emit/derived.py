"""The body of a derived variant: what is written around a call of another variant's kernel.

Written by the rules of :class:`~opsmith.plan.Derivation`.  Several results, lists of Tensors and arguments
that the operator changes beside its results are handled alike: see :attr:`Operator.results`.  Called
by ``wrapper``, which knows how the kernel is called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from opsmith.description import Execution
from opsmith.emit.signature import Parameter, Signature, Signatures, Structured
from opsmith.plan import Elementwise, Into, KernelCall, MetaRule, Rule, Shape
from opsmith.schema import Group, Variant


@dataclass
class DerivedBody:
    """The lines of a derived variant.

    ``signature`` is the variant's own, ``source`` that of the kernel's operator; ``run`` writes a call
    of the kernel in which some of its arguments, by name, are replaced; ``unless_taken`` what happens to
    results, by name, that were allocated for a kernel which does not take them, ``elsewhere_if`` to calls on
    a condition that are the CPU's.  ``headers`` collects what the lines need.
    """

    call: KernelCall
    group: Group | None
    signatures: Signatures
    signature: Signature
    source: Signature
    run: Callable[[Mapping[str, str]], str]
    unless_taken: Callable[[Sequence[str]], list[str]]
    elsewhere_if: Callable[[str], list[str]]
    headers: set[str] = field(default_factory=set)

    def lines(self) -> list[str]:
        """The body, from the check of the arguments' contract to the return."""
        assert self.call.derivation is not None
        rule = self.call.derivation.rule
        if self.call.shape is Shape.KERNEL:
            run, results = self._run_sized()
            return [*run, self._return_new(results)]
        if rule.into is Into.RETURNED:
            options = self._options_of_out() if rule.wanted is Variant.OUT else {}
            return [*self._contract(rule), *self._write_results(options), *self._return_changed()]
        names, destination = self._destination(rule)
        values = dict(zip(self.source.outputs(), names, strict=False))
        operand, finish = [], []
        if rule.source is Variant.INPLACE:
            operand = [f"auto operand = opsmith::operand_in({names[0]}, self);"]
            finish = [f"opsmith::finish({names[0]}, operand);"]
            values = {"self": "operand"}
        copies: dict[str, str] = {}
        if rule.wanted is Variant.FUNCTIONAL and self.signature.is_functional:
            changed = self.source.results()[len(names) :]
            copies = {result.name: f"new_{result.name}" for result in changed}
        filled = [
            *operand,
            *(f"auto {new} = opsmith::copy_of({old});" for old, new in copies.items()),
        ]
        return [
            *self._contract(rule),
            *destination,
            *filled,
            *(self._settled() if filled else []),
            f"{self.run({**values, **copies})};",
            *finish,
            *(self._write_back(rule, names) if rule.writes_back else []),
            *(
                [self._return_new([*names, *copies.values()])]
                if rule.wanted is Variant.FUNCTIONAL
                else self._return_changed()
            ),
        ]

    # ---- the steps of a rule

    def _contract(self, rule: Rule) -> list[str]:
        """The checks that PyTorch's own variant makes before it writes anything."""
        structured = self.call.shape is Shape.STRUCTURED_META
        refused = refused_overlaps(self.call, self.signature)
        if rule.wanted is Variant.OUT and structured:
            return [*self._structured_check("kOut", self.signature.outputs()), *refused]
        if rule.wanted is Variant.OUT:
            return [*self._check_out_overlap(), *refused]
        if rule.wanted is Variant.INPLACE and (structured or rule.into is Into.SELF):
            return [*self._check_self(), *refused]
        return refused

    def _destination(self, rule: Rule) -> tuple[list[str], list[str]]:
        """The names of the Tensors that the kernel writes to, and the lines that make them."""
        if rule.into is Into.SELF:
            return ["self"], []
        if rule.into is Into.OUT:
            (out,) = self.signature.outputs()
            return ["result"], [
                f"const auto shape = {self._first_shape()};",
                f"auto result = opsmith::result_in({', '.join([out, 'shape', *self._operands()])});",
            ]
        names = self.source.outputs() or ["result"]
        if rule.wanted is Variant.INPLACE and self.call.shape is Shape.STRUCTURED_META:
            # The contract has checked that the result is shaped as self is.
            empty = "opsmith::empty_fast(self.sizes(), self.scalar_type(), self.device())"
            return names, [f"at::Tensor {names[0]} = {empty};", *self.unless_taken(names)]
        allocated = self._allocate(names, fast=rule.elementwise)
        return names, [*allocated, *(self.unless_taken(names) if self.source.outputs() else [])]

    def _write_back(self, rule: Rule, names: Sequence[str]) -> list[str]:
        how = "out" if rule.wanted is Variant.OUT else "inplace"
        targets = self.signature.outputs() or ["self"]
        return [
            f"opsmith::write_{how}({self._quoted_name()}, {name}, {target});"
            for name, target in zip(names, targets, strict=True)
        ]

    def _options_of_out(self) -> dict[str, str]:
        """The arguments of a factory function, for a kernel that makes what ``out`` is to hold."""
        if not self.source.factory:
            return {}
        out = self.signature.outputs()[0]
        return {
            "dtype": f"{out}.scalar_type()",
            "layout": f"{out}.layout()",
            "device": f"{out}.device()",
            "pin_memory": "::std::nullopt",
        }

    # ---- an out kernel that must be given the shape of its result

    def out_of_lean(self) -> list[str]:
        """The body of the out variant itself around a kernel on lean tensors."""
        if self.call.shape is Shape.KERNEL:
            return self._out_sized()
        outs = self.signature.outputs()
        if self.call.shape is Shape.STRUCTURED_META:
            results = {out: f"op.promised({index})" for index, out in enumerate(outs)}
            checked = [
                *self._structured_check("kOut", outs),
                *refused_overlaps(self.call, self.signature),
                kept_apart(self.call, self.signature),
                f"{self.run(results)};",
                "op.finish();",
            ]
            return [*self._unless_alike(checked), *self._return_changed()]
        shapes = f"const auto shapes = {self._meta_call(out=True)};"
        described = self._described()
        operands = self._operands()
        checked = [
            *self._check_out_overlap(),
            shapes,
            *self._elsewhere_unless_fitting(),
            *refused_overlaps(self.call, self.signature),
            *(
                self._check_not_resized(f"{shape}.sizes()", out)
                for out, shape in zip(outs, described, strict=True)
                if self.call.checks_overlap
            ),
            *(f"const opsmith::ShapeUnlessRaised shape_of_{out}({out});" for out in outs),
            *(
                f"auto result_{out} = opsmith::result_in({', '.join([out, resized, *operands])});"
                for out, shape in zip(outs, described, strict=True)
                for resized in [
                    f"{shape}.clone(at::MemoryFormat::Contiguous)"
                    if self.call.contiguous_out
                    else shape
                ]
            ),
            f"{self.run({out: f'result_{out}' for out in outs})};",
            *(f"opsmith::write_out({self._quoted_name()}, result_{out}, {out});" for out in outs),
        ]
        return [*self._unless_alike(checked), *self._return_changed()]

    def _unless_alike(self, checked: list[str]) -> list[str]:
        """Runs the kernel at once where ``out`` and the operands are alike, and else as ``checked`` does."""
        if not self.call.elementwise:
            return checked
        alike = ", ".join([*self.signature.outputs(), self._elementwise_dtype(), *self._deciding()])
        return [
            f"if (C10_LIKELY(opsmith::elementwise_out({alike}))) {{",
            f"{self.run({})};",
            "} else {",
            *checked,
            "}",
        ]

    def _out_sized(self) -> list[str]:
        """The body of an out variant whose kernel decides the shape of its result."""
        (shapes, *run), results = self._run_sized()
        outs = self.signature.outputs()
        return [
            *self._check_out_overlap(),
            shapes,
            *self._elsewhere_unless_fitting(),
            *refused_overlaps(self.call, self.signature),
            *run,
            *(
                line
                for result, out in zip(results, outs, strict=True)
                for line in (
                    f"const at::Tensor made_{out} = {result};",
                    f"opsmith::result_in({', '.join([out, f'made_{out}', *self._operands()])});",
                    f"opsmith::write_out({self._quoted_name()}, made_{out}, {out});",
                )
            ),
            *self._return_changed(),
        ]

    def _run_sized(self) -> tuple[list[str], list[str]]:
        """A call of a kernel that decides its results' shapes, and the results."""
        self.headers.add("bridge/sized_by_kernel.h")
        on_copies = self.call.kernel.execution is Execution.COPIES
        device = "at::kCPU" if on_copies else "opsmith::lean_device()"
        sized = {out: f"sized_{out}" for out in self.source.outputs()}
        return [
            f"const auto shapes = {self._meta_call()};",
            *(
                f"const opsmith::SizedByKernel {name}({shape}, {device});"
                for name, shape in zip(sized.values(), self._described(), strict=True)
            ),
            f"{self.run(sized)};",
        ], [f"{name}.result()" for name in sized.values()]

    def _described(self) -> list[str]:
        """The meta function's description of each result, out of the ``shapes`` that it returned."""
        count = len(self.source.outputs())
        return ["shapes"] if count == 1 else [f"std::get<{i}>(shapes)" for i in range(count)]

    def _elsewhere_unless_fitting(self) -> list[str]:
        """Leaves an ``out`` of another dtype than the result's to the CPU, where the plan does."""
        fits = " && ".join(
            f"opsmith::fits({out}, {shape})"
            for out, shape in zip(self.signature.outputs(), self._described(), strict=True)
        )
        return self.elsewhere_if(f"!({fits})")

    # ---- results

    def _settled(self) -> list[str]:
        """Waits for copies that the device is still making, where the kernel reads them on the host."""
        if self.call.execution is not Execution.HOST or self.call.is_recorded:
            return []
        return ["opsmith::wait_for_device(opsmith::current_device());"]

    def _write_results(self, values: Mapping[str, str]) -> list[str]:
        """Runs a functional kernel, then writes its results where this variant has them."""
        results = self.signature.results()
        outs = set(self.signature.outputs())
        call = self.run(values)
        lines = []
        is_structured = self.call.shape is Shape.STRUCTURED_META
        checks_size = self.call.checks_overlap and not is_structured
        if len(results) > 1:
            lines.append(f"const auto results = {call};")
        elif outs and (is_structured or checks_size):
            lines.append(f"const at::Tensor result = {call};")
            call = "result"
        if outs and is_structured:
            lines.append("op.settle();")
        for index, result in enumerate(results):
            value = f"std::get<{index}>(results)" if len(results) > 1 else call
            write = "write_inplace"
            if result.name in outs:
                write = "write_same_dtype" if self.call.same_dtype else "write_out"
                if checks_size:
                    lines.append(self._check_not_resized(f"{value}.sizes()", result.name))
            lines.append(f"opsmith::{write}({self._quoted_name()}, {value}, {result.name});")
        return lines

    def _return_new(self, names: list[str]) -> str:
        if len(names) == 1:
            return f"return {names[0]};"
        return f"return std::make_tuple({', '.join(f'std::move({name})' for name in names)});"

    def _return_changed(self) -> list[str]:
        """The return of an out or in-place variant; those of lists return nothing."""
        names = self.signature.outputs() or ["self"]
        if not self.signature.function.func.returns:
            return []
        if len(names) == 1:
            return [f"return {names[0]};"]
        return [f"return std::forward_as_tuple({', '.join(names)});"]

    # ---- shapes and checks

    def _allocate(self, names: list[str], *, fast: bool) -> list[str]:
        """Declares the variables ``names`` with the shapes and dtypes of the first results."""
        is_fast = fast and self.call.elementwise is not None
        if self.call.shape is not Shape.STRUCTURED_META:
            if not is_fast:
                return self._allocate_as_meta(names)
            allocate = [f"{names[0]} = opsmith::allocate_as({self._first_shape()});"]
        else:
            structured = self._structured_class()
            allocate = [
                f"opsmith::Structured<{structured.meta_class}, {len(names)}> op;",
                f"op.meta({structured.meta_arguments(self.signature)});",
                *formatted_as_self(self.call),
                *(f"{name} = op.take({i});" for i, name in enumerate(names)),
            ]
        lines = [f"at::Tensor {name};" for name in names]
        if not is_fast:
            return [*lines, "{", *allocate, "}"]
        like = self._operands()[0]
        dtype = self._elementwise_dtype()
        return [
            *lines,
            f"if (C10_LIKELY(opsmith::elementwise_alike({', '.join(self._deciding())}))) {{",
            f"{names[0]} = opsmith::empty_fast({like}.sizes(), {dtype}, {like}.device());",
            "} else {",
            *allocate,
            "}",
        ]

    def _allocate_as_meta(self, names: list[str]) -> list[str]:
        if self.call.shape is Shape.LIKE_SELF or self._returned_by_functional() == 1:
            return [f"auto {names[0]} = opsmith::allocate_as({self._first_shape()});"]
        return [
            f"const auto shapes = {self._meta_call()};",
            *(
                f"auto {name} = opsmith::allocate_as(std::get<{index}>(shapes));"
                for index, name in enumerate(names)
            ),
        ]

    def _check_out_overlap(self) -> list[str]:
        if not self.call.checks_overlap:
            return []
        outs = self.signature.outputs()
        return [
            *(f"at::assert_no_internal_overlap({out});" for out in outs),
            *(
                f"opsmith::check_overlap({out}, {name});"
                for out in outs
                for name in self._operands()
            ),
        ]

    def _check_not_resized(self, sizes: str, out: str) -> str:
        """Refuses an ``out`` that is an operand, and is to have other ``sizes``."""
        arguments = ", ".join([self._quoted_name(), sizes, out, *self._operands()])
        return f"opsmith::check_not_resized({arguments});"

    def _check_self(self) -> list[str]:
        """The contract of an in-place operator, checked before anything is written to self."""
        if self.call.shape is Shape.STRUCTURED_META:
            check = self._structured_check("kInplace", ["self"])
        else:
            others = [name for name in self._operands() if name != "self"]
            shape = self._first_shape()
            check = [
                f"opsmith::check_inplace_result({self._quoted_name()}, {shape}, self);",
                *(f"opsmith::check_overlap(self, {name});" for name in others),
            ]
        if self.call.elementwise:
            condition = f"opsmith::elementwise_into({', '.join(self._deciding())})"
            check = [f"if (C10_UNLIKELY(!{condition})) {{", *check, "}"]
        return check

    def _structured_check(self, how: str, given: list[str]) -> list[str]:
        structured = self._structured_class()
        return [
            structured_head(
                self.call, self.signature, structured.meta_class, how, given, self.headers
            ),
            f"op.meta({structured.meta_arguments(self.signature)});",
            *formatted_as_self(self.call),
        ]

    def _structured_class(self) -> Structured:
        """PyTorch's structured class of the group, whose header the function then needs."""
        assert self.group is not None and self.group.out is not None
        structured = Structured(self.group.out)
        self.headers.add(structured.header)
        return structured

    # ---- the meta kernel

    def _functional(self) -> Signature:
        assert self.group is not None and self.group.functional is not None
        functional = self.signatures[self.group.functional]
        return functional.taking(symint=self.signature.symint)

    def _returned_by_functional(self) -> int:
        return len(self._functional().function.func.returns)

    def _meta_call(self, *, out: bool = False) -> str:
        """The expression that shapes the functional operator's results, from this function's arguments.

        ``out``: of those that go into an ``out``.
        """
        functional = self._functional()
        meta = self.signatures.metas.get(functional.name)
        if meta is None:
            self.headers.add(functional.header)
            arguments = functional.dispatcher_arguments(_on_meta)
            return f"{functional.ops_struct}::redispatch(opsmith::kMeta, {arguments})"
        if meta.rule is MetaRule.GIVEN:
            symbol = meta.sources[-1 if out else 0]
            return f"::{symbol}({functional.meta_arguments(_on_meta)})"
        self.headers.add("opsmith/generated/custom_meta.h")
        results = [
            f"opsmith::meta_like(opsmith::meta({functional.parameter_of(name)}))"
            for name in meta.sources
        ]
        return results[0] if len(results) == 1 else f"std::make_tuple({', '.join(results)})"

    def _first_shape(self) -> str:
        """An expression with the shape and dtype of the first result."""
        if self.call.shape is Shape.LIKE_SELF:
            return "self"
        call = self._meta_call()
        return call if self._returned_by_functional() == 1 else f"std::get<0>({call})"

    # ---- names

    def _operands(self) -> list[str]:
        return [p.name for p in self.signature.inputs() if p.tensor]

    def _deciding(self) -> list[str]:
        """The arguments that decide the result's dtype: a complex Scalar makes it complex."""
        scalars = [p.name for p in self.signature.inputs() if p.type == "Scalar"]
        return self._operands() + scalars

    def _elementwise_dtype(self) -> str:
        """The dtype of the result where all operands are alike."""
        is_bool = self.call.elementwise is Elementwise.BOOL
        return "at::kBool" if is_bool else f"{self._operands()[0]}.scalar_type()"

    def _quoted_name(self) -> str:
        return f'"{self.signature.qualified_name}"'


def formatted_as_self(call: KernelCall) -> list[str]:
    """The result's memory format, where PyTorch's kernel sets it after its meta function has run."""
    return ["op.set_memory_format(self.suggest_memory_format());"] if call.format_of_self else []


def refused_overlaps(call: KernelCall, signature: Signature) -> list[str]:
    """Checks of what PyTorch's own kernel would refuse, and neither its meta function nor ours does."""
    lines = []
    outs = signature.outputs()
    for each in call.refused_overlaps:
        check = "check_no_overlap" if each.wholly else "check_overlap"
        written, read = signature.parameter_of(each.written), signature.parameter_of(each.read)
        if each.written == each.read:
            lines.append(f"at::assert_no_internal_overlap({written});")
            continue
        if written in outs and call.shape is Shape.STRUCTURED_META:
            written = f"op.announced({outs.index(written)})"
        guard = (
            "if (!opsmith::is_masked_fill(indices, values, accumulate)) "
            if each.unless_fill
            else ""
        )
        lines.append(f"{guard}opsmith::{check}({written}, {read});")
    return lines


def structured_head(
    call: KernelCall,
    signature: Signature,
    base: str,
    how: str,
    given: Sequence[str],
    headers: set[str],
) -> str:
    """The structured operator around the Tensors ``given``."""
    arguments = ", ".join([f"opsmith::Given::{how}", *given])
    if not call.meta_fills:
        return f"opsmith::Structured<{base}, {len(given)}> op({arguments});"
    headers.add("opsmith/generated/filled_structured.h")
    operands = [parameter.name for parameter in signature.inputs() if parameter.tensor]
    return f"opsmith::FilledStructured<{base}> op({', '.join([arguments, *operands])});"


def kept_apart(call: KernelCall, signature: Signature) -> str:
    """Has a structured kernel write to stand-ins for outputs that share memory with what it reads."""
    reads = "kSamePlace" if call.pointwise else "kAnywhere"
    operands = [parameter.name for parameter in signature.inputs() if parameter.tensor]
    return f"op.keep_apart({', '.join([f'opsmith::Reads::{reads}', *operands])});"


def _on_meta(parameter: Parameter) -> str:
    """The argument for a meta kernel: Tensors without memory, no source of random numbers."""
    if parameter.tensor:
        return f"opsmith::meta({parameter.name})"
    # Device generators and pinned memory are not for the meta device.
    by_type = {"Generator": "::std::nullopt", "Device": "opsmith::kMetaDevice"}
    if parameter.name == "pin_memory":
        return "::std::nullopt"
    return by_type.get(parameter.type, parameter.name)
