"""Binaries of Triton's compiler, launched by the driver: ``opsmith_triton.h`` as ctypes sees it."""

from __future__ import annotations

import ctypes
import functools
import struct
import threading
from collections.abc import Callable
from ctypes import c_char_p, c_int32, c_size_t, c_uint32, c_void_p
from typing import Any

import torch

from opsmith.base.trusted_files import open_library
from opsmith.errors import LoadError, Unsupported
from opsmith.runtime.triton.device import triton_device

_LAUNCH = "opsmith_triton_launch"
# By Triton's names of types: struct's, which lays them out as C does.
_FORMATS = {
    **dict.fromkeys(("i1", "u1"), "?"),
    **{
        "i8": "b",
        "i16": "h",
        "i32": "i",
        "i64": "q",
        "u8": "B",
        "u16": "H",
        "u32": "I",
        "u64": "Q",
    },
    **{"fp16": "e", "fp32": "f", "fp64": "d"},
}
_POINTER = "Q"


class _Argument(ctypes.Structure):
    """``opsmith_triton_argument``."""

    _fields_ = (("offset", c_uint32), ("size", c_uint32), ("is_pointer", c_int32))


class Binary(ctypes.Structure):
    """``opsmith_triton_binary``."""

    _fields_ = (
        ("image", c_char_p),
        ("size", c_size_t),
        ("name", c_char_p),
        ("device", c_int32),
        ("threads", c_uint32),
        ("shared_memory", c_uint32),
        ("loaded", c_void_p),
    )


# Binaries live as long as the process: work that is queued may refer to them.
_binaries: list[Binary] = []
_first = threading.Lock()


def load_binary(
    driver: Any, name: str, image: bytes, shared: int, device: int
) -> tuple[Binary, Binary, int, int, int]:
    """The module, the kernel, its registers and spills, and the most threads: Triton's ``utils.load_binary``.

    The driver loads the image when it is first launched.
    """
    binary = Binary(image, len(image), name.encode(), device, 0, shared)
    _binaries.append(binary)
    return binary, binary, 0, 0, driver.max_threads


@functools.cache
def _launch_function() -> Any:
    """The driver's ``opsmith_triton_launch``; raises :class:`LoadError` where it exports none."""
    device = triton_device()
    library = open_library(device.driver)
    try:
        function = library[_LAUNCH]
    except AttributeError:
        raise LoadError(
            f"the driver of `{device.name}` launches no kernels of Triton's: it exports no "
            f"`{_LAUNCH}`",
            remedy="write that function (opsmith_triton.h), or leave out `triton` in backend.yaml: Triton's "
            "interpreter then runs the kernels, on the host",
        ) from None
    pointer = ctypes.POINTER
    function.argtypes = [
        pointer(Binary),
        c_void_p,
        c_char_p,
        c_char_p,
        pointer(_Argument),
        c_uint32,
    ]
    return function


class Launcher:
    """Launches of one kernel: packs its arguments, which ``source`` has the types of, into one block.

    Triton calls it with the grid, the stream, a :class:`Binary`, its hooks and the kernel's arguments.
    """

    def __init__(self, driver: Any, source: Any, metadata: Any) -> None:
        _check_launch(source.name, metadata)
        self._device = driver.device
        given = [each for each in enumerate(source.signature.values()) if each[1] != "constexpr"]
        self._given = [(at, str(kind).startswith("*")) for at, kind in given]
        self._trailing = (0,) * driver.trailing_pointers
        kinds = [kind for _, kind in given] + ["*"] * driver.trailing_pointers
        formats = [_format(kind, source.name) for kind in kinds]
        self._pack = struct.Struct("@" + "".join(formats)).pack
        ends = [struct.calcsize("@" + "".join(formats[: at + 1])) for at in range(len(formats))]
        sizes = [struct.calcsize(each) for each in formats]
        self._layout = (_Argument * len(kinds))(
            *(
                _Argument(end - size, size, int(kind.startswith("*")))
                for end, size, kind in zip(ends, sizes, kinds, strict=True)
            )
        )
        self._name = source.name
        self._threads = metadata.num_warps * metadata.target.warp_size
        self._launch = _launch_function()

    def __call__(
        self,
        x: int,
        y: int,
        z: int,
        stream: int,
        binary: Binary,
        _packed: Any,
        launch_metadata: Any,
        enter: Callable[[Any], None] | None,
        leave: Callable[[Any], None] | None,
        *args: Any,
    ) -> None:
        if x * y * z <= 0:
            return
        values = [
            self._address(args[at]) if is_pointer else args[at] for at, is_pointer in self._given
        ]
        if enter is not None:
            enter(launch_metadata)
        given = (
            binary,
            stream,
            struct.pack("3I", x, y, z),
            self._pack(*values, *self._trailing),
            self._layout,
            len(self._layout),
        )
        if binary.loaded is None:
            with _first:
                binary.threads = self._threads
                status = self._launch(*given)
        else:
            status = self._launch(*given)
        if status:
            torch.ops.opsmith.check_status(status, f"launch `{self._name}`", binary.device)
        if leave is not None:
            leave(launch_metadata)

    def _address(self, argument: Any) -> int:
        """The address for a pointer: of a Tensor, or of what has a ``data_ptr()`` like one."""
        if isinstance(argument, torch.Tensor) and argument.device.type != self._device:
            raise Unsupported(
                f"the kernel `{self._name}` is launched on {self._device}, and is given a tensor on "
                f"{argument.device}",
                remedy=f"move it, .to({self._device!r}): Triton has one driver in a process",
            )
        return argument.data_ptr() if hasattr(argument, "data_ptr") else argument or 0


def _check_launch(name: str, metadata: Any) -> None:
    asked = {
        "memory that its programs share": getattr(metadata, "global_scratch_size", 0),
        "clusters of programs": getattr(metadata, "num_ctas", 1) > 1,
        "all of its programs at once": getattr(metadata, "launch_cooperative_grid", False),
    }
    for what, is_asked in asked.items():
        if is_asked:
            raise Unsupported(
                f"the kernel `{name}` asks for {what}, which a launch on the device does not give",
                remedy="leave out num_ctas, launch_cooperative_grid, and descriptors that the kernel makes",
            )


def _format(kind: Any, name: str) -> str:
    if isinstance(kind, str) and kind.startswith("*"):
        return _POINTER
    if not isinstance(kind, str) or kind not in _FORMATS:
        raise Unsupported(
            f"the kernel `{name}` has an argument of Triton's type `{kind}`, which cannot be launched here",
            remedy=f"pass pointers and numbers ({', '.join(_FORMATS)})",
        )
    return _FORMATS[kind]
