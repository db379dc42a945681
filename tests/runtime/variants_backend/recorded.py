"""Calls of ATen operators, recorded while PyTorch's own OpInfo samples run on the CPU.

An OpInfo names a Python function; what reaches a backend are the ATen operators that it ends in.  So
the samples run under a dispatch mode, which sees those with their arguments.

``python recorded.py FILE`` records in a process of its own, where pytest does not slow it down.
"""

from __future__ import annotations

import copyreg
import itertools
import subprocess
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.testing._internal import common_methods_invocations as opinfo
from torch.utils._python_dispatch import TorchDispatchMode

from opsmith.schema import Catalogue, Group, read_catalogue

# Samples of each OpInfo, by dtype.
SAMPLES = {torch.float32: 3, torch.int64: 2, torch.bfloat16: 1, torch.complex64: 1, torch.bool: 1}
_LARGEST = 4096
"""Elements: larger samples only take longer."""


@dataclass(frozen=True)
class Call:
    """The arguments, by name, of a call of one variant of a group, with everything on the CPU."""

    arguments: dict[str, Any]


def recorded(file: Path) -> dict[str, list[Call]]:
    """The calls that :func:`record` gives, recorded in another process, by way of ``file``."""
    subprocess.run([sys.executable, __file__, file], check=True)
    return {
        group: [Call(arguments) for arguments in calls]
        for group, calls in torch.load(file, weights_only=False).items()
    }


def record(catalogue: Catalogue, calls_per_group: int) -> dict[str, list[Call]]:
    """The calls of each group by its functional operator, at most so many for each and dtype."""
    recorder = _Recorder(catalogue, calls_per_group)
    for info in _infos():
        for sample in _samples(info):
            torch.manual_seed(0)
            try:
                with recorder, warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    info.op(sample.input, *sample.args, **sample.kwargs)
            except Exception:
                continue  # a sample that PyTorch itself refuses here
    return dict(recorder.calls)


def _infos() -> list[Any]:
    databases = [name for name in sorted(vars(opinfo)) if name.endswith("op_db")]
    infos: dict[tuple[str, str], Any] = {}
    for info in itertools.chain.from_iterable(getattr(opinfo, name) for name in databases):
        if not info.name.startswith("_refs"):
            infos.setdefault((info.name, info.variant_test_name), info)
    return [infos[key] for key in sorted(infos)]


def _samples(info: Any) -> Iterator[Any]:
    for dtype, count in SAMPLES.items():
        if dtype not in info.dtypes:
            continue
        torch.manual_seed(0)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                extra = {"noncontiguous": False} if info.name.startswith("_foreach") else {}
                yield from itertools.islice(info.sample_inputs("cpu", dtype, **extra), count)
        except Exception:
            continue  # samples that need what this machine has not


class _Recorder(TorchDispatchMode):  # type: ignore[misc]
    def __init__(self, catalogue: Catalogue, limit: int) -> None:
        super().__init__()
        self.catalogue = catalogue
        self.limit = limit
        self.calls: dict[str, list[Call]] = defaultdict(list)
        self.seen: dict[tuple[str, object], int] = defaultdict(int)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        group = self._group(func)
        if group is not None and group.functional is not None:
            self._record(group.functional, func, args, kwargs)
        return func(*args, **kwargs)

    def _group(self, func: Any) -> Group | None:
        name = func._schema.name.removeprefix("aten::")
        overload = func._schema.overload_name
        return self.catalogue.group_of.get(f"{name}.{overload}" if overload else name)

    def _record(self, group: str, func: Any, args: Any, kwargs: Any) -> None:
        given = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | kwargs
        tensors = list(tensors_in(given))
        dtype = tensors[0].dtype if tensors else None
        if self.seen[group, dtype] >= self.limit or sum(t.numel() for t in tensors) > _LARGEST:
            return
        if any(t.layout is not torch.strided or t.is_quantized or t.is_nested for t in tensors):
            return
        if not _is_data(given):
            return
        self.seen[group, dtype] += 1
        self.calls[group].append(Call({name: copied(value) for name, value in given.items()}))


def _is_data(value: object) -> bool:
    """Whether arguments can be sent to another process; generators cannot."""
    if isinstance(value, dict | list | tuple):
        return all(map(_is_data, value.values() if isinstance(value, dict) else value))
    kinds = (torch.dtype, torch.layout, torch.device, torch.memory_format)
    return value is None or type(value) in (Tensor, bool, int, float, complex, str, *kinds)


def tensors_in(value: object) -> Iterator[Tensor]:
    """The Tensors in arguments or results, however nested."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)


def copied(value: Any, device: str = "cpu") -> Any:
    """The same arguments, which share nothing with ``value``, with Tensors of the same strides."""
    if isinstance(value, Tensor):
        return _copied_tensor(value.detach().resolve_conj().resolve_neg(), device)
    if isinstance(value, list | tuple):
        return type(value)(copied(item, device) for item in value)
    if isinstance(value, torch.device) and device != "cpu":
        return torch.device(device)
    return value


def _copied_tensor(tensor: Tensor, device: str) -> Tensor:
    needed = sum((s - 1) * st for s, st in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    flat = torch.as_strided(tensor, (needed if tensor.numel() else 0,), (1,))
    return flat.clone().to(device).as_strided(tensor.shape, tensor.stride(), 0)


if __name__ == "__main__":
    torch.set_num_threads(1)
    copyreg.pickle(torch.memory_format, lambda kind: str(kind).removeprefix("torch."))
    found = record(read_catalogue(), calls_per_group=2)
    torch.save(
        {group: [call.arguments for call in calls] for group, calls in found.items()}, sys.argv[1]
    )
