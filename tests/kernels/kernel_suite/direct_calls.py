"""Kernels called as nothing but a test calls them: with whatever arguments, without a program around.

A program's values come from an exporter, which makes few mistakes.  ``direct_calls.cpp`` puts arguments of
any kind together, in memory between pages that nobody may touch, calls a function of the runtime's registry,
and tells what it did: the error, or the signal that it would have died of.
"""

from __future__ import annotations

import ctypes
import math
import struct
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from aten_calls import OperatorCall, inputs_of, schema_of
from executorch.exir.tensor import scalar_type_enum
from executorch_calls import dim_order
from torch import Tensor

from opsmith.build.executorch import find_executorch

STATIC, BOUND = 0, 1
"""How an out may be resized: not at all, or within the memory that it has."""

_FORMATS = {torch.contiguous_format: 0, torch.preserve_format: 1, torch.channels_last: 2}
_SIGNAL, _UNDERWRITTEN = 1000, 2000

# Under this form, which no program has, a kernel of a library is registered to be called.
_OWN_RANK = 13
OWN_KEY = f"v1/6;{','.join(map(str, range(_OWN_RANK)))}"


@dataclass(frozen=True)
class Out:
    """Memory for a result: of what dtype, which sizes and dim order, and whether it may be resized."""

    dtype: torch.dtype
    sizes: tuple[int, ...]
    order: tuple[int, ...]
    dynamism: int = STATIC

    @property
    def size(self) -> int:
        """Its bytes."""
        return math.prod(self.sizes) * self.dtype.itemsize


Outs = tuple[Out | list[Out], ...]


@dataclass(frozen=True)
class DirectCall:
    """A call of the out variant ``operator``; ``mistake`` names the kind of what may be wrong with it."""

    operator: str
    arguments: tuple[Any, ...]
    outs: Outs
    mistake: str = ""
    what: str = ""

    def __str__(self) -> str:
        shown = OperatorCall(
            self.operator, self.arguments, (), origin=f"{self.mistake}: {self.what}"
        )
        return f"{shown} to {self.outs}"


@dataclass(frozen=True)
class Answer:
    """The outcome of a call: the runtime's error (0: none), and the outs' sizes and bytes.

    ``died`` says which signal it raised, or that it wrote in front of a Tensor.
    """

    error: int
    outs: tuple[tuple[tuple[int, ...], bytes], ...] = ()
    died: str = ""

    @property
    def is_refusal(self) -> bool:
        """Whether it computed nothing."""
        return self.error != 0 or bool(self.died)


