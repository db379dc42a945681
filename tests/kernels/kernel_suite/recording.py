"""The samples' calls, recorded once for all processes that ask their runtimes for them.

They are kept in the cache, by what they are made of: half a minute of PyTorch's operators.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import torch
from aten_calls import OperatorCall, declared_operators
from torch import Tensor

import opsmith
from opsmith.build.cache import usable_cache, write_whole
from opsmith.conformance import boundary_values


@cache
def recording() -> list[OperatorCall]:
    """The calls that the samples come down to, of all operators that opsmith's lean libraries have."""
    path = usable_cache() / "kernel_suite" / f"{_digest()}.calls"
    try:
        found: list[OperatorCall] = pickle.loads(path.read_bytes())
    except OSError:
        found = _record()
        path.parent.mkdir(parents=True, exist_ok=True)
        buffer = io.BytesIO()
        _Pickler(buffer).dump(found)
        write_whole(path, buffer.getvalue())
    return found


class _Pickler(pickle.Pickler):
    """Writes Tensors as their bytes: PyTorch's own way takes ten times as long for small ones.

    Memory formats and layouts are written as attributes of torch: by themselves they name any module that has
    imported torch, and reading imports that, be it the other runtime's checks.
    """

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, torch.memory_format | torch.layout):
            return _attribute_of_torch, (str(value).removeprefix("torch."),)
        if not isinstance(value, Tensor):
            return NotImplemented
        content = torch.empty(0, dtype=torch.uint8).set_(value.untyped_storage()).numpy().tobytes()
        place = value.storage_offset(), tuple(value.shape), value.stride()
        return _tensor, (content, value.dtype, *place)


def _attribute_of_torch(name: str) -> Any:
    return getattr(torch, name)


def _tensor(
    content: bytes,
    dtype: torch.dtype,
    offset: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
) -> Tensor:
    storage = torch.empty(len(content), dtype=torch.uint8)
    if content:
        storage.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
    return torch.empty(0, dtype=dtype).set_(storage.untyped_storage(), offset, shape, strides)


def _record() -> list[OperatorCall]:
    from custom_samples import custom
    from kernel_samples import recorded

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    found = [*recorded(_aten_operators()), *custom()]
    torch.set_num_threads(threads)
    return found


def _manifests() -> list[Path]:
    return sorted(Path(opsmith.__file__).parent.glob("kernels/*/kernels.yaml"))


def _aten_operators() -> set[str]:
    manifests = [msgspec.yaml.decode(path.read_bytes()) for path in _manifests()]
    return {
        f"aten::{entry['op']}"
        for manifest in manifests
        if manifest.get("abi") == "executorch"
        for entry in manifest["kernels"]
        if "op" in entry
    }


def _digest() -> str:
    parts = [
        torch.__version__,
        torch.backends.cpu.get_cpu_capability(),
        repr(sorted(_aten_operators())),
    ]
    sources = [*sorted(Path(__file__).parent.glob("*.py")), Path(boundary_values.__file__)]
    parts += [path.read_text() for path in sources]
    return hashlib.sha256("\0".join([*parts, *sorted(declared_operators())]).encode()).hexdigest()[
        :32
    ]
