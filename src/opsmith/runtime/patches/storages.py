"""Storages of the device: the types ``torch.<name>.FloatStorage`` and its kin, and what PyTorch lacks.

PyTorch generates ``.<name>()`` and ``.is_<name>`` of storages, and serves the rest of their methods through
tensors; ``byteswap`` alone takes the storage's address for one of the host's.
:mod:`opsmith.runtime.module.device_module` shows the types, :mod:`opsmith.runtime.load` calls
:func:`complete_storages`.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from opsmith.schema import torch_names

_DTYPES = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
    "ComplexDoubleStorage": torch.complex128,
    "ComplexFloatStorage": torch.complex64,
}


def storage_types(device_type: str) -> dict[str, type[torch.TypedStorage]]:
    """The types of typed storages on ``device_type``, by their names.

    As ``torch.cuda.FloatStorage``: a call makes a ``torch.TypedStorage``, and ``isinstance`` asks one for
    its device and dtype.
    """
    legacy: Any = torch_names._LegacyStorage
    made = {}
    for name, dtype in _DTYPES.items():
        members = {"__module__": f"torch.{device_type}", "dtype": dtype, "_dtype": dtype}
        made[name] = type(legacy)(name, (legacy,), members)
    torch_names._storage_classes.update(made.values())
    return made


def complete_storages(device_type: str) -> None:
    """Has storages of ``device_type`` swap their bytes on the host; PyTorch's own function crashes."""
    original: Any = torch.UntypedStorage.byteswap

    @functools.wraps(original)
    def byteswap(storage: Any, dtype: torch.dtype) -> None:
        if storage.device.type != device_type:
            original(storage, dtype)
            return
        on_host = storage.cpu()
        original(on_host, dtype)
        storage.copy_(on_host)

    torch.UntypedStorage.byteswap = byteswap  # type: ignore[method-assign]
