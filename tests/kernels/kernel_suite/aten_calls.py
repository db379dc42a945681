"""Calls of a program on the CPU, recorded as ATen's out variants with their results.

A kernel of the ``executorch`` ABI is an out variant, and users call functions: ``F.layer_norm``, ``x + 1``.
:class:`Recorder` listens while such code runs and keeps each operator that it comes down to, with
copies of its arguments and results.  Any runtime can then be asked for the same: see
``executorch_calls.py`` and ``test_kernels_on_a_device.py``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

import opsmith

# The dtypes of ATen that ExecuTorch's Tensors can hold.
DTYPES = frozenset(
    {
        torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
        torch.float32, torch.float64, torch.bool, torch.uint16,
    }
)  # fmt: skip
MOST_ELEMENTS = 50_000

# An out variant has none of these: `out` says it.
_OPTIONS = frozenset({"dtype", "layout", "device", "pin_memory", "generator"})


@dataclass(frozen=True)
class OperatorCall:
    """A call of ``operator``, an out variant (``aten::add.out``), and what ATen gave for it.

    ``arguments`` stand in the schema's order without the outs; Python numbers in the place of Tensors are
    0-dim Tensors already, as kernels get them.  ``results`` has one entry for each out: a Tensor, or a
    list of them.  ``written`` are the arguments by place that the operator changes, as they were
    afterwards.  ``origin`` says where the call comes from.
    """

    operator: str
    arguments: tuple[Any, ...]
    results: tuple[Any, ...]
    written: dict[int, Tensor] = field(default_factory=dict)
    origin: str = ""

    @property
    def tensors(self) -> list[Tensor]:
        """The Tensors among the arguments."""
        return [each for each in tree_leaves(self.arguments) if isinstance(each, Tensor)]

    @property
    def dtypes(self) -> tuple[torch.dtype, ...]:
        """The dtypes of its Tensors, and of its results."""
        found = [*self.tensors, *tree_leaves(self.results)]
        return tuple(tensor.dtype for tensor in found)

    def __str__(self) -> str:
        given = ", ".join(_shown(value) for value in self.arguments)
        return f"{self.operator}({given}) -> {', '.join(map(_shown, self.results))} [{self.origin}]"


@cache
def schema_of(operator: str) -> torch._C.FunctionSchema:
    """The schema of ``aten::add.out``; of operators that are not ATen's, as the manifests declare it."""
    if operator in (known := _schemas()):
        return known[operator]
    return torch._C.parse_schema(declared_operators()[operator])


@cache
def declared_operators() -> dict[str, str]:
    """The out variants that the manifests of opsmith's libraries declare, with their schemas."""
    found = {}
    for manifest in Path(opsmith.__file__).parent.glob("kernels/*/kernels.yaml"):
        for entry in msgspec.yaml.decode(manifest.read_bytes())["kernels"]:
            if "func" in entry and "kernel_name" in entry:
                found[entry["func"].partition("(")[0]] = entry["func"]
    return found


def inputs_of(schema: torch._C.FunctionSchema) -> list[torch._C.Argument]:
    """The arguments that are no outs, in their order."""
    return [argument for argument in schema.arguments if not argument.is_out]


def overload(operator: str) -> torch._ops.OpOverload:
    """``torch.ops.aten.add.out`` of ``aten::add.out``."""
    namespace, _, name = operator.partition("::")
    packet, _, variant = name.partition(".")
    found: torch._ops.OpOverload = getattr(
        getattr(getattr(torch.ops, namespace), packet), variant or "default"
    )
    return found


@cache
def functional_of(operator: str) -> torch._ops.OpOverload:
    """The operator that returns what the out variant ``operator`` writes."""
    base, taken = _signature(schema_of(operator))
    for name, schema in _schemas().items():
        is_functional = not any(argument.is_out for argument in schema.arguments)
        if is_functional and schema.name == base and _signature(schema) == (base, taken):
            return overload(name)
    raise KeyError(operator)


class Recorder(TorchDispatchMode):
    """Keeps the calls of those ``operators``, out variants, that code within comes down to.

    With ``most``, so many calls of an operator with the same dtypes are kept, and none with the same sizes.
    """

    def __init__(self, operators: Collection[str], most: int | None = None) -> None:
        super().__init__()
        self.calls: list[OperatorCall] = []
        self.origin = ""
        self._wanted = _callers(operators)
        self._operators: dict[Any, str | None] = {}
        self._most = most
        self._seen: set[Any] = set()
        self._counts: dict[Any, int] = {}

    def record(self, origin: str, run: Callable[[], object]) -> None:
        """Runs the code; what it calls before it raises is kept."""
        self.origin = origin
        with self, contextlib.suppress(Exception):
            run()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func not in self._operators:
            self._operators[func] = self._wanted.get(_signature(func._schema))
        operator = self._operators[func]
        bound = None if operator is None else self._bound(operator, func._schema, args, kwargs)
        result = func(*args, **kwargs)
        if operator is not None and bound is not None:
            self._keep(operator, *bound, result)
        return result

    def _bound(
        self, operator: str, schema: torch._C.FunctionSchema, args: Sequence[Any], kwargs: Any
    ) -> tuple[tuple[Any, ...], dict[int, Tensor]] | None:
        """Copies of the arguments of ``operator``, and those that will be written to; None: not kept."""
        given = {argument.name: argument.default_value for argument in schema.arguments}
        given |= dict(zip((argument.name for argument in schema.arguments), args, strict=False))
        given |= kwargs
        wanted = inputs_of(schema_of(operator))
        values = [given.get(argument.name, argument.default_value) for argument in wanted]
        values = _numbers_as_tensors(wanted, values)
        written = {
            place: values[place]
            for place, argument in enumerate(wanted)
            if argument.alias_info is not None
            and argument.alias_info.is_write
            and isinstance(values[place], Tensor)
        }
        if not all(map(_is_plain, tree_leaves(values))):
            return None
        if self._most is not None and not self._is_new(operator, values, self._most):
            return None
        return tuple(tree_map_only(Tensor, _copied, values)), written

    def _is_new(self, operator: str, values: Sequence[Any], most: int) -> bool:
        identity = (operator, *(_identity(value) for value in tree_leaves(values)))
        kind = (operator, *(_kind(value) for value in values))
        if identity in self._seen or self._counts.get(kind, 0) >= most:
            return False
        self._seen.add(identity)
        self._counts[kind] = self._counts.get(kind, 0) + 1
        return True

    def _keep(
        self, operator: str, arguments: tuple[Any, ...], written: dict[int, Tensor], result: Any
    ) -> None:
        outs = len(schema_of(operator).arguments) - len(inputs_of(schema_of(operator)))
        results = tuple(result) if outs > 1 else (result,)
        if not all(isinstance(leaf, Tensor) and _is_plain(leaf) for leaf in tree_leaves(results)):
            return
        results = tree_map_only(Tensor, _copied, results)
        after = {place: _copied(tensor) for place, tensor in written.items()}
        self.calls.append(OperatorCall(operator, arguments, results, after, self.origin))


