"""Python functions as kernels of the loaded device.

Keeps which functions are registered, has the plan resolve their groups anew, and gives each variant
that the plan serves from one of them to the C++ adapter.  Routes and derivations are read from the
plan's entries, never chosen here.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.machinery
import importlib.util
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeAlias, TypeVar

from opsmith.base.trusted_files import check_trusted
from opsmith.description import (
    Abi,
    Backend,
    Dtypes,
    Kernel,
    with_python_kernels,
)
from opsmith.description.built import BuiltBackend
from opsmith.description.python_kernel import python_kernel
from opsmith.errors import KernelDuplicate, LoadError, Unsupported
from opsmith.plan import Entry, OpenedBackend, Place, Plan, Shape, resolve_group
from opsmith.plan.conditions import ComputesIn, HasDtype, conditions
from opsmith.runtime.python.described_functions import function_of_kernel
from opsmith.schema import (
    Catalogue,
    Declaration,
    Operator,
    group_declared,
    qualified,
)

if TYPE_CHECKING:
    from opsmith.build.progress import OnProgress

OnError: TypeAlias = Literal["raise", "fallback"]
"""The outcome of a call for which a kernel raises :class:`opsmith.Unsupported`."""

# The name under which the adapter is imported, which its initialiser has too.
_MODULE = "opsmith_adapter"

_WHOSE = {Abi.PYTHON: "Python", Abi.TRITON: "Triton", Abi.TVM_FFI: "tvm-ffi"}

P = ParamSpec("P")
R = TypeVar("R")


class PythonKernel(Generic[P, R]):
    """A function that is the kernel of an operator; calling it calls the function itself.

    ``with`` ends the registration at the end of the block, as :meth:`remove` does.
    """

    def __init__(self, function: Callable[P, R], kernel: Kernel, registry: PythonKernels) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.description = kernel
        self._registry = registry

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    @property
    def operator(self) -> str:
        """The operator whose kernel it is, e.g. ``add.out``."""
        return self.description.operator

    def remove(self) -> None:
        """Ends the registration: what served the group before serves it again.  Twice does nothing."""
        self._registry.remove(self)

    def __enter__(self) -> PythonKernel[P, R]:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        kernel = self.description
        return f"<Python kernel of {kernel.operator}: {kernel.symbol} ({kernel.location})>"


@dataclass(frozen=True)
class _Served:
    """An operator that a Python kernel serves now; ``registration`` keeps the dispatcher's entry."""

    entry: Entry
    kernel: PythonKernel[..., Any]
    registration: object


