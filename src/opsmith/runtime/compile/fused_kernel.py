"""Kernels that Inductor fuses, written in the C of a library's fused kernel.

Inductor's loops over elements become the body of one kernel: an item for each element of a pointwise kernel,
an item or a group of items for each result of a reduction.  The source keeps to the contract of
docs/kernels/fused.md; the operators that the library's manifest names compile and launch it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import sympy
import torch

from opsmith.runtime.compile.c_expressions import TYPES, Operations, TypedCse, print_expression
from opsmith.runtime.compile.compiling import compiling
from opsmith.runtime.compile.cpp_graphs import fused_kernel_in_cpp
from opsmith.runtime.compile.eager_kernels import NOTHING_FUSED
from opsmith.runtime.compile.fused_reductions import reduction_rule, renamed
from opsmith.schema.torch_names import (
    BackendFeature,
    CSEVariable,
    DeferredLine,
    IndentedBuffer,
    IterationRangesEntry,
    OrderedSet,
    SIMDKernel,
    SIMDScheduling,
    SizeArg,
    TensorArg,
    V,
    upcast_compute_type,
)

_MOST_BUFFERS = (
    24  # of a kernel: their places fit into the 1,024 bytes that OpenCL has for arguments
)
_SHORT_ROW = 16  # elements; shorter rows are no dimension of the grid


class FusedKernel(SIMDKernel[CSEVariable]):
    """One kernel; ``x`` are elements or results, ``y`` rows of elements, ``r0_`` what is reduced."""

    overrides = Operations
    suffix = ";"
    kexpr = staticmethod(print_expression)
    sexpr = staticmethod(print_expression)

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.cse = TypedCse(suffix=self.suffix)
        self._states = count()
        self._shared = IndentedBuffer()  # memory that a group shares
        self._begin = IndentedBuffer()  # before the loop over what is reduced
        self._places = IndentedBuffer()  # of what is reduced, in the loop
        self._end = IndentedBuffer()  # behind the loop
        self._reduced: OrderedSet[CSEVariable] = OrderedSet()
        self._checks = False

    @property
    def reduces(self) -> bool:
        """Whether the kernel's results are made from more than one element."""
        features: Any = self.features
        return bool(features.is_reduction())

    @property
    def _reduced_range(self) -> Any:
        """The range of what each result is made from."""
        trees: list[Any] = self.range_trees
        return next(tree for tree in trees if tree.is_reduction)

    def dtype_to_str(self, dtype: torch.dtype) -> str:
        return TYPES[dtype].c

    # ---- reading and writing

    def load(self, name: str, index: sympy.Expr) -> CSEVariable:
        buffer = self.args.input(name)
        dtype = V.graph.get_dtype(name)
        text = f"LOAD({TYPES[dtype].name}, {buffer}, {self._place(index)})"
        return self.cse.generate(self.compute, text, dtype=upcast_compute_type(dtype))

    def store(self, name: str, index: sympy.Expr, value: CSEVariable, mode: Any = None) -> None:
        if mode is not None:
            raise NotImplementedError(f"no fused kernel stores by `{mode}`")
        self.stores.writeline(DeferredLine(name, self._store(name, index, value)))

    def store_reduction(self, name: str, index: sympy.Expr, value: CSEVariable) -> None:
        line = f"if (FIRST_OF_GROUP) {{ {self._store(name, index, value)} }}"
        self._end.writeline(DeferredLine(name, line))

    def _store(self, name: str, index: sympy.Expr, value: CSEVariable) -> str:
        buffer = self.args.output(name)
        return f"STORE({TYPES[V.graph.get_dtype(name)].name}, {buffer}, {self._place(index)}, {value});"

    def _place(self, index: sympy.Expr) -> str:
        return self.index_to_str(self.prepare_indexing(index))

    def check_bounds(self, expr: sympy.Expr, size: sympy.Expr, lower: bool, upper: bool) -> None:
        index = self.index_to_str(expr)
        beyond = [f"{index} < 0"] * lower + [f"{index} >= {self.index_to_str(size)}"] * upper
        if beyond:
            self._checks = True
            condition = " || ".join(beyond)
            self.compute.writeline(f"if ({condition}) {{ fault[0] = FAULT_INDEX; {index} = 0; }}")

    # ---- reductions

    def reduction(
        self,
        dtype: torch.dtype,
        src_dtype: torch.dtype,
        reduction_type: Any,
        value: CSEVariable | tuple[CSEVariable, ...],
    ) -> Any:
        key = (src_dtype, reduction_type, value)
        if key not in self.cse.reduction_cache:
            values = value if isinstance(value, tuple) else (value,)
            found = self._reduce(dtype, src_dtype, reduction_type, values)
            self.cse.reduction_cache[key] = found if len(found) > 1 else found[0]  # type: ignore[assignment]
        return self.cse.reduction_cache[key]

    def _reduce(
        self,
        dtype: torch.dtype,
        src_dtype: torch.dtype,
        kind: str,
        values: tuple[CSEVariable, ...],
    ) -> tuple[CSEVariable, ...]:
        positions = kind.startswith("arg")
        rule = reduction_rule(kind, upcast_compute_type(src_dtype if positions else dtype))
        number = next(self._states)
        states = [self.cse.newvar(dtype=each) for each in rule.dtypes]
        self._reduced.update(states)
        names = {f"s{at}": str(state) for at, state in enumerate(states)}
        names |= {f"v{at}": str(each) for at, each in enumerate(values)}
        over = self._reduced_range
        self.compute.writeline(renamed(rule.step, {**names, "at": str(over.index_sym())}))
        shared = [f"shared{number}_{at}" for at in range(len(states))]
        names |= {f"o{at}": f"{name}[ITEM(0) + half_of]" for at, name in enumerate(shared)}
        for name, state, start, each in zip(shared, states, rule.starts, rule.dtypes, strict=True):
            self._begin.writeline(f"{TYPES[each].c} {state} = {start};")
            self._shared.writeline(f"SHARED_OF_GROUP({TYPES[each].c}, {name});")
        pairs = [*zip(shared, states, strict=True)]
        keep = [f"{name}[ITEM(0)] = {state};" for name, state in pairs]
        lines = [
            "#if GROUP_ITEMS > 1",
            *keep,
            "for (int half_of = GROUP_ITEMS / 2; half_of > 0; half_of /= 2) {",
            "  BARRIER();",
            "  if (ITEM(0) < half_of) {",
            f"    {renamed(rule.merge, names)}",
            *(f"    {line}" for line in keep),
            "  }",
            "}",
            "BARRIER();",
            *(f"{state} = {name}[0];" for name, state in pairs),
            "BARRIER();",
            "#endif",
        ]
        self._end.splice("\n".join(lines))
        return tuple(states[at] for at in rule.results)

    # ---- the source

    def codegen_iteration_ranges_entry(self, entry: IterationRangesEntry) -> None:
        of: Any = entry
        lines = self._places if of.is_reduction else self.indexing_code
        place = print_expression(self.rename_indexing(entry.expr))
        lines.writeline(f"const INDEX {entry.name} = {place};")

    def codegen_body(self) -> None:
        """Ends a loop over what is reduced, or what is calculated between two."""
        if not (self.compute or self.stores or self._end):
            return
        if self.inside_reduction:
            over = self._reduced_range
            at = over.index_sym()
            self.body.splice(self._begin)
            self.body.writeline(
                f"for (INDEX {at} = ITEM_OF_GROUP; {at} < {over.prefix}count; {at} += GROUP_ITEMS) {{"
            )
            with self.body.indent():
                for lines in (self._places, self.compute, self.stores):
                    self.body.splice(lines)
            self.body.writeline("}")
            self.body.splice(self._end)
            # Variables that the loop declares are not known behind it.
            self.cse.invalidate(self._reduced)
            over.cache_clear()
        else:
            self.body.splice(self.compute)
            if self.stores and self.reduces:
                # Every item of the group has read before one of them writes.
                self.body.writeline("if (ALL_HAVE_READ()) {")
                with self.body.indent():
                    self.body.splice(self.stores)
                self.body.writeline("}")
            else:
                self.body.splice(self.stores)
        for lines in (self._begin, self._places, self.compute, self.stores, self._end):
            lines.clear()

    def codegen_kernel(self, name: str | None = None) -> str:
        self.codegen_body()
        _, _, arguments, _ = self.args.python_argdefs()
        tensors = [each for each in arguments if isinstance(each, TensorArg)]
        sizes = [each for each in arguments if isinstance(each, SizeArg)]
        rows = "y" in self.numels
        code = IndentedBuffer()
        code.writeline(f"#define INDEX {self.index_dtype}")
        code.writeline(f"typedef struct {{ long at[{3 + len(sizes)}]; }} Numbers;")
        parameters = ["const Numbers numbers"]
        parameters += [f"BUFFER(STORED({TYPES[each.dtype].name}), {each.name})" for each in tensors]
        parameters += ["BUFFER(int, fault)"] * self._checks
        code.writeline(f"KERNEL void run({', '.join(parameters)}) {{")
        with code.indent():
            for each in tensors:
                stored = f"STORED({TYPES[each.dtype].name})"
                code.writeline(f"GLOBAL {stored}* {each.name} = POINTER({stored}, {each.name});")
            if self._checks:
                code.writeline("GLOBAL int* fault = POINTER(int, fault);")
            for at, prefix in enumerate(("x", "y", "r0_")):
                if prefix in self.numels:
                    numel = self.numels[prefix]
                    given = str(numel) if numel.is_Integer else f"numbers.at[{at}]"
                    code.writeline(f"const INDEX {prefix}count = (INDEX){given};")
            for at, size in enumerate(sizes):
                code.writeline(f"const INDEX {size.name} = (INDEX)numbers.at[{3 + at}];")
            code.splice(self._shared)
            which = "RESULT_OF_GROUP" if self.reduces else "GLOBAL_ITEM(0)"
            code.writeline(f"const INDEX xindex = {which};")
            code.writeline("if (xindex >= xcount) return;")
            if rows:
                code.writeline(
                    "for (INDEX yindex = GLOBAL_ITEM(1); yindex < ycount; yindex += GLOBAL_ITEMS(1)) {"
                )
            code.splice(self.indexing_code)
            code.splice(self.body)
            if rows:
                code.writeline("}")
        code.writeline("}")
        return code.getvalue()

    def call_kernel(self, name: str, node: Any = None, deallocate_ws: bool = True) -> None:
        wrapper: Any = V.graph.wrapper_code
        _, names, arguments, _ = self.args.python_argdefs()
        tensors = [
            str(each)
            for each, argument in zip(names, arguments, strict=True)
            if isinstance(argument, TensorArg)
        ]
        sizes = [each.expr for each in arguments if isinstance(each, SizeArg)]
        counts = [self.numels.get(prefix, sympy.S.One) for prefix in ("x", "y", "r0_")]
        numbers = [wrapper.codegen_sizevar(each) for each in [*counts, *sizes]]
        listed = "{{{}}}" if V.graph.cpp_wrapper else "[{}]"
        given = [listed.format(", ".join(each)) for each in (tensors, numbers)]
        wrapper.writeline(wrapper.wrap_kernel_call(name, given))


