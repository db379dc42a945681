"""The plan: for every operator, the route that serves it on one backend, and why.

Immutable data, made by ``resolver`` and read by everything else.  ``emit`` finds here which kernel to
call and how to build each missing variant; ``inspect`` and ``cli`` print it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from pathlib import Path

from opsmith.description import (
    Abi,
    Autocast,
    Execution,
    FusedKernel,
    Inductor,
    Kernel,
    Precision,
    StubKernel,
    Triton,
)
from opsmith.errors import Location, OperatorUnknown, nearest
from opsmith.plan.derivation_rules import Derivation
from opsmith.plan.overlap import RefusedOverlap
from opsmith.plan.unmarked import unmarked_writes
from opsmith.schema import Composite, Group, Operator


class Route(Enum):
    """How an operator is served, in order of preference."""

    KERNEL = "kernel"
    STRUCTURED = "structured"
    STUB = "stub"
    DERIVED = "derived"
    COMPOSITE = "composite"
    FALLBACK = "fallback"
    DENIED = "denied"
    MISSING = "missing"


class Place(Enum):
    """Where an operator is computed."""

    DEVICE = "on the device"
    HOST = "on the host, in place"
    COPIES = "on the host, on copies"

    @classmethod
    def of(cls, execution: Execution, host: Place) -> Place:
        """The place of a kernel; ``host`` is that of the fallback."""
        places = {Execution.DEVICE: cls.DEVICE, Execution.FALLBACK: host, Execution.HOST: cls.HOST}
        return places.get(execution, cls.COPIES)


class Shape(Enum):
    """Where a derived variant learns the shape and dtype of a result that it must allocate or check."""

    STRUCTURED_META = "PyTorch's structured meta function"
    META_KERNEL = "the operator's kernel for the meta device"
    LIKE_SELF = "self, as in place"
    KERNEL = "the kernel, which resizes its result: its shape depends on the operands' elements"


class Elementwise(Enum):
    """The dtype of the result when all operands share one floating dtype and one shape.

    Generated code then allocates at once and needs no meta function.
    """

    SAME = "the operands' dtype"
    BOOL = "bool"


class AutogradRoute(Enum):
    """The registration for an operator's autograd key, in the place of PyTorch's own formula.

    The value is the reason that people read.
    """

    FUNCTION = "`{function}` ({location}) runs and differentiates it"
    BACKWARD = (
        "what is served below autograd runs; `{function}` ({location}) computes the gradients from the "
        "saved Tensors, scalars and results"
    )
    INPLACE_OR_COPY = (
        "where no gradient is needed, what is served below autograd runs; else `{functional}` on a copy "
        "of self, with its own gradient, and the result is copied into self"
    )
    INPLACE_BY_COPY = (
        "`{functional}`, with its own gradient, on a copy of self where a gradient is needed; the result "
        "is copied into self"
    )
    OUT = "refuses arguments that require a gradient, as PyTorch's own out= does"


@dataclass(frozen=True)
class Autograd:
    """How an operator is differentiated on the device.

    ``kernel`` is the description's entry that names the function; ``gradient`` the operator that its
    backward kernel is registered as; ``functional`` the variant that an in-place one is made of.
    """

    route: AutogradRoute
    why: str
    kernel: Kernel
    gradient: Operator | None = None
    functional: str = ""


class MetaRule(Enum):
    """How a custom operator's kernel for the meta device finds shape and dtype of the results.

    The value is the reason that people read.
    """

    GIVEN = "`{source}` shapes the result"
    SAME_AS = "the result is like `{source}`"
    BROADCAST = "pointwise: the operands' broadcast shape and common dtype"
    FROM_FUNCTIONAL = "shaped as `{source}` shapes it"
    NOTHING = "it returns nothing"
    ELSEWHERE = "whoever defines the operator shapes the result"


@dataclass(frozen=True)
class Meta:
    """A custom operator's kernel for the meta device, by which PyTorch traces it.

    ``sources`` are the function's name, and perhaps that of another one, for results that go into an ``out``;
    the arguments that the results are like; or the functional variant.  ``location`` is where the description
    says so, if it does.
    """

    operator: str
    rule: MetaRule
    sources: tuple[str, ...] = ()
    location: Location | None = None

    @property
    def why(self) -> str:
        """The rule in words."""
        reason = self.rule.value.format(source="`, `".join(self.sources))
        return f"{reason} ({self.location})" if self.location else reason


# PyTorch's kernels of these run on a TensorIterator, too.
_UNTAGGED_POINTWISE = frozenset(
    {"fill.Scalar", "fill.Tensor", "floor_divide", "masked_fill.Tensor"}
)


def computes_by_element(operator: Operator) -> bool:
    """Whether each element of the result depends only on the operands' elements at its place.

    Source: PyTorch's tag ``pointwise``, and its kernels where that is missing.
    """
    return "pointwise" in operator.tags or operator.name in _UNTAGGED_POINTWISE


class Operands(Enum):
    """Which Tensors an operator takes beside those of the device."""

    ONE_DEVICE = "none"
    SCALARS_FROM_CPU = "0-dim CPU tensors, as TensorIterator does: x + torch.tensor(2)"
    ANY = "any: the kernel itself looks at the devices"

    @classmethod
    def of(cls, operator: Operator) -> Operands:
        """The operands that PyTorch accepts for a functional ``operator``; variants lack tags and checks."""
        if computes_by_element(operator):
            return cls.SCALARS_FROM_CPU
        return cls.ONE_DEVICE if operator.one_device else cls.ANY


@dataclass(frozen=True)
class Interception:
    """A composite that one call of the fallback runs, where nobody has to see its parts.

    ``composite`` is the kernel by which PyTorch decomposes it otherwise; ``dropout``: it draws random
    numbers where an argument asks for dropout, and is decomposed then.
    """

    composite: Composite
    dropout: bool = False

    @property
    def why(self) -> str:
        """The source of the gradient, in words."""
        if self.composite is Composite.IMPLICIT:
            reason = "its gradient comes from its parts: PyTorch decomposes it where one is needed"
        else:
            reason = "PyTorch's own formula for the gradient stands above it"
        return f"{reason}; so it does with dropout" if self.dropout else reason


# The claim of every kernel on lean tensors, told where it makes no other.
_LEAN_CLAIM = "at most 16 dimensions"
# Those of kernels whose calls go on to other kernels where they fail.
_COMPILERS_CLAIMS = {Abi.TRITON: "what Triton compiles", Abi.TVM_FFI: "what its function takes"}


def takes_all(kernel: Kernel) -> bool:
    """Whether ``kernel`` takes whatever Tensors PyTorch gives it."""
    may_fail = kernel.abi in _COMPILERS_CLAIMS and kernel.fails_over
    return not (kernel.abi is Abi.EXECUTORCH or kernel.dtypes or kernel.arg_meta or may_fail)


def given_metas(entries: Iterable[Entry]) -> list[Meta]:
    """What shapes results of operators of ATen in the place of PyTorch's meta kernels, once each."""
    links = (link for entry in entries for link in entry.chain)
    found = {link.meta.operator: link.meta for link in links if link.meta}
    return [found[name] for name in sorted(found)]


