"""Which kernel of a backend's libraries serves which calls of ExecuTorch programs: a pure function.

Libraries stand in order of preference, and later ones fill what earlier ones lack, by operator and by
key.  What none takes is left to the runtime's own kernels.  Says where a kernel breaks a rule of
ExecuTorch.  Read by ``emit``, which writes the registrations, and by ``executorch``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from opsmith.description import Backend, Kernel
from opsmith.errors import KernelDuplicate, KernelRejected, OperatorsUnserved, RegistryFull, nearest
from opsmith.plan.executorch.kernel_keys import (
    MOST_DIMENSIONS,
    CallForm,
    TensorMeta,
    is_possible_dim_order,
)
from opsmith.plan.executorch.nearest import NearestKernel, OfferedKernel, nearest_kernel
from opsmith.plan.executorch.schema import LeanOperator, lean_operator
from opsmith.plan.executorch.supported import rejection
from opsmith.schema import Catalogue, with_operators

# kMaxRegisteredKernels of runtime/kernel/operator_registry.cpp, as the wheel is built.
REGISTRY_ROOM = 2000

AnyKernel = TypeVar("AnyKernel")


@dataclass(frozen=True)
class Runtime:
    """An ExecuTorch: its version, the operators that it has a kernel of its own for, and its delegates.

    ``delegates`` are those that are in it, by the names that programs have for them: ``XnnpackBackend``.
    ``left_out`` are operators whose kernels may be there, and are not counted on.
    """

    version: str
    operators: frozenset[str]
    delegates: frozenset[str] = frozenset()
    left_out: frozenset[str] = frozenset()

    def without_kernels(self) -> Runtime:
        """The same with no kernels of its own but those that are part of it, as in a runner in C++."""
        kept = frozenset(filter(_is_part_of_runtime, self.operators))
        return replace(self, operators=kept, left_out=self.operators - kept)

    def may_have(self, operator: str) -> bool:
        """Whether a kernel for ``operator`` may be registered, beside which another needs a key."""
        return operator in self.operators or operator in self.left_out


def _is_part_of_runtime(operator: str) -> bool:
    """Whether the runtime computes it by itself: on numbers and sizes (kernels/prim_ops)."""
    return operator.startswith("executorch_prim::") or operator in (
        "aten::sym_size.int",
        "aten::sym_numel",
        "aten::_local_scalar_dense",
    )


@dataclass(frozen=True)
class LibraryKernel:
    """A kernel that the built library holds, for one operator.

    ``keys`` are those under which it registers when it is loaded; ``unkeyed``: it also takes every call
    that no key takes.  A kernel with neither can be registered for a program before that is loaded.
    ``compiled_for`` are the keys of the calls that it is compiled for; empty where that is all that its
    manifest names.
    """

    operator: LeanOperator
    kernel: Kernel
    keys: tuple[str, ...]
    unkeyed: bool
    why: str
    compiled_for: tuple[str, ...] = ()


@dataclass(frozen=True)
class FormOfCall(Generic[AnyKernel]):
    """Who serves one form of call: a kernel of the libraries, or the runtime's own (None).

    ``in_runtime``: the runtime has a kernel for the operator.  ``why`` says what the libraries that come
    before have against it.  ``nearest`` is the kernel that comes closest where nobody serves it.
    """

    form: CallForm
    kernel: AnyKernel | None
    in_runtime: bool
    why: str
    nearest: NearestKernel | None = None

    @property
    def is_served(self) -> bool:
        """Whether somebody has a kernel for it."""
        return self.kernel is not None or self.in_runtime


class ServedForm(FormOfCall[Kernel]):
    """One whose kernel is of the libraries of a backend."""


@dataclass(frozen=True)
class ExecutorchPlan:
    """The contents of a library for ExecuTorch's runtime; ``forms`` are those it is made for, if any."""

    backend: str
    runtime: str
    kernels: tuple[LibraryKernel, ...]
    forms: tuple[ServedForm, ...]

    @property
    def registered(self) -> int:
        """How many kernels it adds to the runtime's registry when it is loaded."""
        return sum(len(each.keys) + each.unkeyed for each in self.kernels)

    def dtypes(self) -> Mapping[str, tuple[str, ...]]:
        """The dtypes of the Tensors with which each operator that it serves is called, sorted."""
        found: dict[str, set[str]] = {}
        for served in self.forms:
            if served.kernel is not None:
                found.setdefault(served.form.operator, set()).update(_dtypes(served.form))
        return {name: tuple(sorted(found[name])) for name in sorted(found)}