class PythonKernels:
    """The Python kernels of the loaded device; ``changed`` is called when the dispatcher has others."""

    def __init__(
        self,
        description: Path,
        built: BuiltBackend,
        progress: OnProgress | None,
        changed: Callable[[], None],
    ) -> None:
        self._opened = OpenedBackend(description, built.cache)
        self._built = built
        self._progress = progress
        self._changed = changed
        self._lock = threading.RLock()
        self._kernels: dict[str, PythonKernel[..., Any]] = {}
        # By operator, those behind first.
        self._served: dict[str, tuple[_Served, ...]] = {}
        self._described: dict[tuple[str, str], PythonKernel[..., Any]] = {}
        self._plan: Plan | None = None

    @property
    def plan(self) -> Plan:
        """The plan with the Python kernels that are registered now."""
        return self._plan or self._opened.plan

    @property
    def operators(self) -> tuple[str, ...]:
        """The operators for which a kernel is registered now."""
        return tuple(self._kernels)

    @property
    def opened(self) -> OpenedBackend:
        """The backend with the kernels and operators that are registered now, in its plan too."""
        now = OpenedBackend(self._opened.path, self._built.cache)
        now.catalogue, now.plan, now.description = self.catalogue, self.plan, self._description
        return now

    @property
    def _description(self) -> Backend:
        kernels = [kernel.description for kernel in self._kernels.values()]
        return with_python_kernels(self._opened.description, kernels)

    @property
    def served(self) -> tuple[Entry, ...]:
        """The entries of the operators that are served from a Python kernel now."""
        return tuple(links[-1].entry for links in self._served.values())

    def decorator(
        self,
        name: str,
        *,
        structured: bool,
        casts: bool,
        dtypes: Dtypes,
        replace: bool,
        on_error: OnError = "raise",
    ) -> Callable[[Callable[P, R]], PythonKernel[P, R]]:
        def register(function: Callable[P, R]) -> PythonKernel[P, R]:
            description = python_kernel(
                name,
                function,
                self.catalogue,
                structured=structured,
                casts=casts,
                dtypes=dtypes,
                on_error=on_error,
            )
            return self._add(PythonKernel(function, description, self), replace)

        return register

    def remove(self, kernel: PythonKernel[..., Any]) -> None:
        with self._lock:
            if self._kernels.get(kernel.operator) is not kernel:
                return
            with self._undone_on_error():
                del self._kernels[kernel.operator]
                self._resolve(kernel.operator)

    def _add(self, kernel: PythonKernel[P, R], replace: bool) -> PythonKernel[P, R]:
        with self._lock:
            other = self._kernels.get(kernel.operator)
            if other is not None and not replace:
                raise KernelDuplicate(
                    f"`{kernel.operator}` already has a Python kernel, "
                    f"`{other.description.symbol}` ({other.description.location})",
                    location=kernel.description.location,
                    remedy="remove that one first, with `.remove()`, or pass `replace=True`",
                )
            with self._undone_on_error():
                self._kernels[kernel.operator] = kernel
                self._resolve(kernel.operator)
        return kernel

    @contextmanager
    def _undone_on_error(self) -> Iterator[None]:
        before = dict(self._kernels)
        try:
            yield
        except BaseException:
            self._kernels = before
            raise

    def _resolve(self, name: str) -> None:
        """Plans the group of ``name`` anew and makes the dispatcher agree with it."""
        entries = resolve_group(self._description, self.catalogue, name)
        adapter = self._adapter
        served = {entry.name: self._serve(entry, adapter) for entry in entries}
        self._keep(entries, served, adapter)
        self._plan = self.plan.replacing(entries)
        self._changed()

    def _keep(
        self,
        entries: Iterable[Entry],
        served: Mapping[str, tuple[_Served, ...]],
        adapter: ModuleType,
    ) -> None:
        for entry in entries:
            # The new registration stands before the old one ends: no call finds neither.
            if now := served[entry.name]:
                self._served[entry.name] = now
            else:
                self._served.pop(entry.name, None)
            adapter.set_reason(entry.name, entry.refusal)

    def serve_described(self) -> None:
        """Registers the kernels called in Python that the description itself has."""
        entries = [
            entry
            for entry in self._opened.plan.entries
            if any(link.kernel and link.kernel.abi.is_python for link in entry.chain)
        ]
        adapter = self._adapter
        self._keep(entries, {entry.name: self._serve(entry, adapter) for entry in entries}, adapter)
        self._changed()

    def _serve(self, entry: Entry, adapter: ModuleType) -> tuple[_Served, ...]:
        """The registrations for ``entry``, those behind it first: each goes on to the one before."""
        links = [link for link in entry.chain if link.kernel and link.kernel.abi.is_python]
        current = self._served.get(entry.name, ())
        if [each.entry for each in current] == links[::-1] and all(
            each.kernel is self._kernel_of(each.entry) for each in current
        ):
            return current
        made = []
        for link in reversed(links):
            kernel = self._kernel_of(link)
            operator = self.catalogue.operators[kernel.operator]
            made.append(_Served(link, kernel, _registration(link, operator, kernel, adapter)))
        return tuple(made)

    def _kernel_of(self, entry: Entry) -> PythonKernel[..., Any]:
        """The function that serves ``entry``: what was registered, or what the description names."""
        described = entry.kernel
        assert described is not None
        if described.abi is Abi.PYTHON:
            return self._kernels[described.operator]
        key = described.library, described.operator
        if key not in self._described:
            schema = self.catalogue.operators[described.operator].schema
            function = function_of_kernel(entry, schema)
            self._described[key] = PythonKernel(function, described, self)
        return self._described[key]

    @functools.cached_property
    def catalogue(self) -> Catalogue:
        """The operators that can have a kernel: ATen's, and those that :meth:`declare` has added."""
        return self._opened.catalogue

    def declare(self, declarations: Sequence[Declaration], kernel: Callable[..., Any]) -> None:
        """Adds a group of operators, which the dispatcher knows; ``kernel`` is the first one's."""
        with self._lock:
            before = self.catalogue
            self.catalogue, operators = group_declared(before, declarations)
            try:
                name = declarations[0].operator.name
                self.decorator(name, structured=False, casts=False, dtypes=(), replace=False)(
                    kernel
                )
            except BaseException:
                self.catalogue = before
                raise
            self._plan = dataclasses.replace(self.plan, custom=(*self.plan.custom, *operators))

    @functools.cached_property
    def _adapter(self) -> ModuleType:
        return load_adapter(self._built, self._progress)