class Caller:
    """Calls the functions of this process's runtime.  ``library`` is the file of :func:`built_caller`."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self._library.probe_function.restype = ctypes.c_void_p
        self._library.probe_function.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_int]
        self._library.probe_call.argtypes = [
            ctypes.c_void_p,
            ctypes.c_char_p,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_char_p,
        ]
        self._library.probe_arm()
        self._answer = ctypes.create_string_buffer(16 << 20)

    def runtimes_own(self, operator: str) -> int | None:
        """The function for calls that no key takes."""
        found: int | None = self._library.probe_function(operator.encode(), 0, -1)
        return found

    def registered(self, operator: str) -> int | None:
        """The function that is registered under :data:`OWN_KEY`."""
        found: int | None = self._library.probe_function(operator.encode(), 6, _OWN_RANK)
        return found

    def call(self, function: int, call: DirectCall, *, allocator: bool = True) -> Answer:
        """Calls ``function``; without ``allocator`` the runtime has no temporary memory to give."""
        text = text_of(call)
        count = len(call.arguments) + len(call.outs)
        status = self._library.probe_call(function, text, count, int(allocator), self._answer)
        return contents_of(call, status, memoryview(self._answer))


def contents_of(call: DirectCall, status: int, answer: bytes | memoryview) -> Answer:
    """The answer to ``call``, from what ``probe_call`` returned and wrote."""
    assert status != -1, f"too much for the caller: {call}"
    if status == _UNDERWRITTEN:
        return Answer(status, died="it wrote in front of a Tensor")
    if status > _SIGNAL:
        return Answer(status, died=f"it raised signal {status - _SIGNAL}")
    if status != 0:
        return Answer(status)
    given = sum(len(list(_tensors(value))) for value in call.arguments)
    return Answer(0, tuple(_contents(memoryview(answer)))[given:])


def _contents(memory: memoryview) -> Iterator[tuple[tuple[int, ...], bytes]]:
    (count,) = struct.unpack_from("<i", memory, 0)
    at = 4
    for _ in range(count):
        (rank,) = struct.unpack_from("<i", memory, at)
        sizes = struct.unpack_from(f"<{rank}i", memory, at + 4)
        (size,) = struct.unpack_from("<q", memory, at + 4 + 4 * rank)
        at += 12 + 4 * rank
        yield sizes, bytes(memory[at : at + size])
        at += size


def built_caller(folder: Path) -> Path:
    """``direct_calls.cpp``, compiled for the installed runtime into ``folder``."""
    installation = find_executorch()
    library = folder / "direct_calls.so"
    command = [
        "c++",
        "-std=c++17",
        "-O1",
        "-fPIC",
        "-shared",
        "-DC10_USING_CUSTOM_GENERATED_MACROS",
    ]
    command += [f"-I{path}" for path in installation.headers.include_dirs]
    command += [str(Path(__file__).with_suffix(".cpp")), "-o", str(library)]
    command += [str(path) for path in installation.libraries]
    subprocess.run(command, check=True)
    return library


# ---- arguments as text


def text_of(call: DirectCall) -> bytes:
    """The call's arguments and outs, as ``direct_calls.cpp`` reads them."""
    parameters = inputs_of(schema_of(call.operator))
    parts = [
        _value(
            value, str(parameter.type), bool(parameter.alias_info and parameter.alias_info.is_write)
        )
        for parameter, value in zip(parameters, call.arguments, strict=True)
    ]
    return b"".join([*parts, *(_value(out, "List[Tensor]", True) for out in call.outs)])


def _value(value: Any, kind: str, writable: bool = False) -> bytes:
    if value is None:
        return b"N"
    if isinstance(value, Tensor | Out):
        return _tensor(value, writable)
    if isinstance(value, list | tuple):
        return _list(value, kind, writable)
    if isinstance(value, bool):
        return b"B" + struct.pack("<q", value)
    if isinstance(value, str):
        return b"S" + struct.pack("<q", len(value)) + value.encode()
    if isinstance(value, torch.dtype):
        return b"I" + struct.pack("<q", _number_of(value))
    if isinstance(value, torch.memory_format):
        return b"I" + struct.pack("<q", _FORMATS.get(value, 3))
    if isinstance(value, float) or "float" in kind:
        return b"D" + struct.pack("<d", float(value))
    return b"I" + struct.pack("<q", int(value))


def _list(values: Sequence[Any], kind: str, writable: bool) -> bytes:
    count = struct.pack("<q", len(values))
    if "Tensor" in kind:
        tag = b"o" if "Optional" in kind else b"t"
        return tag + count + b"".join(_value(each, "Tensor", writable) for each in values)
    if "float" in kind:
        return b"d" + count + struct.pack(f"<{len(values)}d", *map(float, values))
    tag = b"b" if "bool" in kind else b"i"
    return tag + count + struct.pack(f"<{len(values)}q", *map(int, values))


def _tensor(tensor: Tensor | Out, writable: bool) -> bytes:
    if isinstance(tensor, Out):
        sizes, order, dynamism = tensor.sizes, tensor.order, tensor.dynamism
        content = (b"\x01" if tensor.dtype == torch.bool else b"\x55") * tensor.size
    else:
        sizes, order, dynamism = tuple(tensor.shape), dim_order(tensor), STATIC
        laid = tensor.detach().permute(order).clone(memory_format=torch.contiguous_format)
        laid = laid.reshape(-1)
        content = laid.view(torch.uint8).numpy().tobytes() if laid.numel() else b""
    head = (_number_of(tensor.dtype), dynamism, int(writable), len(sizes), *sizes, *order)
    return b"T" + struct.pack(f"<{len(head)}iq", *head, len(content)) + content


@cache
def _number_of(dtype: torch.dtype) -> int:
    return int(scalar_type_enum(dtype))


def _tensors(value: Any) -> Iterator[Tensor | Out]:
    if isinstance(value, Tensor | Out):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)