def plan_executorch(
    backend: Backend,
    catalogue: Catalogue,
    runtime: Runtime,
    forms: Iterable[CallForm] | None = None,
) -> ExecutorchPlan:
    """The plan of the library that holds all kernels of ``backend``, or those that ``forms`` call.

    Raises :class:`KernelRejected` for a kernel that ExecuTorch cannot call, or that waits for a key that
    no program has; :class:`KernelDuplicate` for two kernels of one library for one key;
    :class:`OperatorsUnserved` for forms that neither a library nor the runtime serves, and
    :class:`RegistryFull`.
    """
    resolver = _Resolver(backend, with_operators(catalogue, backend.operators), runtime)
    if forms is None:
        plan = ExecutorchPlan(backend.name, runtime.version, resolver.everything(), ())
    else:
        served = tuple(resolver.serve(form) for form in _sorted(forms))
        resolver.check_served(served)
        plan = ExecutorchPlan(backend.name, runtime.version, resolver.wanted(served), served)
    room = REGISTRY_ROOM - len(runtime.operators)
    if plan.registered > room:
        raise RegistryFull(
            f"the library would register {plan.registered:,} kernels, and the runtime has room for "
            f"{room:,} beside its own",
            location=backend.location,
            remedy="build it for programs (--for model.pte), which need only some of them",
        )
    return plan


def serve_forms(
    backend: Backend, catalogue: Catalogue, runtime: Runtime, forms: Iterable[CallForm]
) -> tuple[ServedForm, ...]:
    """Who serves each of ``forms``, sorted; also where that is nobody.  Raises as :func:`plan_executorch`."""
    resolver = _Resolver(backend, with_operators(catalogue, backend.operators), runtime)
    return tuple(resolver.serve(form) for form in _sorted(forms))


class _Resolver:
    def __init__(self, backend: Backend, catalogue: Catalogue, runtime: Runtime) -> None:
        self.backend = backend
        self.runtime = runtime
        self.kernels: dict[str, list[tuple[LeanOperator, Kernel]]] = {}
        external = {
            each.namespace for library in backend.libraries for each in library.external_namespaces
        }
        for library in backend.executorch_libraries:
            for kernel in library.kernels:
                if not kernel.symbol:
                    continue  # it names a function for PyTorch's autograd only
                operator = lean_operator(kernel, catalogue, external)
                _check_keys(operator, kernel)
                self.kernels.setdefault(operator.name, []).append((operator, kernel))
        for offered in self.kernels.values():
            _check_duplicates(offered)

    # ---- for programs

    def serve(self, form: CallForm) -> ServedForm:
        """Who serves calls of this ``form``."""
        in_runtime = form.operator in self.runtime.operators
        why: list[str] = []
        for operator, kernel in self.kernels.get(form.operator, ()):
            reason = self._reason_against(operator, kernel, form)
            if not reason:
                return ServedForm(form, kernel, in_runtime, "; ".join(why))
            why.append(f"{kernel.library} does not take {reason}")
        if not why:
            why.append("no library has a kernel for it")
        nearest = None if in_runtime else nearest_kernel(form, self._offered())
        return ServedForm(form, None, in_runtime, "; ".join(why), nearest)

    def _offered(self) -> Iterator[OfferedKernel]:
        for pairs in self.kernels.values():
            for operator, kernel in pairs:
                arguments = [each.name for each in operator.arguments]
                yield OfferedKernel(operator.name, arguments, kernel.library, kernel.symbol, kernel)

    def _reason_against(self, operator: LeanOperator, kernel: Kernel, form: CallForm) -> str:
        if not form.tensors and self.runtime.may_have(form.operator):
            return "calls without a Tensor, which have no key"
        return rejection([each.name for each in operator.arguments], kernel, form)

    def check_served(self, served: Sequence[ServedForm]) -> None:
        """Raises :class:`OperatorsUnserved` for what nobody serves, all of it."""
        missing = [each for each in served if not each.is_served]
        if not missing:
            return
        known = sorted(self.runtime.operators | self.kernels.keys())
        lines = "".join(
            f"\n  {each.form}: {each.why}"
            + (nearest(each.form.operator, known) if each.form.operator not in known else "")
            for each in missing
        )
        raise OperatorsUnserved(
            f"no library of `{self.backend.name}` serves{lines}\nand ExecuTorch {self.runtime.version} has "
            "no kernels for them either",
            location=self.backend.location,
            remedy="add a kernel to one of its libraries, or export the program with operators that have "
            "one",
        )

    def wanted(self, served: Iterable[ServedForm]) -> tuple[LibraryKernel, ...]:
        """The kernels that serve the forms, each with their keys."""
        keys: dict[int, list[str]] = {}
        found: dict[int, tuple[LeanOperator, Kernel]] = {}
        for each in served:
            for operator, kernel in self.kernels.get(each.form.operator, ()):
                if kernel is each.kernel:
                    found[id(kernel)] = operator, kernel
                    keys.setdefault(id(kernel), []).append(each.form.key)
        unkeyed = self._unkeyed(found.values())
        return tuple(
            LibraryKernel(
                operator,
                kernel,
                () if identity in unkeyed else tuple(sorted(set(keys[identity]))),
                identity in unkeyed,
                self._why(operator, kernel, identity in unkeyed),
                tuple(sorted(set(keys[identity]))),
            )
            for identity, (operator, kernel) in found.items()
        )

    # ---- for any program

    def everything(self) -> tuple[LibraryKernel, ...]:
        """All kernels, with the keys that their ``arg_meta`` spells out."""
        offered = [pair for pairs in self.kernels.values() for pair in pairs]
        unkeyed = self._unkeyed(offered)
        taken: set[tuple[str, str]] = set()
        found = []
        for operator, kernel in offered:
            keys = [
                form.key
                for form in _keyed_forms(operator, kernel)
                if (operator.name, form.key) not in taken
                and self.serve(form).kernel
                is kernel  # else one that comes before it takes the call
            ]
            taken.update((operator.name, key) for key in keys)
            alone = id(kernel) in unkeyed
            found.append(
                LibraryKernel(
                    operator, kernel, tuple(keys), alone, self._why(operator, kernel, alone)
                )
            )
        return tuple(found)

    def _unkeyed(self, offered: Iterable[tuple[LeanOperator, Kernel]]) -> set[int]:
        """Of each operator that the runtime lacks, the first kernel that needs no key."""
        first: dict[str, int] = {}
        for operator, kernel in offered:
            if not kernel.arg_meta and not self.runtime.may_have(operator.name):
                first.setdefault(operator.name, id(kernel))
        return set(first.values())

    def _why(self, operator: LeanOperator, kernel: Kernel, unkeyed: bool) -> str:
        if unkeyed:
            return f"the runtime has no kernel for {operator.name}"
        if kernel.arg_meta:
            return "for the dtypes and dim orders of its arg_meta"
        return "for programs that are known: its manifest leaves ranks open, and a key has one"