def claims_of(kernel: Kernel) -> str:
    """The calls that ``kernel`` claims to take: ``self Float/Half, other Float``; empty for all calls."""
    claims = [
        f"{argument + ' ' if argument else ''}{'/'.join(names)}"
        for argument, names in kernel.dtypes
    ]
    claims += [
        f"{meta.argument} {'/'.join(meta.dtypes)} in dim order "
        f"({', '.join(map(str, meta.dim_order))})"
        for meta in kernel.arg_meta
    ]
    if not claims and kernel.abi is Abi.EXECUTORCH:
        return _LEAN_CLAIM
    if not claims and kernel.fails_over:
        return _COMPILERS_CLAIMS.get(kernel.abi, "")
    return ", ".join(claims)


@dataclass(frozen=True)
class KernelCall:
    """The call of the kernel that serves an operator, with what stands between it and the caller.

    ``derivation`` is how another variant's kernel is used, ``shape`` where the results' shapes and dtypes
    come from, ``operands`` which Tensors may be passed.  ``checks_overlap``: an ``out`` that overlaps itself,
    or an operand in part, or would resize one, is refused; ``refused_overlaps`` are others that PyTorch
    refuses.  ``same_dtype``: so is an ``out`` of another dtype than the result's.  ``pointwise``: each
    element depends on the operands' elements at its place only, so that ``out`` may be an operand.
    ``meta_fills``: PyTorch's meta function has copied self into the result before the kernel runs.
    ``format_of_self``: the result gets self's memory format, whatever PyTorch's meta function says.
    ``contiguous_out``: an ``out`` that is resized is contiguous, whatever the strides of a new result.
    ``casts_on_cpu``: PyTorch's own kernel decides whether an ``out`` of
    another dtype than the result's will do, and casts; the fallback runs such a call.  ``overlaps_on_cpu``:
    and whether an operand whose elements share memory may be written in place.  ``gaps_on_cpu``: the result
    has also what lies between the elements of self, which a kernel does not copy: the fallback does.
    ``resolves_operands``: PyTorch passes conjugated, negated and zero tensors on, of which ordinary
    Tensors are made for the kernel.
    ``updates``: operands that the kernel changes although its schema says nothing of it.
    ``next``, where given, serves the calls that ``kernel`` does not take: another kernel, of this library or
    of a later one; ``other_dtypes`` is what comes after the last of them.
    ``meta``, where given, is what the description says of the results' shapes, in the place of PyTorch's own
    meta kernel; those of custom operators are the plan's :attr:`Plan.metas`.
    """

    kernel: Kernel
    derivation: Derivation | None = None
    shape: Shape | None = None
    elementwise: Elementwise | None = None
    operands: Operands = Operands.ONE_DEVICE
    checks_overlap: bool = False
    same_dtype: bool = False
    refused_overlaps: tuple[RefusedOverlap, ...] = ()
    pointwise: bool = False
    meta_fills: bool = False
    format_of_self: bool = False
    contiguous_out: bool = False
    casts_on_cpu: bool = False
    overlaps_on_cpu: bool = False
    gaps_on_cpu: bool = False
    resolves_operands: bool = False
    updates: tuple[str, ...] = ()
    meta: Meta | None = None
    next: Entry | None = None
    other_dtypes: Route | None = None

    @property
    def execution(self) -> Execution:
        """Where the kernel's code runs; of one of PyTorch's own, the code that fills its DispatchStubs."""
        filled = {stub.execution for stub in self.kernel.through} - {Execution.DEVICE}
        return filled.pop() if filled else self.kernel.execution

    @property
    def is_queued(self) -> bool:
        """Whether the kernel may run after the call has returned, as work of the device's stream.

        One on lean tensors, which neither allocates nor calls operators, through the host window.  Not where
        calls that it refuses go to others or it decides its result's shape, which is known too late; nor
        where it draws random numbers: the order of calls decides which.
        """
        return self.kernel.execution is Execution.HOST and self._is_lean_and_final

    @property
    def is_recorded(self) -> bool:
        """Whether a graph can record the kernel, which runs on the host.

        It does where it could be queued, and as far as its library hands what it does to opsmith.
        """
        kernel = self.kernel
        on_host = kernel.execution in (Execution.HOST, Execution.COPIES)
        return on_host and (kernel.capture or self._is_lean_and_final)

    @property
    def _is_lean_and_final(self) -> bool:
        kernel = self.kernel
        return (
            kernel.abi is Abi.EXECUTORCH
            and not kernel.fails_over
            and kernel.rng is None
            and self.shape is not Shape.KERNEL
        )


