"""The backend that this process has loaded: :mod:`opsmith.runtime.load` makes it, the rest asks for it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from opsmith.errors import LoadError

if TYPE_CHECKING:
    import torch

    from opsmith.build.progress import OnProgress
    from opsmith.description import Dtypes
    from opsmith.description.built import BuiltBackend
    from opsmith.plan import Entry, OpenedBackend, Plan
    from opsmith.runtime.python.python_kernels import OnError, PythonKernel, PythonKernels
    from opsmith.runtime.python.python_operators import PythonOperator

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class LoadedBackend:
    """The backend that this process has loaded: its name, description file and libraries.

    ``progress`` is told of what the first Python kernel has to build.
    """

    name: str
    description: Path
    built: BuiltBackend

    progress: OnProgress | None = None

    @property
    def plan(self) -> Plan:
        """The plan that the loaded code was generated from, with the Python kernels of this process."""
        return self._python_kernels.plan

    @property
    def opened(self) -> OpenedBackend:
        """The backend as :func:`~opsmith.plan.open_backend` has it, with this process's Python kernels."""
        return self._python_kernels.opened

    @property
    def python_kernels(self) -> tuple[str, ...]:
        """The operators for which a Python kernel is registered now."""
        return self._python_kernels.operators

    @property
    def registered_entries(self) -> tuple[Entry, ...]:
        """The plan's entries of the operators that Python kernels serve now."""
        return self._python_kernels.served

    def kernel(
        self,
        operator: str,
        *,
        dtypes: Dtypes = (),
        casts: bool = False,
        replace: bool = False,
        on_error: OnError = "raise",
    ) -> Callable[[Callable[P, R]], PythonKernel[P, R]]:
        """Decorates a function: it becomes the kernel of ``operator``, e.g. ``add.out`` or ``relu``.

        The other variants of the operator's group are derived from it, unless they have a kernel of
        their own.  The function takes the schema's arguments, keyword-only ones (``out``) by name, and
        all of them each time.  ``dtypes`` limits those that it takes, as ``torch.dtype``s or by
        argument; the plan says what serves others.  Where PyTorch's own kernel stands on TensorIterator,
        operands arrive in the common dtype and ``out`` in the shape of the result, unless the kernel
        ``casts`` itself.  The first registration of a process takes a second, and half a minute
        where its C++ has to be built.
        With ``on_error="fallback"`` calls for which the function raises :class:`opsmith.Unsupported` run on
        the CPU.

        Raises :class:`~opsmith.errors.KernelDuplicate` for a second kernel of an operator, unless that
        is to ``replace`` the first; :class:`~opsmith.errors.OperatorUnknown`,
        :class:`~opsmith.errors.KernelRejected` or a :class:`~opsmith.errors.BuildError`.
        """
        return self._python_kernels.decorator(
            operator,
            structured=False,
            casts=casts,
            dtypes=dtypes,
            replace=replace,
            on_error=on_error,
        )

    def structured(
        self,
        operator: str,
        *,
        dtypes: Dtypes = (),
        casts: bool = False,
        replace: bool = False,
        on_error: OnError = "raise",
    ) -> Callable[[Callable[P, R]], PythonKernel[P, R]]:
        """Decorates a function that computes a structured group, named by any of its operators.

        PyTorch's meta function checks the arguments and shapes the results, which are allocated when
        the function is called with the arguments of the out variant.  Functional, in-place and out are
        all written around it; in place, ``out`` is ``self``.  Otherwise as :meth:`kernel`.
        """
        return self._python_kernels.decorator(
            operator,
            structured=True,
            casts=casts,
            dtypes=dtypes,
            replace=replace,
            on_error=on_error,
        )

    def operator(
        self,
        schema: str,
        *,
        same_as: str | None = None,
        fake: Callable[..., Any] | None = None,
        autograd: type[torch.autograd.Function] | None = None,
        inplace: bool = False,
    ) -> Callable[[Callable[..., Any]], PythonOperator]:
        """Decorates a function: it becomes the kernel of a new operator, declared by ``schema``.

        The schema is a functional one with a namespace, ``"myop::scale(Tensor self, float factor) ->
        Tensor"``.  An out variant is derived, and with ``inplace`` an in-place one.  For tracing, the
        result is like the argument ``same_as``, or what the function ``fake`` makes of tensors without
        data.  ``autograd`` differentiates it; its ``forward`` may call the operator itself.  Without it,
        see :meth:`PythonOperator.backward`.

        Raises :class:`~opsmith.errors.SchemaInvalid` and what :meth:`kernel` raises.
        """
        from opsmith.runtime.python.python_operators import declare

        def decorate(function: Callable[..., Any]) -> PythonOperator:
            return declare(self._python_kernels, schema, function, same_as, fake, autograd, inplace)

        return decorate

    def python_routes(self) -> dict[str, str]:
        """The routes of the operators that Python kernels serve now, by the operators' full names."""
        from opsmith.schema import qualified

        return {qualified(entry.name): entry.route.value for entry in self.registered_entries}

    def serve_described_kernels(self) -> None:
        """Registers the kernels of the description that are called in Python."""
        self._python_kernels.serve_described()

    @functools.cached_property
    def _python_kernels(self) -> PythonKernels:
        from opsmith.runtime.python.python_kernels import PythonKernels

        return PythonKernels(self.description, self.built, self.progress, _tell_observers)


_loaded: LoadedBackend | None = None
# Whether an installed package has loaded it at `import torch`, and no call of a program's.
_by_package = False

# The description that `load` loads now: importing torch calls the packages that load themselves.
_being_loaded: Path | None = None


@contextmanager
def being_loaded(description: Path) -> Iterator[None]:
    """While the block runs, this process loads the backend that ``description`` describes."""
    global _being_loaded
    before, _being_loaded = _being_loaded, description
    try:
        yield
    finally:
        _being_loaded = before


def description_in_hand() -> Path | None:
    """The description of what is loaded, or is about to be; None where neither is so."""
    return _loaded.description if _loaded else _being_loaded


def set_loaded_backend(backend: LoadedBackend, *, by_package: bool = False) -> None:
    """Says that this process has loaded ``backend``, which it does once, and whether a package did so."""
    global _loaded, _by_package
    _loaded, _by_package = backend, by_package


def is_loaded_by_package() -> bool:
    """Whether an installed package has loaded the backend at ``import torch``, unasked."""
    return _by_package


def loaded_backend() -> LoadedBackend:
    """The backend that this process has loaded.  Raises :class:`LoadError` where there is none."""
    if _loaded is None:
        raise LoadError(
            "no backend is loaded, so nothing can have fallen back",
            remedy='call opsmith.load("sim"), or another backend, first',
        )
    return _loaded


def loaded_if_any() -> LoadedBackend | None:
    """The backend that this process has loaded; None where there is none."""
    return _loaded


_observers: list[Callable[[], object]] = []


def when_kernels_change(observer: Callable[[], object]) -> None:
    """Has ``observer`` called after each registration of a Python kernel, and after its end."""
    _observers.append(observer)


def _tell_observers() -> None:
    for observer in _observers:
        observer()
