"""The resolver: (schemas, description) → plan.

A pure function; it imports no compiler and touches no device.  Every choice of a route is made here
and nowhere else, in the order of preference of :class:`~opsmith.plan.model.Route`.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TypeVar

from opsmith.description import (
    HOST_WINDOW,
    Abi,
    Backend,
    Derive,
    Execution,
    FallbackDefault,
    Kernel,
    Rng,
    StubKernel,
)
from opsmith.errors import KernelRejected, nearest
from opsmith.plan.attention import (
    ATTENTION,
    BACKWARD,
    CHOICE,
    FORWARD,
    FUSED,
    check_attention,
    fused_attention,
    has_fused,
)
from opsmith.plan.autocast import autocast_rules
from opsmith.plan.autograd import Differentiation
from opsmith.plan.compiling import compiling
from opsmith.plan.derivation import (
    Derived,
    derive,
    elementwise_result,
    is_pointwise,
    shape_is_dynamic,
)
from opsmith.plan.interception import Interceptions, draws_from_generator
from opsmith.plan.lazy_operands import resolves_operands
from opsmith.plan.lean import LeanKernels
from opsmith.plan.meta import Metas
from opsmith.plan.model import (
    Elementwise,
    Entry,
    KernelCall,
    NotServed,
    Operands,
    OtherLayout,
    Place,
    Plan,
    Route,
    Shape,
    claims_of,
    takes_all,
)
from opsmith.plan.overlap import refused_overlaps
from opsmith.plan.stubs import StubService, serve_through_stubs
from opsmith.plan.unmarked import unmarked_writes
from opsmith.schema import (
    GENERATED,
    Catalogue,
    Composite,
    Group,
    Operator,
    Variant,
    read_host_readers,
    read_stubs,
    with_operators,
)

_Kernel = TypeVar("_Kernel", Kernel, StubKernel)


def resolve(backend: Backend, catalogue: Catalogue) -> Plan:
    """The plan for ``backend``.

    Raises :class:`KernelRejected` for a kernel that cannot serve its operator as declared.
    """
    backend = backend.on_devices
    return _Resolver(backend, with_operators(catalogue, backend.operators)).plan()


# How a kernel is declared that is not structured.
_ORDINARY_INSTEAD = {
    Abi.ATEN: "remove `structured: true` and give the kernel",
    Abi.PYTHON: "register it with `backend.kernel` and give it",
    Abi.TRITON: "give the function",
}


def resolve_group(backend: Backend, catalogue: Catalogue, name: str) -> tuple[Entry, ...]:
    """The entries by :func:`resolve` of the operator ``name`` and of the variants in its group.

    Raises as it does.
    """
    backend = backend.on_devices
    catalogue = with_operators(catalogue, backend.operators)
    resolver = _Resolver(backend, catalogue)
    return tuple(
        resolver.entry(catalogue.operators[member]) for member in catalogue.variants_of(name)
    )


def _on_copies(backend: Backend) -> Backend:
    """``backend`` with copies for the kernels that its driver and Triton's interpreter leave to the host.

    Those that run on the host, where there is no host window; and Triton's, whose interpreter copies Tensors
    to host memory in any case.
    """
    has_window = backend.driver.host_window

    def changed(each: _Kernel) -> _Kernel:
        on_host = each.execution is Execution.HOST and not has_window
        is_tritons = isinstance(each, Kernel) and each.abi is Abi.TRITON
        if not (on_host or (is_tritons and backend.triton_is_interpreted)):
            return each
        return replace(each, execution=Execution.COPIES)

    return replace(
        backend,
        libraries=tuple(
            replace(
                library,
                kernels=tuple(map(changed, library.kernels)),
                stubs=tuple(map(changed, library.stubs)),
            )
            for library in backend.libraries
        ),
    )


# The tag of operators whose results depend on their operands' values: no meta kernel knows them.
_DATA_DEPENDENT = "data_dependent_output"

# Composite kernels that are none: they call a DispatchStub, check for a device that PyTorch has built in, or
# give a view and refuse empty tensors where the CPU's own kernel copies.
_BUILT_IN_DEVICES_ONLY = frozenset(
    {
        "conj_physical_",
        "kaiser_window",
        "kaiser_window.beta",
        "kaiser_window.periodic",
        "mode.values",
        "native_channel_shuffle",
    }
)

# Composite kernels that compute something else than the CPU's kernel, on any device that is not the CPU.
_WRONG = {"_stack.out": "concatenates, and adds no dimension"}

# Composite kernels that refuse what is not contiguous, although their callers make it channels-last.
_CONTIGUOUS_ONLY = frozenset({"native_group_norm"})


# Structured operators whose kernels on the CPU give the result self's memory format, which PyTorch's meta
# function does not say.
_FORMAT_OF_SELF = frozenset({"reflection_pad3d", "replication_pad2d", "replication_pad3d"})

# Operators whose CPU kernels give new results the strides of what they computed, and copy them to `out`.
_CONTIGUOUS_OUT = frozenset({"_fft_c2c", "_fft_c2r", "_fft_r2c"})

# Structured operators whose meta functions copy self into the result, on which their kernels then compute.
_META_FILLS = frozenset({"baddbmm"})

# Operators that write a part of a copy of self. Where PyTorch makes a program functional, it looks at that
# copy with the strides of another view of the same memory, which may reach what self does not.
_COPIES_GAPS = frozenset({"diagonal_scatter", "select_scatter", "slice_scatter"})

# The source of the numbers that a random operator of the fallback draws.
_RANDOM_ON_CPU = {
    Rng.PHILOX: "it draws from a CPU generator that the device's next Philox numbers make",
    Rng.CPU: "it draws from the device's generator, which gives the CPU's numbers",
}

# Kernels that a call has been shown to and that do not take it.
Refused = tuple[Kernel, ...]


class _Resolver:
    def __init__(self, backend: Backend, catalogue: Catalogue) -> None:
        self.backend = backend = _on_copies(backend)
        self.host = Place.HOST if backend.driver.host_window else Place.COPIES
        self.denied = {operator.name: operator for operator in backend.fallback.deny}
        only = backend.fallback.only
        self.only = None if only is None else {operator.name for operator in only}
        # Why what the description says of an operator comes to nothing here.
        self.unusable: dict[str, str] = {}
        self.not_served: list[NotServed] = []
        # The kernels by operator, in order of preference.
        self.candidates: dict[str, list[Kernel]] = {}
        self.obstacles: dict[int, str] = {}
        self.denied_host_kernels: dict[str, str] = {}
        kernels = [kernel for library in backend.libraries for kernel in library.kernels]
        served = {kernel.operator for kernel in kernels if kernel.symbol}
        served |= {each.name for library in backend.libraries for each in library.unserved}
        self.metas = Metas(backend.libraries, served, catalogue)
        self.catalogue = catalogue = self.metas.catalogue
        self.lean = LeanKernels(catalogue, self.metas)
        usable = [kernel for kernel in kernels if not self._obstacle(kernel)]
        self.differentiation = Differentiation(usable, catalogue, backend.name)
        for library in backend.libraries:
            # Those that take what no other takes are asked last.
            for kernel in sorted(library.kernels, key=lambda kernel: not kernel.arg_meta):
                check_attention(kernel, catalogue)
                if kernel.abi is not Abi.EXECUTORCH:
                    self._check(kernel)
                if not kernel.symbol:
                    continue  # it names a function for the autograd key only
                if reason := self._obstacle(kernel):
                    self.unusable.setdefault(
                        kernel.operator,
                        f"the kernel `{kernel.symbol}` ({kernel.location}) {reason}",
                    )
                    if kernel.abi is Abi.EXECUTORCH:
                        self._not_served(kernel, reason)
                else:
                    self.candidates.setdefault(kernel.operator, []).append(kernel)
            for unserved in library.unserved:
                self.unusable.setdefault(unserved.name, f"{unserved.reason} ({unserved.location})")
                self.not_served.append(
                    NotServed(unserved.name, str(unserved.location), library.name, unserved.reason)
                )
        self.stubs = StubService()
        if any(library.stubs for library in backend.libraries):
            self.stubs = serve_through_stubs(backend.libraries, read_stubs())
            for name, kernel in list(self.stubs.kernels.items()):
                if any(self._denied_as_host_kernel(name, stub) for stub in kernel.through):
                    del self.stubs.kernels[name]
        self.declared = {
            declared.operator.name: declared.location for declared in backend.operators
        }
        self.interceptions = Interceptions(
            backend.fallback,
            catalogue,
            self._below_autograd,
            self._last_resort,
            lambda entry, operator: self.differentiation.of(entry, operator) is not None,
        )

    def plan(self) -> Plan:
        entries = [
            entry
            for operator in self.catalogue.operators.values()
            for entry in [self.entry(operator)]
            if self._exists(operator, entry)
        ]
        self.interceptions.check_named({entry.name: entry for entry in entries})
        names = {entry.name for entry in entries}
        custom = tuple(
            operator
            for name, operator in sorted(self.catalogue.operators.items())
            if operator.namespace != "aten" and name in names
        )
        return Plan(
            backend=self.backend.name,
            torch=self.catalogue.torch,
            unlisted=self._last_resort("")[0],
            host=self.host,
            entries=tuple(sorted(entries, key=lambda entry: entry.name)),
            stubs=tuple(self.stubs.filled[name] for name in sorted(self.stubs.filled)),
            not_served=tuple(self.not_served),
            custom=custom,
            metas=tuple(meta for operator in custom if (meta := self.metas.of(operator))),
            external_namespaces=tuple(sorted(self.metas.external_namespaces)),
            autocast=autocast_rules(self.backend.autocast, self.catalogue),
            autocast_dtypes=self.backend.autocast.dtypes,
            compiling=compiling(self.backend, self.catalogue, entries),
        )

    def _obstacle(self, kernel: Kernel) -> str:
        """Why ``kernel`` cannot run on this backend, however right it is; empty where it can."""
        # By identity: a kernel's hash is one of all that it says.
        found = self.obstacles.get(id(kernel))
        if found is None:
            found = self.obstacles[id(kernel)] = self._found_obstacle(kernel)
        return found

    def _found_obstacle(self, kernel: Kernel) -> str:
        if kernel.abi is Abi.EXECUTORCH and (reason := self.lean.obstacle(kernel)):
            return reason
        if (
            kernel.library == "runtime"
            and kernel.operator in (FORWARD, BACKWARD)
            and not has_fused(
                kernel.operator, self.backend.libraries, lambda fused: not self._obstacle(fused)
            )
        ):
            return f"has nothing to call: no library has one for `{FUSED[kernel.operator]}`"
        if kernel.rng is Rng.PHILOX and self.backend.rng is Rng.CPU:
            asked = self.backend.rng_location
            return f"draws Philox numbers, and the description asks for the CPU's ({asked})"
        return self._denied_as_host_kernel(kernel.operator, kernel)

    def _denied_as_host_kernel(self, name: str, kernel: Kernel | StubKernel) -> str:
        """Why the policy denies the operator ``name`` the kernel, which runs on the host; empty where not."""
        if kernel.execution not in (Execution.HOST, Execution.COPIES):
            return ""
        policy = self.backend.host_kernels
        location = policy.location if policy.denies_all else None
        names = self.catalogue.variants_of(name)  # a name stands for its whole group
        for denied in policy.deny:
            if denied.name in names:
                location = denied.location
        if location is None:
            return ""
        for each in names:
            self.denied_host_kernels.setdefault(
                each, f"`host_kernels` denies it kernels that run on the host ({location})"
            )
        return f"runs on the host, which `host_kernels` denies ({location})"

    def _not_served(self, kernel: Kernel, reason: str) -> None:
        self.not_served.append(
            NotServed(
                kernel.operator,
                str(kernel.location),
                kernel.library,
                f"its kernel {reason}",
            )
        )

    def _exists(self, operator: Operator, entry: Entry) -> bool:
        """Whether the operator is there at all: nobody asked for a variant that cannot be derived.

        Raises :class:`KernelRejected` where somebody did.
        """
        if operator.namespace == "aten" or entry.kernel is not None:
            return True
        if GENERATED in operator.tags:
            return False
        group = self.catalogue.group_of.get(operator.name)
        names = self.catalogue.variants_of(operator.name)
        if any(name in self.unusable for name in names):
            return True
        if group is not None and any(name in self.candidates for name in names):
            siblings = self._kernels_to_derive_from(group)
            reason: Derived | str = "`device_guard: false` is set for those of its variants"
            if siblings:
                reason = derive(operator, group, siblings, self.catalogue, differentiable=True)
            raise KernelRejected(
                f"`{operator.name}` has no kernel, and cannot be derived: {reason}",
                location=self.declared[operator.name],
                remedy="give it a kernel: `kernel_name: my_namespace::my_kernel`",
            )
        raise KernelRejected(
            f"`{operator.name}` is declared, but neither it nor a variant of it has a kernel",
            location=self.declared[operator.name],
            remedy="add `kernel_name: my_namespace::my_kernel`",
        )

    def _check(self, kernel: Kernel) -> None:
        operator = self.catalogue.operators[kernel.operator]
        group = self.catalogue.group_of.get(kernel.operator)
        if kernel.symbol and not self._obstacle(kernel):
            self.differentiation.check_forward(kernel, operator)
        if kernel.structured:
            self._check_structured(kernel, operator, group)
        self._check_structured_keys(kernel, operator, group)
        route, reason = self._last_resort(kernel.operator)
        if kernel.fails_over and route is not Route.FALLBACK and not self._obstacle(kernel):
            raise KernelRejected(
                f"`on_error: fallback` sends calls of `{kernel.operator}` to the CPU, but {reason}",
                location=kernel.location,
                remedy="remove `on_error: fallback`, or allow the fallback for the operator",
            )
        if not kernel.resizes_out and self._expected(operator, kernel)[0] is None:
            raise KernelRejected(
                f"nothing says the shape of what `{operator.name}` writes before it is computed, and "
                f"`{kernel.symbol}` cannot resize `out`",
                location=kernel.location,
                remedy="name another operator, or write a Python function for this one, which can resize",
            )
        for argument, _ in kernel.dtypes:
            if argument and argument not in operator.tensor_arguments:
                raise KernelRejected(
                    f"`{operator.name}` has no Tensor argument `{argument}`"
                    f"{nearest(argument, operator.tensor_arguments)}",
                    location=kernel.location,
                    remedy=f"its schema is {operator.schema}",
                )
            if not operator.tensor_arguments:
                raise KernelRejected(
                    f"`dtypes` says which Tensors a kernel takes, and `{operator.name}` takes none",
                    location=kernel.location,
                    remedy=f"remove `dtypes`; its schema is {operator.schema}",
                )

    @staticmethod
    def _check_structured(kernel: Kernel, operator: Operator, group: Group | None) -> None:
        if group is None or not group.structured:
            raise KernelRejected(
                f"`{operator.name}` is not structured in PyTorch: there is no meta function to "
                "write the variants around",
                location=kernel.location,
                remedy=f"{_ORDINARY_INSTEAD[kernel.abi]} the operator's own signature; "
                "the other variants are derived from it",
            )
        if operator.variant is not Variant.OUT:
            raise KernelRejected(
                f"a structured kernel is named by its out operator, not `{operator.name}`",
                location=kernel.location,
                remedy=f"write `op: {group.out}`",
            )

    @staticmethod
    def _check_structured_keys(kernel: Kernel, operator: Operator, group: Group | None) -> None:
        keys = {"structured_meta: override": bool(kernel.meta_symbol), "casts: true": kernel.casts}
        for key, given in keys.items():
            # Around a Python kernel, operands are cast whether it is structured or not.
            if given and not kernel.structured and not kernel.abi.is_python:
                raise KernelRejected(
                    f"`{key}` is for structured kernels, and this one for `{operator.name}` is not",
                    location=kernel.location,
                    remedy=f"add `structured: true`, or remove `{key}`",
                )
        if kernel.casts and not (group is not None and group.iterator):
            raise KernelRejected(
                f"`casts: true` is for kernels that get a TensorIterator, and PyTorch's meta function "
                f"of `{operator.name}` builds none: nothing is cast for the kernel",
                location=kernel.location,
                remedy="remove `casts: true`",
            )

    def entry(self, operator: Operator) -> Entry:
        """The plan for ``operator``."""
        entry = self._explained(operator, self._below_autograd(operator))
        if intercepted := self.interceptions.intercepted(operator, entry):
            entry = replace(intercepted, place=self.host)
        if layouts := self._other_layouts(operator, entry):
            entry = replace(entry, other_layouts=layouts)
        if autograd := self.differentiation.of(entry, operator):
            entry = replace(entry, autograd=autograd)
        return entry

    def _place(self, route: Route, call: KernelCall | None = None) -> Place | None:
        """Where an operator on ``route`` is computed; None of what is refused, and of composites."""
        if route is Route.FALLBACK:
            return self.host
        if call is None or route in (Route.DENIED, Route.MISSING):
            return None
        return Place.of(call.execution, self.host)

    def _explained(self, operator: Operator, entry: Entry) -> Entry:
        """``entry`` with what decides how attention is computed, which no kernel's line says."""
        if operator.name not in (CHOICE, ATTENTION):
            return entry

        def entry_of(name: str) -> Entry | None:
            found = self.catalogue.operators.get(name)
            return None if found is None else self._below_autograd(found)

        fused = fused_attention(entry_of)
        if operator.name == CHOICE and entry.library == "runtime":
            return replace(entry, why=f"{entry.why} {fused.why}")
        if entry.route is Route.COMPOSITE and fused.forward:
            return replace(
                entry,
                why=f"PyTorch's composite kernel calls `{FORWARD}` where `{CHOICE}` says so, and else "
                "decomposes it into other operators",
            )
        return entry

    def _other_layouts(self, operator: Operator, entry: Entry) -> tuple[OtherLayout, ...]:
        """How ``operator`` is served for tensors that are not strided."""
        if not (operator.composed_layouts or operator.host_layouts):
            return ()
        last_resort = self._last_resort(operator.name)[0]
        # A kernel on dense tensors that makes others would meet the description's, or what its policy says.
        is_ours = entry.kernel is not None or entry.route is not self._last_resort("")[0]
        composed = [key for key in operator.composed_layouts if not (key == "CPU" and is_ours)]
        return (
            *(OtherLayout(key, Route.COMPOSITE) for key in composed),
            *(OtherLayout(key, last_resort) for key in operator.host_layouts),
        )

    def _below_autograd(self, operator: Operator, refused: Refused = ()) -> Entry:
        """The entry of ``operator`` for the calls that no kernel of ``refused`` takes."""
        group = self.catalogue.group_of.get(operator.name)
        if kernel := self._candidate(operator.name, refused):
            return self._own(operator, kernel, refused)
        note = self._unusable_note(operator, group)
        siblings = self._kernels_to_derive_from(group, refused) if group is not None else {}
        structured = siblings.get(Variant.OUT)
        if structured is not None and structured.structured and not structured.through:
            return self._structured(operator, structured, refused)
        if (kernel := self._stub_kernel(operator, group)) and kernel not in refused:
            return self._through_stubs(operator, kernel, refused)
        note += self.stubs.notes.get(operator.name, "")
        if group is not None and siblings:
            derived = derive(
                operator,
                group,
                siblings,
                self.catalogue,
                differentiable=self.differentiation.provides_for(operator),
            )
            if isinstance(derived, Derived):
                derived = self._beyond_python(operator, derived.kernel) or derived
            if isinstance(derived, Derived):
                return self._derived(operator, derived, refused)
            sources = ", ".join(f"`{kernel.operator}`" for kernel in siblings.values())
            note += f"; not derived from the kernel of {sources}: {derived}"
        if operator.composite is not Composite.NONE:
            return self._composite(operator, group, note)
        return self._unserved(operator, note)

    def _candidate(self, name: str, refused: Refused) -> Kernel | None:
        """The kernel of first choice for ``name`` among those that are not in ``refused``."""
        left = (each for each in self.candidates.get(name, ()) if each not in refused)
        return next(left, None)

    def _next(self, operator: Operator, kernel: Kernel, refused: Refused) -> Entry | None:
        """The entry that serves the calls that ``kernel`` does not take, if that is another kernel."""
        if takes_all(kernel):
            return None
        asked = (*refused, kernel)
        names = self.catalogue.variants_of(operator.name)
        if not kernel.abi.is_python:  # compiled code calls compiled kernels only
            of_group = chain.from_iterable(self.candidates.get(name, ()) for name in names)
            asked += tuple(each for each in of_group if each.abi.is_python)
        if not any(self._candidate(name, asked) for name in names):
            return None
        entry = self._below_autograd(operator, asked)
        return entry if entry.kernel is not None else None

    def _kernels_to_derive_from(self, group: Group, refused: Refused = ()) -> dict[Variant, Kernel]:
        """The group's kernels that the description lets other variants be built on."""
        named = {
            variant: self._candidate(name, refused) or self.stubs.kernels.get(name)
            for variant, name in group.members()
        }
        return {
            variant: kernel
            for variant, kernel in named.items()
            if kernel is not None and kernel not in refused and kernel.derive is not Derive.NOTHING
        }

    def _own(self, operator: Operator, kernel: Kernel, refused: Refused) -> Entry:
        if kernel.structured:
            return self._structured(operator, kernel, refused)
        if kernel.execution is Execution.FALLBACK:
            route, reason = self._last_resort(operator.name)
            why = f"`{kernel.symbol}` ({kernel.location}) has the CPU compute it; {reason}"
            entry = self._served(operator, kernel, route, why, refused)
            # Registered all the same: it refuses with the reason, unless the process overrides the policy.
            is_told = route is Route.FALLBACK or entry.next is not None
            return entry if is_told else replace(entry, refusal=entry.why)
        why = f"`{kernel.symbol}` ({kernel.location})"
        return self._served(operator, kernel, Route.KERNEL, why, refused)

    def _served(
        self,
        operator: Operator,
        kernel: Kernel,
        route: Route,
        why: str,
        refused: Refused,
        derived: Derived | None = None,
    ) -> Entry:
        """The entry of an operator that ``kernel`` serves: as its own, or as ``derived`` says."""
        group = self.catalogue.group_of.get(operator.name)
        behind = self._next(operator, kernel, refused)
        note, other_dtypes, refusal = self._other_dtypes(operator, kernel, behind)
        shape, elementwise = self._expected(operator, kernel)
        shape = (derived.shape if derived else None) or shape
        meta = None
        if shape in (Shape.META_KERNEL, Shape.KERNEL) and not kernel.abi.is_python:
            meta = self.metas.given_for(operator)
        if shape is not None and derived is not None and derived.shape is shape:
            source = f"`{meta.sources[0]}` ({meta.location})" if meta else shape.value
            if shape is Shape.KERNEL:
                why += f"; shape from {shape.value}; rank and dtype from {source}"
            else:
                why += f"; shape and dtype from {source}"
        if kernel.abi is Abi.TRITON and kernel.execution is Execution.COPIES:
            note += "; on copies in host memory: Triton's interpreter runs it"
        elif kernel.execution is Execution.COPIES and not _is_on_copies(behind):
            driver = self.backend.driver
            why_not = f"{HOST_WINDOW}=off" if driver.window_is_hidden else driver.location
            note += f"; on copies in host memory: there is no host window ({why_not})"
        if kernel.fails_over:
            note += (
                f"; calls that `{kernel.symbol}` refuses at run time go there too"
                if behind
                else "; calls that it refuses at run time: the fallback runs them on the CPU"
            )
        call = KernelCall(
            kernel=kernel,
            derivation=derived.derivation if derived else None,
            shape=shape,
            elementwise=(derived.elementwise if derived else None) or elementwise,
            operands=self._operands(operator, kernel),
            checks_overlap=self._checks_overlap(operator),
            same_dtype=GENERATED in operator.tags and operator.namespace == "aten",
            refused_overlaps=refused_overlaps(operator.name),
            pointwise=group is not None and is_pointwise(group, self.catalogue),
            meta_fills=group is not None and group.functional in _META_FILLS,
            format_of_self=group is not None and group.functional in _FORMAT_OF_SELF,
            contiguous_out=group is not None and group.functional in _CONTIGUOUS_OUT,
            casts_on_cpu=self._casts_on_cpu(operator, kernel, shape),
            overlaps_on_cpu=derived is not None and self._overlaps_on_cpu(operator),
            gaps_on_cpu=operator.name in _COPIES_GAPS and self._falls_back_to_cpu(operator.name),
            resolves_operands=resolves_operands(operator.name, kernel),
            updates=unmarked_writes(kernel.operator),
            meta=meta,
            next=behind,
            other_dtypes=other_dtypes,
        )
        return Entry(
            name=operator.name,
            route=route,
            source=kernel.operator if derived else str(kernel.location),
            library=kernel.library,
            why=f"{why}{note}{self._untraced_note(operator, kernel)}",
            group=group,
            place=self._place(route, call),
            call=call,
            refusal=refusal,
        )

    def _checks_overlap(self, operator: Operator) -> bool:
        """Whether PyTorch's own refuses an ``out`` that overlaps, as TensorIterator does: pointwise ones.

        Those whose out variant torchgen wrote do not: it copies a finished result.
        """
        group = self.catalogue.group_of.get(operator.name)
        return (
            operator.variant is Variant.OUT
            and group is not None
            and group.functional is not None
            and "pointwise" in self.catalogue.operators[group.functional].tags
            and GENERATED not in operator.tags
        )

    def _casts_on_cpu(self, operator: Operator, kernel: Kernel, shape: Shape | None) -> bool:
        """Whether a lean kernel's caller leaves an ``out`` of another dtype than the result's to the CPU.

        Some operators cast, and others refuse; where PyTorch's meta function does not check ``out``, nothing
        but the operator's own kernel knows.
        """
        return (
            kernel.abi is Abi.EXECUTORCH
            and operator.namespace == "aten"
            and operator.variant is Variant.OUT
            and shape in (Shape.META_KERNEL, Shape.KERNEL)
            and self._falls_back_to_cpu(operator.name)
        )

    def _overlaps_on_cpu(self, operator: Operator) -> bool:
        """Whether an in-place call on elements that share memory, as an expanded Tensor's do, is the CPU's.

        Some operators take such a Tensor, and others refuse it, which nothing but their own kernels know.
        """
        return (
            operator.namespace == "aten"
            and operator.variant is Variant.INPLACE
            and not any(result.many for result in operator.results or ())
            and self._last_resort(operator.name)[0] is Route.FALLBACK
        )

    def _stub_kernel(self, operator: Operator, group: Group | None) -> Kernel | None:
        """PyTorch's kernel that serves ``operator`` through filled stubs, itself or as a structured one."""
        if kernel := self.stubs.kernels.get(operator.name):
            return kernel
        out = None if group is None or group.out is None else self.stubs.kernels.get(group.out)
        # An out kernel of the author's own is preferred, and the other variants are derived from it.
        named = group is not None and group.out in self.candidates
        return out if out is not None and out.structured and not named else None

    def _through_stubs(self, operator: Operator, kernel: Kernel, refused: Refused) -> Entry:
        fills = " and ".join(
            f"`{stub.stub}`, filled with `{stub.symbol}` ({stub.location})"
            for stub in kernel.through
        )
        meta = "; PyTorch's meta function checks and shapes it" if kernel.structured else ""
        why = f"PyTorch's `{kernel.symbol}` calls {fills}{meta}"
        return self._served(operator, kernel, Route.STUB, why, refused)

    def _structured(self, operator: Operator, kernel: Kernel, refused: Refused) -> Entry:
        checker = f"`{kernel.meta_symbol}`" if kernel.meta_symbol else "PyTorch's meta function"
        why = (
            f"written around the structured kernel `{kernel.symbol}` ({kernel.location}); "
            f"{checker} checks and shapes it{'; it casts by itself' if kernel.casts else ''}"
        )
        return self._served(operator, kernel, Route.STRUCTURED, why, refused)

    def _derived(self, operator: Operator, derived: Derived, refused: Refused) -> Entry:
        kernel = derived.kernel
        if derived.shape is not None:
            self._check_shaped(operator, kernel)
        how = derived.derivation.rule.why.format(kernel=f"`{kernel.symbol}` ({kernel.location})")
        why = f"from the kernel of `{kernel.operator}`: {how}"
        if operator.variant is Variant.MUTABLE:
            why += ", which writes to the same other arguments"
        return self._served(operator, kernel, Route.DERIVED, why, refused, derived)

    def _is_shaped(self, operator: Operator, kernel: Kernel) -> bool:
        """Whether there is a kernel for the meta device; one in Python brings its own."""
        if operator.namespace == "aten" or kernel.abi.is_python:
            return True
        return self.metas.of(operator) is not None

    def _check_shaped(self, operator: Operator, kernel: Kernel) -> None:
        if self._is_shaped(operator, kernel):
            return
        raise KernelRejected(
            f"`{operator.name}` is derived from the kernel of `{kernel.operator}`, and nothing says which "
            "shape and dtype its result has",
            location=kernel.location,
            remedy="add `meta: {same_as: self}`, naming the argument that the result is like; or `meta: "
            "my_namespace::my_meta`, a C++ function that makes the result of meta tensors; or `tags: "
            "pointwise`, if that is what it is",
        )

    def _expected(
        self, operator: Operator, kernel: Kernel
    ) -> tuple[Shape | None, Elementwise | None]:
        """How the caller of a Python kernel, or of a lean one, knows what it must return, or write to.

        Any other compiled kernel is taken at its word, so that its caller costs nothing.
        """
        if kernel.abi is Abi.ATEN:
            return None, None
        group = self.catalogue.group_of.get(operator.name)
        functional = operator.name if group is None else group.functional
        if functional is None:
            return None, None
        shaped = self.catalogue.operators[functional]
        if (
            not shaped.variant.returns_new
            or not shaped.results
            or not shaped.meta
            or _DATA_DEPENDENT in shaped.tags
        ):
            return None, None
        if shape_is_dynamic(shaped, kernel):
            return (Shape.KERNEL if kernel.abi is Abi.EXECUTORCH else None), None
        if group is None:
            return Shape.META_KERNEL, None
        shape = Shape.STRUCTURED_META if group.structured else Shape.META_KERNEL
        return shape, elementwise_result(group, self.catalogue)

    def _beyond_python(self, operator: Operator, kernel: Kernel) -> str:
        """Why ``operator`` is not derived from ``kernel``, if that is a Python kernel."""
        if not kernel.abi.is_python:
            return ""
        for one in (operator, self.catalogue.operators[kernel.operator]):
            written = {result.name for result in one.results or ()}
            if one.variant is Variant.INPLACE and len(written) > 1:
                return f"`{one.name}` writes to more than self: not derived for Python kernels"
            if one.variant is Variant.OUT and written != set(one.tensor_arguments[-len(written) :]):
                return f"`{one.name}` writes to more than `out`: not derived for Python kernels"
        return ""

    def _operands(self, operator: Operator, kernel: Kernel) -> Operands:
        group = self.catalogue.group_of.get(operator.name)
        name = group.functional if group is not None and group.functional else operator.name
        functional = self.catalogue.operators[name]
        # Indices may be on the CPU: PyTorch's meta function checks where they are, and moves them.
        indexed = "Tensor?[]" in functional.schema
        iterator = kernel.structured and group is not None and group.iterator and not indexed
        # A derived operator on lists takes what its kernel takes: _foreach_add's scalars.
        listed = kernel.operator != operator.name and any(
            result.many for result in operator.results or ()
        )
        return Operands.SCALARS_FROM_CPU if iterator or listed else Operands.of(functional)

    def _composite(self, operator: Operator, group: Group | None, note: str) -> Entry:
        if operator.name in _BUILT_IN_DEVICES_ONLY:
            unserved = self._unserved(operator, f"; PyTorch's composite kernel refuses it{note}")
            return replace(unserved, by_name=True)
        if wrong := _WRONG.get(operator.name):
            return replace(
                self._unserved(operator, f"; PyTorch's composite kernel {wrong}{note}"),
                by_name=True,
            )
        if operator.name in _CONTIGUOUS_ONLY and self._falls_back_to_cpu(operator.name):
            reason = "; PyTorch's composite kernel refuses channels-last Tensors"
            return replace(self._unserved(operator, reason + note), by_name=True)
        if operator.name in read_host_readers().readers:
            return self._host_reader(operator, note)
        if operator.name in (FORWARD, BACKWARD):
            how = "PyTorch's composite kernel refuses the call, which it leaves to devices"
        elif operator.composite is Composite.NON_FUNCTIONAL and group is not None and group.out:
            if group.structured and self._falls_back(group.out):
                # The CPU's kernel checks and shapes too, and twice is what makes a small call slow.
                once = (
                    "; as one call, where PyTorch's composite kernel would check and shape before the "
                    "CPU does"
                )
                return replace(self._unserved(operator, once + note), by_name=True)
            how = f"PyTorch's composite kernel runs its meta function, allocates and calls `{group.out}`"
        else:
            how = "PyTorch's composite kernel decomposes it into other operators"
        return Entry(
            name=operator.name,
            route=Route.COMPOSITE,
            source=operator.composite.value,
            library="",
            why=how + note,
            group=group,
        )

    def _host_reader(self, operator: Operator, note: str) -> Entry:
        """A composite that would end the process: one call on the CPU, or a refusal."""
        reads = "PyTorch's composite kernel reads its arguments as host memory"
        unserved = replace(self._unserved(operator, f"; {reads}{note}"), by_name=True)
        if operator.name not in read_host_readers().differentiated:
            return unserved
        why = f"{reads}, and one call on the CPU in its place would lose the gradient{note}"
        return replace(
            unserved,
            route=Route.DENIED,
            place=None,
            source=operator.composite.value,
            why=why,
            refusal=why,
        )

    def _falls_back_to_cpu(self, name: str) -> bool:
        return self._last_resort(name)[0] is Route.FALLBACK

    def _falls_back(self, out: str) -> bool:
        """Whether ``out``, of a structured group, is nobody's but the fallback's."""
        operator = self.catalogue.operators[out]
        return (
            operator.composite is Composite.NONE
            and self._below_autograd(operator).route is Route.FALLBACK
        )

    def _unserved(self, operator: Operator, note: str) -> Entry:
        route, reason = self._last_resort(operator.name)
        if route is Route.FALLBACK and draws_from_generator(operator):
            note += f"; {_RANDOM_ON_CPU[self.backend.rng]}"
        why = f"no kernel in {self._library_names()}; {reason}{note}"
        return Entry(
            name=operator.name,
            route=route,
            source=str(self.backend.fallback.location),
            library="",
            why=why,
            place=self._place(route),
            group=self.catalogue.group_of.get(operator.name),
            refusal="" if route is Route.FALLBACK else why,
        )

    def _last_resort(self, name: str) -> tuple[Route, str]:
        """The fallback policy's route for an operator, or for the dtypes its kernel lacks, and the reason."""
        policy = self.backend.fallback
        # A name stands for its whole group: `topk` reaches the fallback as `topk.values`.
        names = self.catalogue.variants_of(name) if self.denied or self.only is not None else ()
        if name in self.denied_host_kernels:
            return Route.DENIED, self.denied_host_kernels[name]
        for denied in sorted(self.denied.keys() & names):
            return Route.DENIED, f"the fallback is denied to it ({self.denied[denied].location})"
        if self.only is not None and self.only.isdisjoint(names):
            return Route.DENIED, f"`only` does not allow it the fallback ({policy.location})"
        if policy.default is FallbackDefault.NONE:
            return Route.MISSING, f"the backend has no fallback ({policy.location})"
        # Of another library's operators the plan does not know whether one of them has a CPU kernel.
        where = " where a library has a CPU kernel for it" if "::" in name else ""
        return Route.FALLBACK, f"the fallback runs it on the CPU{where} ({policy.location})"

    def _other_dtypes(
        self, operator: Operator, kernel: Kernel, behind: Entry | None
    ) -> tuple[str, Route | None, str]:
        """Of the calls that ``kernel`` does not take: the plan's words, the route, the refusal."""
        if takes_all(kernel):
            return "", None, ""
        claims = claims_of(kernel)
        if behind is not None:
            note = f"; takes {claims}, and else: {behind.why}"
            return note, behind.other_dtypes, behind.refusal
        route, reason = self._last_resort(operator.name)
        only = f"the kernel `{kernel.symbol}` ({kernel.location}) takes {claims} only"
        others = "other dtypes" if kernel.dtypes or kernel.arg_meta else "others"
        if route is not Route.FALLBACK:
            refusal = f"{only}, and {reason}"
        elif operator.namespace != "aten":
            # Told where no library has a CPU kernel either.
            refusal = f"{only}, and there is no CPU kernel to fall back on"
        else:
            refusal = ""
        return f"; for {claims}, {others}: {reason}", route, refusal

    def _unusable_note(self, operator: Operator, group: Group | None) -> str:
        names = (
            [operator.name] + [name for _, name in group.members()] if group else [operator.name]
        )
        for name in names:
            if name in self.unusable:
                return f"; {self.unusable[name]}"
        return ""

    def _untraced_note(self, operator: Operator, kernel: Kernel) -> str:
        """The limits of a custom operator without a meta kernel, in words."""
        if self._is_shaped(operator, kernel):
            return ""
        return "; without `meta:`, torch.compile and torch.export cannot trace it"

    def _library_names(self) -> str:
        return ", ".join(library.name for library in self.backend.libraries)


def _is_on_copies(entry: Entry | None) -> bool:
    return entry is not None and entry.call is not None and entry.call.execution is Execution.COPIES