@dataclass(frozen=True)
class OtherLayout:
    """How an operator is served for tensors that are not strided.

    ``key`` is the dispatch key of the CPU's kernel for them, e.g. ``SparseCPU``; with the route
    :attr:`Route.COMPOSITE` it is made of other operators and serves the device too.
    """

    key: str
    route: Route


@dataclass(frozen=True)
class Entry:
    """The plan for one operator.

    ``route`` and all that explains it is what serves the operator below autograd: under
    ``torch.inference_mode()``, and for the functions of autograd themselves.  ``autograd``, where the
    description provides for it, is what stands above; else PyTorch's own formulas do.
    ``place`` is where it is computed; None of what is refused, and of composites, whose parts have places.
    ``source`` is where the route comes from: the kernel's place in the YAML, the operator that a
    variant is derived from, the composite's dispatch key, or the place of the fallback policy.
    ``call`` is given where a kernel serves it.  ``refusal``, where the route or what comes after the kernel
    is ``denied`` or ``missing``, is the reason that a refused caller is told.
    ``interception``, where given: the operator is a composite, and the fallback runs it as one call.
    ``by_name``: the fallback is registered for this very operator, in the place of PyTorch's composite
    kernel.  ``other_layouts`` says how nested, sparse and quantized tensors are served, where that is
    not by what serves the operators that the plan does not list.
    """

    name: str
    route: Route
    source: str
    library: str
    why: str
    place: Place | None = None
    group: Group | None = None
    call: KernelCall | None = None
    refusal: str = ""
    autograd: Autograd | None = None
    interception: Interception | None = None
    by_name: bool = False
    other_layouts: tuple[OtherLayout, ...] = ()

    @property
    def where(self) -> str:
        """The place in words; empty where there is none."""
        return self.place.value if self.place else ""

    @property
    def kernel(self) -> Kernel | None:
        return self.call.kernel if self.call else None

    @property
    def next(self) -> Entry | None:
        return self.call.next if self.call else None

    @property
    def derivation(self) -> Derivation | None:
        return self.call.derivation if self.call else None

    @property
    def meta(self) -> Meta | None:
        return self.call.meta if self.call else None

    @property
    def other_dtypes(self) -> Route | None:
        return self.call.other_dtypes if self.call else None

    @property
    def chain(self) -> tuple[Entry, ...]:
        """This entry and those behind it, in the order in which they are asked."""
        return (self, *(self.next.chain if self.next else ()))

    @property
    def is_on_cpu(self) -> bool:
        """Whether the CPU computes it, by the runtime's last resort or by a kernel that asks for that."""
        return self.route is Route.FALLBACK

    @property
    def promotes(self) -> bool:
        """Whether operands and outputs reach the kernel in the common dtype.

        PyTorch's own kernels of such operators rely on TensorIterator, which casts on the CPU only.  The
        result's dtype says which it is: where nothing does, as for `index.Tensor`, operands stay as they are.
        """
        if self.kernel is None or self.group is None or self.kernel.casts:
            return False
        if self.call is None or (self.call.shape is None and self.call.elementwise is None):
            return False
        return self.group.iterator and (self.kernel.structured or self.kernel.abi.is_python)

    @property
    def passes_arguments_on(self) -> bool:
        """Whether the kernel is the operator's own and gets its arguments as they are, with any ``out``."""
        return self.route is Route.KERNEL and self.kernel is not None and self.kernel.resizes_out

    @property
    def takes_host_views(self) -> bool:
        """Whether the kernel, called in Python, is given CPU Tensors for the device's.

        They are in the same memory behind the host window, or else copies.  Triton's interpreter makes copies
        of its own.
        """
        if self.call is None or self.call.kernel.abi is not Abi.TVM_FFI:
            return False
        return self.call.execution is not Execution.DEVICE

    @property
    def shaped_by(self) -> str | None:
        """The operator whose meta function tells what the kernel must return or write to, if any.

        The functional one: ``out`` takes any dtype that the result can be cast to.  Not so where PyTorch
        writes a structured operator's variants without TensorIterator: there the meta function sees
        ``out`` or ``self``, and may go by its dtype, as ``cumsum`` does.
        """
        if self.call is None or self.call.shape in (None, Shape.LIKE_SELF):
            return None
        if self.route is Route.STRUCTURED and not self.promotes:
            return self.name
        return self.group.functional if self.group else self.name


