"""The Python function that has a kernel of Triton's compute an operator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from opsmith.description import FLAG_GEMS, Execution, Kernel, TritonForm, check_callable
from opsmith.driver.named import imported
from opsmith.errors import KernelRejected
from opsmith.plan import Entry
from opsmith.runtime.python.kernel_modules import absent, module_of, needed, refusal
from opsmith.runtime.triton.device import backend_of_the_device
from opsmith.runtime.triton.flag_gems import called_by_torch_library, import_flag_gems
from opsmith.runtime.triton.interpreter import interpret_on_devices


def callable_of_kernel(entry: Entry, schema: str) -> Callable[..., Any]:
    """A function with the arguments of the operator's ``schema`` that has the kernel of ``entry`` compute it.

    Raises :class:`KernelRejected` where Triton, the module or the function is missing or does not fit; the
    function raises :class:`Unsupported` where Triton cannot compile a call.
    """
    kernel = entry.kernel
    assert kernel is not None
    not_compiled = _compilers_errors(kernel)
    # Here: it needs Triton, which the line above has found.
    from opsmith.runtime.triton.driver import activate

    if _is_interpreted(kernel):
        activate(None)
        interpret_on_devices()
        who = "Triton's interpreter cannot run"
    else:
        activate(backend_of_the_device())
        who = "Triton cannot compile"
    call = _callable(entry, kernel, schema)

    def computed(*args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        except not_compiled as error:
            why = _innermost(error, not_compiled)
            text = f"{who} `{kernel.symbol}` for this call of `{kernel.operator}`: {why}"
            raise refusal(kernel, text) from error

    return computed


def _is_interpreted(kernel: Kernel) -> bool:
    return kernel.execution is Execution.COPIES


def _compilers_errors(kernel: Kernel) -> tuple[type[Exception], ...]:
    """The exceptions by which Triton says that it cannot compile, or interpret, a function for a call."""
    compiling, running = (
        needed(kernel, f"triton.{part}.errors", "Triton", "triton")
        for part in ("compiler", "runtime")
    )
    # An interpreter that fails has written to its copies alone: no Tensor has changed.
    return compiling.CompilationError, running.OutOfResources, running.InterpreterError


def _innermost(error: BaseException, kinds: tuple[type[Exception], ...]) -> str:
    """The place in the innermost function called, and what is wrong there: callers' places are its causes."""
    while isinstance(error.__cause__, kinds):
        error = error.__cause__
    text, cause = str(error), "" if error.__cause__ is None else str(error.__cause__)
    return text if cause in text else f"{text}\n{cause}"


def _callable(entry: Entry, kernel: Kernel, schema: str) -> Callable[..., Any]:
    launch = kernel.launch
    assert launch is not None
    module = module_of(kernel, launch.module, lambda source: _imported(kernel, source))
    found = getattr(module, launch.name, None)
    if found is None:
        raise absent(kernel, module, launch.module, launch.name)
    if launch.form is TritonForm.LAUNCHER:
        check_callable(found, schema, kernel.operator, kernel.location)
        launcher: Callable[..., Any] = found
        is_of_flag_gems = launch.module == FLAG_GEMS
        return called_by_torch_library(found, entry, schema) if is_of_flag_gems else launcher
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
    return FunctionLauncher(entry, schema, found, parameters)


def _imported(kernel: Kernel, source: Path | str) -> ModuleType:
    if source == FLAG_GEMS:
        return import_flag_gems(is_interpreted=_is_interpreted(kernel))
    return imported(source)
