"""A module with inputs to call it with, made by a factory or read from an exported graph, run on a device.

``opsmith coverage --module`` and ``opsmith coverage model.pt2`` run it in this process.  What a factory
may be is said in :func:`made_by_factory`.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import is_zipfile

from opsmith.errors import FileMissing, ProgramInvalid, nearest
from opsmith.runtime.records.calls import Calls, record_calls

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module


@dataclass(frozen=True)
class ModuleProgram:
    """A module and what to call it with, on the CPU; ``placed`` gives the module on a device.

    ``dynamic_shapes`` says which sizes may change, as ``torch.export`` takes it.
    """

    name: str
    placed: Callable[[str], Module]
    inputs: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)
    dynamic_shapes: Any = None

    def record(self, device: str, *, train: bool) -> Calls:
        """The operators that one call on ``device`` takes, with ``train`` those of its backward too.

        It is called once before, for what is only done the first time.  Raises
        :class:`~opsmith.errors.ProgramInvalid` where there is nothing to differentiate.
        """
        import torch

        from opsmith.schema.torch_names import tree_map_only

        module = self.placed(device)
        inputs, keywords = tree_map_only(
            torch.Tensor, lambda tensor: tensor.to(device), (self.inputs, dict(self.keywords))
        )

        def call() -> None:
            with torch.set_grad_enabled(train):
                results = module(*inputs, **keywords)
                if train:
                    torch.autograd.backward(self._loss(results))

        call()
        with record_calls() as recorded:
            call()
        return recorded.calls

    def _loss(self, results: Any) -> Tensor:
        """The sum of all that is differentiable."""
        import torch

        from opsmith.schema.torch_names import tree_leaves

        leaves = tree_leaves(dict(results) if isinstance(results, Mapping) else results)
        sums = [
            leaf.sum() for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad
        ]
        if not sums:
            raise ProgramInvalid(
                f"`{self.name}` returns no Tensor that requires a gradient, so it has no backward",
                remedy="leave out --train",
            )
        return torch.stack(sums).sum()


# ---- from a factory


def made_by_factory(spec: str, inputs: Sequence[str], *, train: bool) -> ModuleProgram:
    """The program of the module that ``package.module:name`` makes.

    ``name`` is a function without arguments that returns a module, or ``(module, inputs)`` with a tuple
    or a dictionary of inputs, and the dynamic shapes after them; or a class of modules.  A class is made
    without arguments, or, where its ``config_class`` says so as in transformers, from a default
    configuration.  ``inputs`` are those of the command line, ``2x3x32x32`` or ``1x16:int64``; without,
    they are the module's own ``dummy_inputs``.

    Raises :class:`~opsmith.errors.ProgramInvalid`.
    """
    made = _call(_attribute(spec), spec)
    if not (isinstance(made, tuple) and len(made) in {2, 3}):
        return _program(spec, made, None, inputs, train)
    module, given, *shapes = made
    program = _program(spec, module, given, inputs, train)
    return replace(program, dynamic_shapes=shapes[0]) if shapes else program


def _program(
    spec: str, module: Any, given: Any, inputs: Sequence[str], train: bool
) -> ModuleProgram:
    import torch

    if not isinstance(module, torch.nn.Module):
        raise ProgramInvalid(
            f"`{spec}` gives no torch.nn.Module, but {type(module).__name__}",
            remedy="let it return a module, or (module, example_inputs)",
        )
    placed = _in_mode(module, train).to
    if inputs:
        return ModuleProgram(spec, placed, tuple(map(_input, inputs)))
    if given is None:
        given = getattr(module, "dummy_inputs", None)
    if given is None:
        raise ProgramInvalid(
            f"nothing says what to call the module of `{spec}` with",
            remedy="name an input for each argument, such as --input 1x3x32x32 or --input 1x16:int64, or "
            "let the factory return (module, example_inputs)",
        )
    if isinstance(given, Mapping):
        return ModuleProgram(spec, placed, (), dict(given))
    return ModuleProgram(spec, placed, given if isinstance(given, tuple) else (given,))


def _in_mode(module: Module, train: bool) -> Module:
    """``module`` for training or not; one that pt2e has exported refuses both, and stays as it is."""
    try:
        return module.train(train)
    except NotImplementedError:
        return module


def _attribute(spec: str) -> Any:
    name, colon, attribute = spec.partition(":")
    if not (name and colon and attribute):
        raise ProgramInvalid(
            f"`{spec}` does not name a factory",
            remedy="write MODULE:NAME, such as mymodels.resnet:small or transformers:BertModel",
        )
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` does
    try:
        value: Any = importlib.import_module(name)
    except ImportError as error:
        module = name.removesuffix(".py").replace("/", ".")
        raise ProgramInvalid(
            f"`{name}` cannot be imported: {error}",
            remedy="install it, or run the command in the folder that it lies in"
            if module == name
            else f"name the module rather than its file: `{module}:{attribute}`",
        ) from None
    for part in attribute.split("."):
        if not hasattr(value, part):
            raise ProgramInvalid(
                f"`{name}` has no `{attribute}`{nearest(part, dir(value))}",
                remedy="write MODULE:NAME, such as mymodels.resnet:small or transformers:BertModel",
            )
        value = getattr(value, part)
    return value


def _call(factory: Any, spec: str) -> Any:
    import torch

    if isinstance(factory, torch.nn.Module):
        return factory
    configuration = getattr(factory, "config_class", None)
    try:
        return factory() if configuration is None else factory(configuration())
    except TypeError as error:
        raise ProgramInvalid(
            f"`{spec}` cannot be called without arguments: {error}",
            remedy="write a function without arguments that returns (module, example_inputs)",
        ) from error


def _input(spec: str) -> Tensor:
    """A Tensor of ``2x3x32`` or ``1x16:int64``: normal random numbers, or of integers zeros and ones."""
    import torch

    sizes, _, name = spec.partition(":")
    dtype = getattr(torch, name or "float32", None)
    if not isinstance(dtype, torch.dtype):
        known = [key for key in vars(torch) if isinstance(getattr(torch, key), torch.dtype)]
        raise ProgramInvalid(
            f"torch has no dtype `{name}`{nearest(name, known)}",
            remedy="write SIZES:DTYPE, such as 1x16:int64",
        )
    try:
        shape = [int(size) for size in sizes.split("x")] if sizes else []
        if min(shape, default=0) < 0:
            raise ValueError
    except ValueError:
        raise ProgramInvalid(
            f"`{spec}` is not the shape of an input",
            remedy="write its sizes with x between them, and its dtype if it is not float32: 1x16:int64",
        ) from None
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, dtype=dtype)
    return torch.randint(0, 2, shape, dtype=dtype)


# ---- from an exported graph


def read_exported(path: Path, inputs: Sequence[str]) -> ModuleProgram:
    """The graph that ``torch.export.save`` wrote to ``path``, with its own example inputs or ``inputs``.

    Raises :class:`~opsmith.errors.FileMissing` or :class:`~opsmith.errors.ProgramInvalid`.
    """
    import torch
    from torch.export.passes import move_to_device_pass

    if not path.is_file():
        raise FileMissing(
            f"there is no exported graph `{path}`", remedy="write one with torch.export.save"
        )
    try:
        if not is_zipfile(path):  # torch would log its whole trace first
            raise ValueError("it is not a zip archive")
        exported = torch.export.load(path)
    except Exception as error:
        raise ProgramInvalid(
            f"`{path}` holds no exported graph: {error}",
            remedy="write it with torch.export.save, with the installed torch",
        ) from None

    def placed(device: str) -> Module:
        return move_to_device_pass(exported, device).module()

    if inputs:
        return ModuleProgram(str(path), placed, tuple(map(_input, inputs)))
    if exported.example_inputs is None:
        raise ProgramInvalid(
            f"`{path}` was saved without example inputs",
            remedy="name an input for each argument, such as --input 1x3x32x32",
        )
    arguments, keywords = exported.example_inputs
    return ModuleProgram(str(path), placed, tuple(arguments), keywords)