@dataclass(frozen=True)
class AutocastRule:
    """In which precision ``torch.autocast`` has an operator run, in the place of what PyTorch's lists say.

    ``operator`` has its namespace.  ``sets_dtype``: it is told the dtype of its result, in an argument.
    """

    operator: str
    precision: Precision
    location: Location
    sets_dtype: bool = False

    @property
    def why(self) -> str:
        """The rule in words."""
        return f"`{self.precision.value}` ({self.location})"


@dataclass(frozen=True)
class NotServed:
    """Something that the description holds and this plan does not use, and why.

    ``name`` is an operator's, or a key's; ``source`` its place in the description.
    """

    name: str
    source: str
    library: str
    why: str


@dataclass(frozen=True)
class Compiling:
    """The code that ``torch.compile`` generates for the device, and the ``reason`` for that.

    Operators that are ``kept`` are called, not decomposed; those ``called`` although Inductor has loops for
    them, where their operands are contiguous.  ``fused_kernel`` is a library's kernel for loops
    over elements, in which the operators ``fused`` are calculated; without one all operators are called.
    ``triton`` says by which classes Triton serves the device, where it does.  With ``keeps_layouts``
    convolutions are called with the memory formats that the program gives them.
    """

    inductor: Inductor = Inductor.EAGER_KERNELS
    reason: str = ""
    kept: tuple[str, ...] = ()
    called: tuple[str, ...] = ()
    fused_kernel: FusedKernel | None = None
    fused: tuple[str, ...] = ()
    triton: Triton | None = None
    keeps_layouts: bool = False


