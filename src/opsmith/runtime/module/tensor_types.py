"""``torch.<name>.FloatTensor`` and its kin: a dtype on a device, as programs of early PyTorch say it.

They are no classes of tensors but what ``torch.cuda.FloatTensor`` is: ``isinstance`` asks a tensor for its
device and dtype, a call makes an ordinary tensor, and ``Tensor.type()`` takes them and gives their names.
:mod:`opsmith.runtime.module.device_module` shows them; :mod:`opsmith.runtime.load` has
``torch.set_default_tensor_type`` accept them.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from opsmith.schema import torch_names

_DTYPES = {
    "DoubleTensor": torch.float64,
    "FloatTensor": torch.float32,
    "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16,
    "LongTensor": torch.int64,
    "IntTensor": torch.int32,
    "ShortTensor": torch.int16,
    "CharTensor": torch.int8,
    "ByteTensor": torch.uint8,
    "BoolTensor": torch.bool,
}


class TensorType(type):
    """The class of ``torch.<name>.FloatTensor`` and its kin."""

    dtype: torch.dtype
    layout = torch.strided
    is_cuda = False
    is_xpu = False
    is_sparse = False
    is_sparse_csr = False
    _device_type: str

    def __new__(mcs, device_type: str, name: str, dtype: torch.dtype) -> TensorType:
        # Tensor.type() reads the name of the type in C, with the module in it, as of PyTorch's own.
        made = super().__new__(
            mcs,
            f"torch.{device_type}.{name}",
            (),
            {
                "__module__": f"torch.{device_type}",
                "__qualname__": name,
                "__doc__": f"Tensors of {dtype} on {device_type}; see opsmith.runtime.module.tensor_types.",
                "dtype": dtype,
                "_device_type": device_type,
                f"is_{device_type}": True,
            },
        )
        return made

    def __init__(cls, device_type: str, name: str, dtype: torch.dtype) -> None:
        super().__init__(name, (), {})

    @property
    def __name__(cls) -> str:  # type: ignore[override]
        return cls.__qualname__

    def __instancecheck__(cls, instance: object) -> bool:
        return (
            isinstance(instance, torch.Tensor)
            and instance.device.type == cls._device_type
            and instance.dtype == cls.dtype
            and instance.layout == torch.strided
        )

    def __call__(cls, *arguments: Any, device: Any = None, **named: Any) -> torch.Tensor:
        """A tensor of that dtype on ``device``, which is the current one unless it is given.

        Of the sizes ``(2, 3)``, uninitialised; of a sequence, with its values; of a storage, or of a tensor
        of this very type, in the same memory.  Without arguments it is empty.  Raises TypeError for others.
        """
        if named:  # as PyTorch's: size=, data=, other=
            if arguments or len(named) > 1 or not named.keys() <= {"size", "data", "other"}:
                raise TypeError(f"{cls._full_name} takes sizes, a sequence, a tensor or a storage")
            (argument,) = named.values()
            arguments = (torch.Size(argument) if "size" in named else argument,)
        place = cls._place(device)
        if all(_is_size(each) for each in arguments):
            return torch.empty(
                [int(size) for size in arguments or (0,)], dtype=cls.dtype, device=place
            )
        if len(arguments) > 1:
            raise TypeError(
                f"{cls._full_name} takes sizes that are integers, or one sequence, not {arguments}"
            )
        (given,) = arguments
        if isinstance(given, torch.Size):
            return torch.empty(given, dtype=cls.dtype, device=place)
        shares = isinstance(given, torch.Tensor | torch.UntypedStorage | torch.TypedStorage)
        if shares and device is not None:
            raise TypeError(
                f"{cls._full_name} shares the memory of a tensor or storage where it is; move the result: "
                f'.to("{place}")'
            )
        if isinstance(given, torch.Tensor):
            if isinstance(given, cls):
                aliased: torch.Tensor = torch.ops.aten.alias(given)
                return aliased
            raise TypeError(
                f"expected a {cls._full_name}, but got a {given.type()}; convert it: "
                f'.to("{cls._device_type}", {cls.dtype})'
            )
        if shares:
            return cls._on_storage(given)
        if not _is_sequence(given):
            raise TypeError(
                f"{cls._full_name} takes sizes, a sequence, a tensor or a storage, not a "
                f"{type(given).__name__}"
            )
        return torch.tensor(given, dtype=cls.dtype, device=place)

    def _on_storage(cls, storage: Any) -> torch.Tensor:
        """A tensor of all elements of ``storage``."""
        of_dtype = isinstance(storage, torch.UntypedStorage) or storage.dtype == cls.dtype
        if storage.device.type != cls._device_type or not of_dtype:
            raise TypeError(
                f"expected a storage of {cls.dtype} on {cls._device_type}, but got "
                f"{getattr(storage, 'dtype', 'bytes')} on {storage.device}"
            )
        return torch.empty(0, dtype=cls.dtype, device=storage.device).set_(storage)

    def _place(cls, device: Any) -> torch.device:
        place = torch.device(cls._device_type if device is None else device)
        if place.type != cls._device_type:
            raise TypeError(f"{cls._full_name} makes tensors on {cls._device_type}, not on {place}")
        return place

    @property
    def _full_name(cls) -> str:
        return f"{cls.__module__}.{cls.__name__}"


def tensor_types(device_type: str) -> dict[str, TensorType]:
    """The types of dense tensors on ``device_type``, by their names."""
    made = {name: TensorType(device_type, name, dtype) for name, dtype in _DTYPES.items()}
    torch_names._tensor_classes.update(made.values())  # type: ignore[arg-type]
    return made


def accept_as_default_tensor_type(device_type: str) -> None:
    """Has ``torch.set_default_tensor_type`` take the types of ``device_type``, or their names.

    PyTorch's own keeps a list of the types that it was built with.  Here it means
    ``torch.set_default_device`` with ``torch.set_default_dtype``; one of PyTorch's types ends it.
    """
    original = torch.set_default_tensor_type
    prefix = f"torch.{device_type}."
    is_set = False

    @functools.wraps(original)
    def set_default_tensor_type(t: Any, /) -> None:
        nonlocal is_set
        if isinstance(t, str) and t.startswith(prefix):
            t = getattr(getattr(torch, device_type), t.removeprefix(prefix), None)
        if not isinstance(t, TensorType):
            original(t)
            if is_set:
                torch.set_default_device(None)
                is_set = False
            return
        if not t.dtype.is_floating_point:
            raise TypeError("only floating-point types are supported as the default type")
        torch.set_default_dtype(t.dtype)
        torch.set_default_device(device_type)
        is_set = True

    torch.set_default_tensor_type = set_default_tensor_type


def _is_size(argument: object) -> bool:
    kinds = (int, torch.SymInt, *_of_numpy("integer"))
    return isinstance(argument, kinds) and not isinstance(argument, bool)


def _is_sequence(argument: object) -> bool:
    kinds = (Sequence, *_of_numpy("ndarray"))
    return isinstance(argument, kinds) and not isinstance(argument, str | bytes)


@functools.cache
def _of_numpy(name: str) -> tuple[type, ...]:
    """NumPy's type of that name, where there is NumPy."""
    try:
        import numpy
    except ImportError:
        return ()
    return (getattr(numpy, name),)