class FusedScheduling(SIMDScheduling):
    """Fuses what Inductor can, into kernels of not too many buffers."""

    kernel_type = FusedKernel

    @classmethod
    def get_backend_features(cls, device: torch.device) -> OrderedSet[BackendFeature]:
        return OrderedSet([BackendFeature.INPLACE_BUFFERS, BackendFeature.PREFER_STORE_LOOP_ORDER])

    def can_fuse(self, node1: Any, node2: Any) -> bool:
        buffers = {
            dependency.name
            for node in (node1, node2)
            for dependency in (*node.read_writes.reads, *node.read_writes.writes)
        }
        fits = len(buffers) <= _MOST_BUFFERS
        return fits and bool(super().can_fuse(node1, node2))  # type: ignore[no-untyped-call]

    can_fuse_vertical = can_fuse
    can_fuse_horizontal = can_fuse

    @classmethod
    def get_tiling_and_scores(
        cls,
        node_schedule: Sequence[Any],
        numel: sympy.Expr,
        reduction_numel: sympy.Expr = sympy.S.One,
        coalesce_analysis: Any = None,
    ) -> Any:
        """Elements whose places are no line in one of the buffers are rows, so that rows are lines."""
        if reduction_numel == 1:
            for node in node_schedule:
                sizes = node.get_ranges()[0]
                if len(sizes) > 1 and cls._are_rows(sizes[-1], numel, node_schedule):
                    return cls.create_tiling([numel / sizes[-1], sizes[-1]], [sympy.S.One]), None
        return cls.create_tiling([numel], [reduction_numel]), None

    @classmethod
    def _are_rows(cls, row: sympy.Expr, numel: sympy.Expr, node_schedule: Sequence[Any]) -> bool:
        return V.graph.sizevars.statically_known_geq(row, _SHORT_ROW) and all(
            FusedKernel.is_compatible([numel / row, row], node.get_ranges())
            for node in node_schedule
        )

    def define_kernel(
        self, src_code: str, node_schedule: Sequence[Any], kernel: FusedKernel
    ) -> str:
        wrapper = V.graph.wrapper_code
        known = wrapper.src_to_kernel
        if src_code not in known:
            known[src_code] = name = f"fused_{wrapper.next_kernel_suffix()}"
            is_reduction = kernel.reduces
            if V.graph.cpp_wrapper:
                fused = compiling().fused_kernel
                if fused is None:
                    raise NotImplementedError(NOTHING_FUSED)
                wrapper.header.splice(fused_kernel_in_cpp(name, is_reduction, src_code, fused))
                return name
            wrapper.header.writeline(f"{name} = RunningKernel({name!r}, {is_reduction}, '''")
            wrapper.header.splice(src_code)
            wrapper.header.writeline("''')")
        return known[src_code]