@dataclass(frozen=True)
class Plan:
    """The routes of all operators of one torch on one backend, sorted by operator name.

    ``unlisted`` serves the operators that a plan does not list: other libraries' custom ones.  ``host`` is
    where the fallback computes: in place where the driver has a host window, else on copies.
    ``custom`` are the operators that the description itself declares, with the variants that were
    generated for them; ``metas`` are their kernels for the meta device.  ``stubs`` are the DispatchStubs
    that the description fills, by name; ``not_served`` is what it holds and no route uses, by place.
    ``external_namespaces`` are the namespaces of operators among ``custom`` that others define.
    ``autocast`` is what the description changes of PyTorch's lists for ``torch.autocast``, which casts to
    ``autocast_dtypes``, to the first unless it is told another.
    """

    backend: str
    torch: str
    unlisted: Route
    host: Place
    entries: tuple[Entry, ...]
    custom: tuple[Operator, ...] = ()
    not_served: tuple[NotServed, ...] = ()
    stubs: tuple[StubKernel, ...] = ()
    metas: tuple[Meta, ...] = ()
    external_namespaces: tuple[str, ...] = ()
    autocast: tuple[AutocastRule, ...] = ()
    autocast_dtypes: tuple[str, ...] = Autocast().dtypes
    compiling: Compiling = Compiling()

    @cached_property
    def by_name(self) -> Mapping[str, Entry]:
        """The entries by operator name."""
        return {entry.name: entry for entry in self.entries}

    def entry(self, name: str) -> Entry:
        """The plan for the operator ``name``, with or without ``aten::``.

        Raises :class:`OperatorUnknown` with the nearest names.
        """
        name = name.removeprefix("aten::")
        if name not in self.by_name:
            who = "the description declares" if "::" in name else f"torch {self.torch} has"
            raise OperatorUnknown(
                f"{who} no operator `{name}`{nearest(name, self.by_name)}",
                remedy=f"`opsmith plan {self.backend}` lists every operator",
            )
        return self.by_name[name]

    def group_of(self, name: str) -> tuple[str, ...]:
        """The operators that ``name`` stands for in a policy: all variants of its group.

        An operator of another library, which no plan lists, stands for itself.  Raises
        :class:`OperatorUnknown`.
        """
        name = name.removeprefix("aten::")
        if "::" in name and name not in self.by_name:
            return (name,)
        entry = self.entry(name)
        members = () if entry.group is None else dict(entry.group.members()).values()
        return tuple(dict.fromkeys((*members, name)))

    def relative_to(self, folder: Path) -> Plan:
        """The same plan with all places below ``folder`` given relative to it."""
        return replace(
            self,
            entries=tuple(_with_relative_locations(entry, folder) for entry in self.entries),
            metas=tuple(
                replace(meta, location=_moved(meta.location, folder)) for meta in self.metas
            ),
            autocast=tuple(
                replace(rule, location=_relative(rule.location, folder)) for rule in self.autocast
            ),
        )

    @property
    def pure_outputs(self) -> tuple[str, ...]:
        """The operators that write every element of their ``out`` arguments and read none.

        Those of structured groups: PyTorch's functional variants run the same kernels on new memory.
        """
        return tuple(
            entry.name
            for entry in self.entries
            if entry.group is not None and entry.group.structured and entry.name == entry.group.out
        )

    @property
    def unmarked_writes(self) -> Mapping[str, tuple[str, ...]]:
        """By operator, the arguments that it writes to and its schema does not mark."""
        return {
            entry.name: arguments
            for entry in self.entries
            if (arguments := unmarked_writes(entry.name))
        }

    def replacing(self, entries: Iterable[Entry]) -> Plan:
        """This plan with ``entries`` in the place of those for the same operators."""
        replaced = {**self.by_name, **{entry.name: entry for entry in entries}}
        return replace(self, entries=tuple(replaced[name] for name in sorted(replaced)))

    def meta(self, name: str) -> Meta | None:
        """The meta kernel of the custom operator ``name``; None where nothing shapes its results."""
        return next((meta for meta in self.metas if meta.operator == name), None)

    def autocast_rule(self, qualified_name: str) -> AutocastRule | None:
        """The description's rule for an operator under ``torch.autocast``, if any."""
        return next((rule for rule in self.autocast if rule.operator == qualified_name), None)

    def operator(self, name: str) -> Operator | None:
        """The custom operator ``name``; None for one of PyTorch's."""
        return self._custom_by_name.get(name)

    @cached_property
    def _custom_by_name(self) -> Mapping[str, Operator]:
        return {operator.name: operator for operator in self.custom}

    def places(self) -> dict[Place, int]:
        """How many operators are computed at each place; every place is present."""
        counted = Counter(entry.place for entry in self.entries)
        return {place: counted[place] for place in Place}

    def counts(self) -> dict[Route, int]:
        """How many operators take each route; every route is present, in order of preference."""
        counted = Counter(entry.route for entry in self.entries)
        return {route: counted[route] for route in Route}


def _relative(location: Location, folder: Path) -> Location:
    path = str(location.path).removeprefix(f"{folder}{os.sep}")
    return replace(location, path=Path(path))


def _moved(location: Location | None, folder: Path) -> Location | None:
    return location and _relative(location, folder)


def _with_relative_locations(entry: Entry, folder: Path) -> Entry:
    prefix = f"{folder}{os.sep}"

    def moved(kernel: Kernel) -> Kernel:
        return replace(kernel, location=_relative(kernel.location, folder))

    autograd = entry.autograd
    call = entry.call
    return replace(
        entry,
        call=call
        and replace(
            call,
            kernel=moved(call.kernel),
            next=call.next and _with_relative_locations(call.next, folder),
            meta=call.meta and replace(call.meta, location=_moved(call.meta.location, folder)),
        ),
        source=entry.source.replace(prefix, ""),
        why=entry.why.replace(prefix, ""),
        refusal=entry.refusal.replace(prefix, ""),
        autograd=autograd
        and replace(autograd, kernel=moved(autograd.kernel), why=autograd.why.replace(prefix, "")),
    )