def _sorted(forms: Iterable[CallForm]) -> list[CallForm]:
    return sorted(set(forms), key=lambda form: (form.operator, form.tensors, str(form.arguments)))


def _dtypes(form: CallForm) -> Iterator[str]:
    for argument in form.arguments:
        if isinstance(argument, TensorMeta):
            yield argument.dtype
        elif argument is not None:
            yield from (each.dtype for each in argument)


# ---- keys that arg_meta spells out


def _keyed_forms(operator: LeanOperator, kernel: Kernel) -> Iterator[CallForm]:
    """The calls that a kernel with ``arg_meta`` has keys for, one for each combination of dtypes."""
    if not kernel.arg_meta:
        return
    metas = {meta.argument: meta for meta in kernel.arg_meta}
    dtypes = {meta.tied: meta.dtypes for meta in kernel.arg_meta}
    order = [*operator.arguments]
    order += operator.outs if len(operator.outs) == 1 else []
    places = [metas.get(argument.name) for argument in order]
    for chosen in itertools.product(*dtypes.values()):
        dtype = dict(zip(dtypes, chosen, strict=True))
        arguments = tuple(
            None if meta is None else TensorMeta(dtype[meta.tied], meta.dim_order)
            for meta in places
        )
        yield CallForm(operator.name, arguments)


def _check_keys(operator: LeanOperator, kernel: Kernel) -> None:
    """Raises :class:`KernelRejected` where ``arg_meta`` asks for what no program has."""
    metas = {meta.argument: meta for meta in kernel.arg_meta}
    for meta in kernel.arg_meta:
        if not is_possible_dim_order(meta.dim_order):
            raise KernelRejected(
                f"no program calls `{kernel.operator}` with `{meta.argument}` in the dim order "
                f"{list(meta.dim_order)}: Tensors of ExecuTorch have at most {MOST_DIMENSIONS} dimensions "
                "and are contiguous or channels-last",
                location=kernel.location,
                remedy="write [0, 1, 2, 3], or [0, 2, 3, 1] for channels last",
            )
    for argument in operator.arguments:
        if argument.is_list and argument.name in metas:
            raise KernelRejected(
                f"`{argument.name}` of `{kernel.operator}` is a list of Tensors, which no key holds",
                location=kernel.location,
                remedy=f"leave `{argument.name}` out of `arg_meta`",
            )
        if metas and argument.is_tensor and not argument.optional and argument.name not in metas:
            raise KernelRejected(
                f"`arg_meta` of this kernel leaves out `{argument.name}`, and a key of `{kernel.operator}` "
                "holds every Tensor of the call",
                location=kernel.location,
                remedy=f"add `{argument.name}: [T0, D0]`, or write `arg_meta: null` and `dtypes`",
            )


def _check_duplicates(offered: Sequence[tuple[LeanOperator, Kernel]]) -> None:
    """Raises :class:`KernelDuplicate` for two kernels of one library for one key."""
    seen: dict[tuple[str, str], Kernel] = {}
    for operator, kernel in offered:
        for key in [form.key for form in _keyed_forms(operator, kernel)] or [""]:
            earlier = seen.setdefault((kernel.library, key), kernel)
            if earlier is not kernel:
                what = f"the key {key}" if key else "every call that no key takes"
                raise KernelDuplicate(
                    f"two kernels of library `{kernel.library}` for `{kernel.operator}` take {what}; the "
                    f"first is `{earlier.symbol}` at {earlier.location}",
                    location=kernel.location,
                    remedy="keep one; another library can hold the other, in order of preference",
                )
