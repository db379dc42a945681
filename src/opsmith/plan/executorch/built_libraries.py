"""Which kernel of built libraries serves a call, by what their files say: a pure function.

Follows what the runtime does with what the libraries register: a kernel with the call's key, then one that
takes every call, then the runtime's own.  Says too where two libraries register for the same calls, which
the runtime does not survive.  Called by ``executorch`` before it loads a library.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from opsmith.plan.executorch.kernel_keys import CallForm
from opsmith.plan.executorch.library_facts import DescribedKernel, LibraryDescription
from opsmith.plan.executorch.nearest import NearestKernel, OfferedKernel, nearest_kernel
from opsmith.plan.executorch.resolver import FormOfCall, Runtime
from opsmith.plan.executorch.supported import rejection


@dataclass(frozen=True)
class BuiltForm(FormOfCall[DescribedKernel]):
    """One whose kernel is of the built library at the place ``library``; ``why`` is empty where it is."""

    library: int | None = None


@dataclass(frozen=True)
class Clash:
    """Two libraries, by their places, that register a kernel of ``operator`` under the same key.

    ``key`` is empty where both take every call that no key takes; ``first`` is None where it is the
    runtime that has such a kernel.
    """

    first: int | None
    second: int
    operator: str
    key: str


def serve_built(
    libraries: Sequence[LibraryDescription], runtime: Runtime, forms: Iterable[CallForm]
) -> tuple[BuiltForm, ...]:
    """Who serves each of ``forms``, in their order, where ``libraries`` are loaded that do not clash."""
    return tuple(_served(libraries, runtime, form) for form in dict.fromkeys(forms))


def registered_on_demand(library: LibraryDescription, form: CallForm) -> int | None:
    """The place of the kernel that is to be registered for ``form`` before a program is loaded.

    None where the library was built for programs, which it has registered for, where it has registered a
    kernel for these calls anyway, and where none takes them.
    """
    if library.selected or not form.key:
        return None
    kernels = [
        (place, each)
        for place, each in enumerate(library.kernels)
        if each.operator == form.operator
    ]
    if any(form.key in each.keys for _, each in kernels):
        return None
    for place, kernel in kernels:
        if not rejection(kernel.arguments, kernel, form):
            return None if kernel.unkeyed else place
    return None


def clashes(
    libraries: Sequence[LibraryDescription], runtime: Runtime, forms: Iterable[CallForm]
) -> tuple[Clash, ...]:
    """The kernels that two of ``libraries``, or one and the runtime, register for a program's ``forms``."""
    calls = list(dict.fromkeys(forms))
    taken: dict[tuple[str, str], int | None] = {(name, ""): None for name in runtime.operators}
    found = []
    for place, library in enumerate(libraries):
        registered = dict.fromkeys([*_at_load(library), *_on_demand(library, calls)])
        for operator, key in registered:
            if (operator, key) in taken:
                found.append(Clash(taken[operator, key], place, operator, key))
        taken.update({each: place for each in registered if each not in taken})
    return tuple(found)


def _at_load(library: LibraryDescription) -> Iterator[tuple[str, str]]:
    for kernel in library.kernels:
        for key in (*kernel.keys, *([""] if kernel.unkeyed else [])):
            yield kernel.operator, key


def _on_demand(library: LibraryDescription, forms: Iterable[CallForm]) -> Iterator[tuple[str, str]]:
    for form in forms:
        if registered_on_demand(library, form) is not None:
            yield form.operator, form.key


def _served(libraries: Sequence[LibraryDescription], runtime: Runtime, form: CallForm) -> BuiltForm:
    in_runtime = form.operator in runtime.operators
    for place, library in enumerate(libraries):
        if keyed := _with_key(library, form):
            return BuiltForm(form, keyed, in_runtime, "", library=place)
    why: list[str] = []
    for place, library in enumerate(libraries):
        for kernel in library.kernels:
            if kernel.operator != form.operator:
                continue
            reason = next(_offered(library, kernel).against(form), "")
            if kernel.unkeyed and not reason:
                return BuiltForm(form, kernel, False, "", library=place)
            if kernel.unkeyed:
                # The runtime calls it all the same: no other kernel of the operator takes the call.
                why = [f"{kernel.library} does not take {reason}, and is asked"]
                return BuiltForm(form, None, False, why[0], _nearest(libraries, form))
            # Without a key, a call is one that only a kernel for every call takes.
            why.append(f"{kernel.library} does not take {reason or 'calls without a Tensor'}")
    reasons = "; ".join(dict.fromkeys(why)) or "no library has a kernel for it"
    nearest = None if in_runtime else _nearest(libraries, form)
    return BuiltForm(form, None, in_runtime, reasons, nearest)


def _with_key(library: LibraryDescription, form: CallForm) -> DescribedKernel | None:
    """The kernel that the library registers under the key of ``form``, when it is loaded or for a program."""
    if not form.key:
        return None
    for kernel in library.kernels:
        if kernel.operator == form.operator and form.key in kernel.keys:
            return kernel
    place = registered_on_demand(library, form)
    return None if place is None else library.kernels[place]


def _nearest(libraries: Iterable[LibraryDescription], form: CallForm) -> NearestKernel | None:
    return nearest_kernel(
        form, (_offered(library, each) for library in libraries for each in library.kernels)
    )


def _offered(library: LibraryDescription, kernel: DescribedKernel) -> OfferedKernel:
    known = kernel.compiled_for or kernel.keys
    return OfferedKernel(
        kernel.operator,
        kernel.arguments,
        kernel.library,
        kernel.symbol,
        kernel,
        known if library.selected and known else None,
    )
