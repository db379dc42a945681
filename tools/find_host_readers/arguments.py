"""Arguments to call any ATen operator with: OpInfo's samples, and values made from the schema.

A composite that reads host memory does so for some arguments only, so there are many, and little says which
are taken: what the CPU refuses is no sample.
"""

from __future__ import annotations

import itertools
import random
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db

from operator_calls import Call, overload

_DTYPES = (torch.float32, torch.int64, torch.complex64, torch.bool)
_SAMPLES = 12
# Calls made from a schema, of each kind; most are refused.
_MADE = 300


def calls_of(name: str) -> Iterator[Call]:
    """Calls of the ATen operator ``name``, of which the CPU takes some."""
    base = name.partition(".")[0].strip("_")
    for info in op_db:
        names = {info.name.rpartition(".")[2], info.aten_name, info.aten_backward_name}
        if base in {each.strip("_") for each in names if each}:
            yield from _samples(info)
    yield from made_calls(overload(name)._schema)


def _samples(info: Any) -> Iterator[Call]:
    for dtype in _DTYPES:
        if dtype not in info.supported_dtypes("cpu"):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                samples = info.sample_inputs("cpu", dtype)
                for sample in itertools.islice(samples, _SAMPLES):
                    yield Call((sample.input, *sample.args), sample.kwargs)
        except (NotImplementedError, RuntimeError):
            continue


def made_calls(schema: Any) -> Iterator[Call]:
    """Calls with values of the types that ``schema`` has, the same ones for the same schema."""
    source = random.Random(str(schema))
    for number in range(2 * _MADE):
        tensors = _Tensors(source) if number < _MADE else _TensorsByChannel(source)
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for argument in schema.arguments:
            if argument.has_default_value() and source.random() < 0.5:
                value = argument.default_value
            else:
                value = _value(str(argument.type), source, tensors)
            if argument.kwarg_only:
                kwargs[argument.name] = value
            else:
                args.append(value)
        yield Call(tuple(args), kwargs)


class _Tensors:
    """Tensors of one call: alike in rank and sizes, most of the time, and of few dtypes."""

    def __init__(self, source: random.Random) -> None:
        self._source = source
        self._shape = [
            source.choice((1, 2, 3, 4)) for _ in range(source.choice((0, 1, 2, 3, 4, 4, 5)))
        ]
        self._dtype = source.choice((torch.float32, torch.float32, torch.int64, torch.bool))

    def one(self) -> torch.Tensor:
        source = self._source
        shape, dtype = list(self._shape), self._dtype
        chance = source.random()
        if chance < 0.15:
            shape = [source.choice((1, 2, 3, 4)) for _ in range(source.choice((0, 1, 2, 3, 4)))]
        elif chance < 0.3 and shape:
            shape = shape[:1]
        if source.random() < 0.25:
            dtype = source.choice(
                (torch.float32, torch.int64, torch.int32, torch.uint8, torch.bool)
            )
        values = [source.random() * 3 for _ in range(torch.Size(shape).numel())]
        return torch.tensor(values).reshape(shape).to(dtype)


class _TensorsByChannel(_Tensors):
    """Tensors of one call: the first is an image or a sequence, all others have a number for each channel."""

    def __init__(self, source: random.Random) -> None:
        super().__init__(source)
        self._shape = [source.choice((1, 2, 3, 4)) for _ in range(source.choice((2, 3, 4, 5)))]
        self._is_first = True

    def one(self) -> torch.Tensor:
        shape = self._shape if self._is_first else self._shape[1:2]
        self._is_first = False
        return torch.tensor(
            [self._source.random() * 3 for _ in range(torch.Size(shape).numel())]
        ).reshape(shape)


def _value(kind: str, source: random.Random, tensors: _Tensors) -> Any:
    if kind.startswith("Optional["):
        inner = kind.removeprefix("Optional[").removesuffix("]")
        return None if source.random() < 0.4 else _value(inner, source, tensors)
    if kind.startswith("List["):
        inner = kind.removeprefix("List[").removesuffix("]")
        return [_value(inner, source, tensors) for _ in range(source.choice((0, 1, 2, 2, 3)))]
    made: Mapping[str, Sequence[Any]] = {
        "int": (0, 1, 1, 2, 3, -1),
        "SymInt": (0, 1, 1, 2, 3, -1),
        "float": (0.5, 1.0, 2.0, 0.0),
        "number": (1, 2, 0.5),
        "bool": (False, True),
        "str": (
            "mean",
            "sum",
            "linear",
            "reflect",
            "constant",
            "ij",
            "none",
            "fro",
            "valid",
            "same",
        ),
        "Device": (torch.device("cpu"),),
        "Layout": (torch.strided,),
        "MemoryFormat": (torch.contiguous_format, torch.preserve_format, torch.channels_last),
        "ScalarType": (torch.float32, torch.int64, torch.float64, torch.bool),
    }
    if kind == "Tensor":
        return tensors.one()
    return source.choice(made[kind]) if kind in made else None
