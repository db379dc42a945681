"""The Python function that serves an operator by a kernel of Triton's, looked up at its first call.

What a manifest names is imported then and not before: loading a device imports neither Triton nor a
library of three hundred kernels.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from opsmith.description import FLAG_GEMS, Execution, Kernel, TritonForm, check_callable
from opsmith.driver.named import imported
from opsmith.errors import KernelRejected, Unsupported, nearest
from opsmith.runtime.triton.flag_gems import import_flag_gems
from opsmith.runtime.triton.interpreter import interpret_on_devices


def function_of_kernel(kernel: Kernel, schema: str) -> Callable[..., Any]:
    """A function with the arguments of the operator's ``schema`` that has ``kernel`` compute it.

    Raises :class:`KernelRejected` at its first call, where Triton, the module or the function is missing or
    does not fit; :class:`Unsupported` where Triton cannot compile a call.
    """
    return _Function(kernel, schema)


class _Function:
    def __init__(self, kernel: Kernel, schema: str) -> None:
        self.kernel = kernel
        self._schema = schema
        self._call: Callable[..., Any] | None = None
        self._not_compiled: tuple[type[Exception], ...] = ()
        self._lock = threading.Lock()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        call = self._call or self._found()
        try:
            return call(*args, **kwargs)
        except self._not_compiled as error:
            kernel = self.kernel
            who = (
                "Triton's interpreter cannot run"
                if _is_interpreted(kernel)
                else "Triton cannot compile"
            )
            raise Unsupported(
                f"{who} `{kernel.symbol}` for this call of `{kernel.operator}`: {error}",
                location=kernel.location,
                remedy="limit the entry to the dtypes that it takes (`dtypes`), or let other kernels "
                "serve such calls (`on_error: fallback`)",
            ) from error

    def _found(self) -> Callable[..., Any]:
        with self._lock:
            if self._call is None:
                self._not_compiled = _compilers_errors(self.kernel)
                if _is_interpreted(self.kernel):
                    interpret_on_devices()
                self._call = _callable(self.kernel, self._schema)
            return self._call


def _is_interpreted(kernel: Kernel) -> bool:
    return kernel.execution is Execution.COPIES


def _compilers_errors(kernel: Kernel) -> tuple[type[Exception], ...]:
    """The exceptions by which Triton says that it cannot compile, or interpret, a function for a call."""
    try:
        compilation = importlib.import_module("triton.compiler.errors").CompilationError
        running = importlib.import_module("triton.runtime.errors")
    except ImportError as error:
        raise KernelRejected(
            f"`{kernel.symbol}`, the kernel of `{kernel.operator}`, needs Triton, which cannot be imported: "
            f"{error}",
            location=kernel.location,
            remedy="pip install triton",
        ) from error
    # What the interpreter has computed when it fails is in its copies: no Tensor has changed.
    return compilation, running.OutOfResources, running.InterpreterError


def _callable(kernel: Kernel, schema: str) -> Callable[..., Any]:
    launch = kernel.launch
    assert launch is not None
    found = _object(kernel)
    if launch.form is TritonForm.LAUNCHER:
        check_callable(found, schema, kernel.operator, kernel.location)
        launcher: Callable[..., Any] = found
        return launcher
    # Here: only a kernel that is launched needs them.
    from opsmith.runtime.triton.elements import ElementsLauncher
    from opsmith.runtime.triton.launch import FunctionLauncher

    parameters = getattr(found, "arg_names", None)
    if parameters is None:
        raise KernelRejected(
            f"`{kernel.symbol}` is {type(found).__name__}, where `{launch.form.value}` needs a function of "
            "@triton.jit",
            location=kernel.location,
            remedy="decorate it with @triton.jit, or name it as the entry's `launcher`",
        )
    if launch.form is TritonForm.ELEMENTS:
        return ElementsLauncher(kernel, schema, found, parameters)
    return FunctionLauncher(kernel, schema, found, parameters)


def _module(kernel: Kernel, source: Path | str) -> ModuleType:
    if source == FLAG_GEMS:
        return import_flag_gems(is_interpreted=_is_interpreted(kernel))
    return imported(source)


def _object(kernel: Kernel) -> Any:
    launch = kernel.launch
    assert launch is not None
    source = Path(launch.module) if launch.module.endswith(".py") else launch.module
    try:
        module = _module(kernel, source)
    except Exception as error:
        raise KernelRejected(
            f"`{launch.module}`, which has the kernel of `{kernel.operator}`, cannot be imported: "
            f"{type(error).__name__}: {error}",
            location=kernel.location,
            remedy="name a file relative to the manifest (kernels.py), or a module that Python finds",
        ) from error
    found = getattr(module, launch.name, None)
    if found is None:
        names: Sequence[str] = [each for each in vars(module) if not each.startswith("_")]
        raise KernelRejected(
            f"`{launch.module}` has no `{launch.name}`, the kernel of `{kernel.operator}`"
            f"{nearest(launch.name, names)}",
            location=kernel.location,
            remedy="define it there, or name another",
        )
    return found
