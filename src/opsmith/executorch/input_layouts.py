"""The layout of inputs to programs that a process runs itself, which the runtime does not look at.

It gives the input's memory to the program's Tensor, whose strides are those of the export: a channels-last
input of a contiguous program, and the other way round, is computed as if its elements were in another order.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias, cast
from weakref import WeakKeyDictionary

import torch

from opsmith.base.trusted_files import open_regular
from opsmith.errors import InputsRejected, ProgramInvalid
from opsmith.executorch.inputs import expected_inputs, layout_mismatch
from opsmith.executorch.program import ExecutorchProgram, parsed_program
from opsmith.executorch.tasks import Expected

# Each Tensor, and whether it is contiguous.
_Inputs: TypeAlias = Sequence[tuple[Expected, bool] | None]

# The inputs of programs, modules and methods that were loaded, with their file; of the first two by method.
_programs: WeakKeyDictionary[Any, tuple[Path, Mapping[str, _Inputs]]] = WeakKeyDictionary()
_methods: WeakKeyDictionary[Any, tuple[Path, _Inputs]] = WeakKeyDictionary()

# The functions that load one; the first argument is a path, or the bytes of what they call so.
_LOADING = (
    "_load_program",
    "_load_program_from_buffer",
    "_load_for_executorch",
    "_load_for_executorch_from_buffer",
)
_FROM_BUFFER = Path("the program's buffer")
# Has the functions under its own name.
_PORTABLE_LIB = "executorch.extension.pybindings.portable_lib"


def check_layouts(runtime: ModuleType) -> None:
    """Has calls of programs that ``runtime`` loads from now on raise :class:`InputsRejected`."""
    for name in _LOADING:
        before = getattr(runtime, name)
        if hasattr(before, "__wrapped__"):
            return
        loading = _remembering(before)
        for module in filter(None, (runtime, sys.modules.get(_PORTABLE_LIB))):
            setattr(module, name, loading)
    program, method, module = (
        runtime.ExecuTorchProgram,
        runtime.ExecuTorchMethod,
        runtime.ExecuTorchModule,
    )
    program.load_method = _loading_method(program.load_method)
    for name in ("__call__", "call", "set_inputs"):
        setattr(method, name, _checking(getattr(method, name)))
    for name in ("__call__", "forward"):
        setattr(module, name, _checking(getattr(module, name), "forward"))
    module.run_method = _checking_named(module.run_method)


def _remembering(load: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(load)
    def loaded(source: Any, *arguments: Any, **options: Any) -> Any:
        made = load(source, *arguments, **options)
        with suppress(ProgramInvalid):  # the runtime takes it: one of another version
            program = _program(source)
            _programs[made] = (
                program.path,
                {
                    name: [
                        None if each is None else (each, _is_contiguous(each))
                        for each in expected_inputs(inputs)
                    ]
                    for name, inputs in program.inputs.items()
                },
            )
        return made

    return loaded


def _is_contiguous(wanted: Expected) -> bool:
    return wanted.dim_order == tuple(range(len(wanted.sizes)))


def _program(source: Any) -> ExecutorchProgram:
    if isinstance(source, bytes):
        return parsed_program(_FROM_BUFFER, source)
    path = Path(source)
    with (
        open_regular(path) as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        return parsed_program(path, cast(bytes, content))  # of which it reads little


def _loading_method(load: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(load)
    def loaded(program: Any, name: str) -> Any:
        method = load(program, name)
        if program in _programs:
            path, inputs = _programs[program]
            _methods[method] = path, inputs[name]
        return method

    return loaded


def _checking(call: Callable[..., Any], method: str | None = None) -> Callable[..., Any]:
    """``call`` of a method, or of a module, whose ``method`` it calls."""

    @wraps(call)
    def checked(called: Any, inputs: Any = (), *arguments: Any, **options: Any) -> Any:
        if method is None:
            _check(_methods.get(called), inputs)
        else:
            _check(_of_module(called, method), inputs)
        return call(called, inputs, *arguments, **options)

    return checked


def _checking_named(call: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(call)
    def checked(module: Any, name: str, inputs: Any = (), *arguments: Any, **options: Any) -> Any:
        _check(_of_module(module, name), inputs)
        return call(module, name, inputs, *arguments, **options)

    return checked


def _of_module(module: Any, method: str) -> tuple[Path, _Inputs] | None:
    path, methods = _programs.get(module, (_FROM_BUFFER, {}))
    return (path, methods[method]) if method in methods else None


def _check(taken: tuple[Path, _Inputs] | None, inputs: Any) -> None:
    """Raises for an input that lies otherwise; whatever else does not fit, the runtime says."""
    if taken is None or not isinstance(inputs, Sequence):
        return
    path, expected = taken
    for place, (given, wanted) in enumerate(zip(inputs, expected, strict=False)):
        if wanted is None or (
            wanted[1] and isinstance(given, torch.Tensor) and given.is_contiguous()
        ):
            continue  # nearly all, in each call
        if wrong := layout_mismatch(place, given, wanted[0]):
            raise InputsRejected(f"`{path}`: {wrong[0]}", remedy=wrong[1])