def _callers(operators: Collection[str]) -> dict[Any, str]:
    """The out variants by the signatures of the operators that do the same: a view stands for its copy."""
    found = {}
    for name in operators:
        schema = schema_of(name)
        base, signature = _signature(schema)
        for each in {base, base.removesuffix("_copy")}:
            found[each, signature] = name
    return found


def _signature(schema: torch._C.FunctionSchema) -> Any:
    """The operator's name, not telling in-place variants apart, and what it takes."""
    name = schema.name
    inplace = name.endswith("_") and not name.endswith("__")
    return name[:-1] if inplace else name, tuple(
        (argument.name, str(argument.type))
        for argument in inputs_of(schema)
        if argument.name not in _OPTIONS
    )


@cache
def _schemas() -> dict[str, torch._C.FunctionSchema]:
    return {
        schema.name + (f".{schema.overload_name}" if schema.overload_name else ""): schema
        for schema in torch._C._jit_get_all_schemas()
    }


def _numbers_as_tensors(arguments: Sequence[torch._C.Argument], values: list[Any]) -> list[Any]:
    """Python numbers for Tensors as 0-dim Tensors in the dtype in which the operator computes.

    That is Float where its result is Half or BFloat16: the bridge to a device does the same.
    """
    places = [
        place
        for place, (argument, value) in enumerate(zip(arguments, values, strict=True))
        if str(argument.type) == "Tensor" and isinstance(value, bool | int | float)
    ]
    if not places:
        return values
    operands = [value for value in values if isinstance(value, Tensor)]
    operands += [torch.scalar_tensor(values[place]) for place in places[len(operands) > 0 :]]
    common: Any = operands[0].dtype if operands else torch.get_default_dtype()
    for value in (*operands[1:], *(values[place] for place in places)):
        common = torch.result_type(torch.empty((1,) * 1, dtype=common), value)
    dtype = torch.float32 if common in (torch.float16, torch.bfloat16) else common
    return [
        torch.scalar_tensor(value, dtype=dtype) if place in places else value
        for place, value in enumerate(values)
    ]


def _copied(tensor: Tensor) -> Tensor:
    """The same values in the same dim order, dense; ExecuTorch's Tensors have no gaps."""
    if (
        tensor.numel() == 0
    ):  # its strides may be anything, and ExecuTorch's runtime ends the process then
        return tensor.new_empty(tensor.shape)
    return tensor.detach().clone(memory_format=torch.preserve_format)


def _is_plain(value: Any) -> bool:
    """Whether programs of ExecuTorch can hold the value."""
    if isinstance(value, Tensor):
        return (
            value.layout == torch.strided
            and value.device.type == "cpu"
            and value.dtype in DTYPES
            and value.numel() <= MOST_ELEMENTS
        )
    known = (
        bool | int | float | str | torch.dtype | torch.memory_format | torch.layout | torch.device
    )
    return value is None or isinstance(value, known)


def _identity(value: Any) -> Any:
    """The properties that tell two arguments apart, their elements aside."""
    if isinstance(value, Tensor):
        return value.dtype, tuple(value.shape), value.stride()
    return type(value), repr(value)


def _kind(value: Any) -> Any:
    return value.dtype if isinstance(value, Tensor) else type(value)


def _shown(value: Any) -> str:
    if isinstance(value, Tensor):
        name = str(value.dtype).removeprefix("torch.")
        order = "" if value.is_contiguous() else f" strides {list(value.stride())}"
        return f"{name}{list(value.shape)}{order}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_shown, value)) + "]"
    return repr(value)


def directly(operator: str, *arguments: Any) -> OperatorCall:
    """The call of an out variant with the ``arguments`` that its schema has, and what its functional gives.

    For operators that PyTorch takes apart, and which code therefore does not come down to.
    """
    values = _numbers_as_tensors(inputs_of(schema_of(operator)), list(arguments))
    copies = tuple(tree_map_only(Tensor, _copied, values))
    names = [argument.name for argument in inputs_of(schema_of(operator))]
    result = functional_of(operator)(**dict(zip(names, arguments, strict=True)))
    return OperatorCall(
        operator,
        copies,
        tuple(result) if isinstance(result, tuple) else (result,),
        origin="called directly",
    )
