"""Triton's interpreter for launches on the loaded device: Python on the host, on copies of the Tensors.

``TRITON_INTERPRET=1`` makes every ``@triton.jit`` function an interpreted one when it is decorated.  Here
that is decided at a launch, by the device of its Tensors, so that libraries which want compiled functions can
be imported, and kernels for other devices of the process go on being compiled.

Triton's interpreter adds two bfloat16 numbers as if they were integers.  So kernels that are given such
Tensors are refused unless they do nothing but load and store them.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch

from opsmith.errors import Unsupported
from opsmith.runtime.triton.device import triton_device
from opsmith.runtime.triton.interpreted_language import mend_interpreter

ONLY_MOVES_BFLOAT16 = "_opsmith_only_moves_bfloat16"
"""An attribute of functions of ``@triton.jit`` that compute with bfloat16 in no other way than as float32."""

_lock = threading.RLock()
_state = threading.local()


@functools.cache
def interpret_on_devices() -> None:
    """Has launches with a Tensor of a PrivateUse1 device interpreted from now on."""
    # Here: they need Triton.
    from triton import language
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction

    compiled_run, compiled_call = JITFunction.run, JITFunction.__call__
    interpreter_run = InterpretedFunction.run

    def modules_of(function: Any) -> list[ModuleType]:
        return [each for each in function.__globals__.values() if isinstance(each, ModuleType)]

    def interpreted(function: Any) -> Any:
        # Not a dict: the hash of such a function is that of all the source that it calls.
        if not hasattr(function, "_opsmith_interpreted"):
            function._opsmith_interpreted = InterpretedFunction(function.fn)
            if hasattr(function, ONLY_MOVES_BFLOAT16):
                setattr(function._opsmith_interpreted, ONLY_MOVES_BFLOAT16, True)
        return function._opsmith_interpreted

    @functools.wraps(compiled_run)
    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        if not _is_on_device((*args, *kwargs.values())):
            return compiled_run(self, *args, grid=grid, warmup=warmup, **kwargs)
        for hook in self.pre_run_hooks:
            hook(*args, **kwargs)
        interpreted(self).run(*args, grid=grid, warmup=warmup, **kwargs)
        return _Launched(self, args, kwargs)

    @functools.wraps(interpreter_run)
    def run_on_copies(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_on_device((*args, *kwargs.values())):
            return interpreter_run(self, *args, **kwargs)
        if not hasattr(self, ONLY_MOVES_BFLOAT16) and _has_bfloat16((*args, *kwargs.values())):
            raise Unsupported(
                f"Triton's interpreter cannot compute in bfloat16, which `{self.fn.__name__}` is given",
                remedy="limit the entry to other dtypes (`dtypes`), let other kernels serve such calls "
                "(`on_error: fallback`), or name Triton's backend for the device, `triton: {backend: …}`",
            )
        given = [_as_tensor(each) for each in args]
        # The interpreter replaces functions of triton.language while it runs.
        with _lock, _running():
            result = interpreter_run(self, *given, **kwargs)
        torch.ops.opsmith.count_moved(_moved((*given, *kwargs.values())))
        return result

    @functools.wraps(compiled_call)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not getattr(_state, "runs", False):
            return compiled_call(self, *args, **kwargs)
        if any(each in (language, language.core) for each in modules_of(self.fn)):
            return interpreted(self)(*args, **kwargs)
        # Without a name for Triton's language in its module, it has that of the kernel that calls it.
        return interpreted(self).rewrite()(*args, **kwargs)

    JITFunction.run, JITFunction.__call__, InterpretedFunction.run = run, call, run_on_copies
    Autotuner.run = with_first_configuration(Autotuner.run)
    mend_interpreter()


def with_first_configuration(run: Callable[..., Any]) -> Callable[..., Any]:
    """``Autotuner.run``, or a subclass's, that tunes nothing for launches on the device.

    Times of an interpreter say nothing of a device: the first configuration is as good as any.
    """

    @functools.wraps(run)
    def run_first(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_on_device((*args, *kwargs.values())):
            return run(self, *args, **kwargs)
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        self.best_config = config = self.configs[0]
        try:
            if config.pre_hook is not None:
                config.pre_hook({**self.nargs, **kwargs, **config.all_kwargs()})
            return self.fn.run(*args, **{**kwargs, **config.all_kwargs()})
        finally:
            self.nargs = None

    return run_first


class _Launched:
    """The result of a launch, in the place of a compiled kernel: ``kernel[grid](…)`` launches again.

    As a compiled kernel it knows its ``constexpr``s, and takes the other arguments by position.
    """

    def __init__(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._function = function
        self._names = [each.name for each in function.params if not each.is_constexpr]
        constants = {each.name for each in function.params if each.is_constexpr}
        given = {**dict(zip(function.arg_names, args, strict=False)), **kwargs}
        self._constants = {name: value for name, value in given.items() if name in constants}

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        def launch(*args: Any) -> Any:
            if len(args) == len(self._function.arg_names):
                return self._function.run(*args, grid=grid, warmup=False)
            named = dict(zip(self._names, args, strict=True))
            ordered = {**named, **self._constants}
            return self._function.run(
                *(ordered[name] for name in self._function.arg_names if name in ordered),
                grid=grid,
                warmup=False,
            )

        return launch


@contextmanager
def _running() -> Iterator[None]:
    """While the block runs, functions that a kernel calls are interpreted too, on this thread."""
    before, _state.runs = getattr(_state, "runs", False), True
    try:
        yield
    finally:
        _state.runs = before


def _as_tensor(argument: Any) -> Any:
    """A Tensor for what has the address of one's memory, as FlagGems' ``StridedBuffer``."""
    base = getattr(argument, "_base", None)
    if isinstance(argument, torch.Tensor) or not isinstance(base, torch.Tensor):
        return argument
    typed = base if base.dtype is argument.dtype else base.view(argument.dtype)
    offset = (argument.data_ptr() - base.data_ptr()) // argument.dtype.itemsize
    return typed.as_strided((1,), (1,), typed.storage_offset() + offset)


def _moved(arguments: Iterable[Any]) -> int:
    """The bytes that a launch moves: the interpreter copies each storage whole, to the host and back."""
    storages = {
        each.untyped_storage()._cdata: each.untyped_storage().nbytes()
        for each in arguments
        if isinstance(each, torch.Tensor) and each.device.type == triton_device().name
    }
    return 2 * sum(storages.values())


def _has_bfloat16(arguments: Iterable[Any]) -> bool:
    return any(getattr(each, "dtype", None) is torch.bfloat16 for each in arguments)


def _is_on_device(arguments: Iterable[Any]) -> bool:
    for each in arguments:
        if isinstance(each, tuple):
            if _is_on_device(each):
                return True
        elif getattr(getattr(each, "device", None), "type", "") == triton_device().name:
            return True
    return False