def _registration(
    entry: Entry, operator: Operator, kernel: PythonKernel[..., Any], adapter: ModuleType
) -> object:
    """The dispatcher's entry for what the plan says of one operator; ``operator`` is the kernel's."""
    described = kernel.description
    call = entry.call
    assert call is not None
    name = f"the {_WHOSE[described.abi]} kernel `{described.symbol}` ({described.location})"
    return adapter.VariantRegistration(
        name=qualified(entry.name),
        kernel_operator=qualified(described.operator),
        shaped_by=qualified(entry.shaped_by) if entry.shaped_by else None,
        like_self=call.shape is Shape.LIKE_SELF,
        own_kernel=entry.passes_arguments_on,
        writes_back=call.derivation is not None and call.derivation.rule.writes_back,
        alike_result=call.elementwise.name if call.elementwise else "",
        promotes=entry.promotes,
        operands=call.operands.name,
        dtypes=[
            (each.argument if isinstance(each, HasDtype) else "", list(each.dtypes))
            for each in conditions(entry, operator.tensor_arguments, ())
            if isinstance(each, (HasDtype, ComputesIn))
        ],
        has_next=entry.next is not None,
        other_dtypes=call.other_dtypes.value if call.other_dtypes else "",
        fails_over=described.fails_over,
        resolves_operands=call.resolves_operands,
        on_host_views=entry.takes_host_views,
        on_copies=entry.place is Place.COPIES,
        kernel=adapter.PythonKernel(
            kernel.function,
            qualified(described.operator),
            name,
            refusal=Unsupported if described.fails_over else None,
        ),
    )


def load_adapter(built: BuiltBackend, progress: OnProgress | None) -> ModuleType:
    """The extension module that calls Python kernels: as a package carries it, or built where needed."""
    path = built.adapter or _built_adapter(built, progress)
    check_trusted(path)
    loader = importlib.machinery.ExtensionFileLoader(_MODULE, str(path))
    spec = importlib.util.spec_from_loader(_MODULE, loader)
    assert spec is not None
    try:
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    except ImportError as error:
        raise LoadError(
            f"the library that calls Python kernels cannot be loaded: {error}",
            remedy=f"remove {path} and try again",
        ) from None
    return module


def _built_adapter(built: BuiltBackend, progress: OnProgress | None) -> Path:
    # Here: a package that carries it does without what builds.
    from opsmith.build.python_adapter import build_adapter
    from opsmith.build.waiting import told

    with told(progress, "what calls Python kernels") as report:
        return build_adapter(built, progress=report)
