"""``torch.<name>.nvtx``: ranges of a program for the tools of the device's vendor, as ``torch.cuda.nvtx``'s.

They reach the driver.  One that has no ranges shows them to nobody; ``torch.profiler.record_function`` is
for PyTorch's own profiler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from opsmith.runtime.module.memory import AnyDevice
from opsmith.runtime.module.public_module import Submodule


class RangesModule(Submodule):
    """``torch.<name>.nvtx``."""

    def __init__(self, device_type: str, index: Callable[[AnyDevice], int]) -> None:
        super().__init__(
            device_type, "nvtx", "Ranges of a program for the tools of the device's vendor.", index
        )

    def range_push(self, msg: str) -> int:
        """Opens a range in this thread, called ``msg``; how many were open before."""
        depth: int = torch.ops.opsmith.range_push(msg)
        return depth

    def range_pop(self) -> int:
        """Closes this thread's innermost range; how many are still open.

        Raises RuntimeError where none is.
        """
        depth: int = torch.ops.opsmith.range_pop()
        return depth

    def mark(self, msg: str) -> None:
        """A point in time: an empty range called ``msg``."""
        torch.ops.opsmith.mark(msg)

    @contextmanager
    def range(self, msg: str, *args: object, **kwargs: object) -> Iterator[None]:
        """``with``, or a decorator: a range called ``msg.format(*args, **kwargs)``."""
        self.range_push(msg.format(*args, **kwargs))
        try:
            yield
        finally:
            self.range_pop()

    @contextmanager
    def emit(self) -> Iterator[None]:
        """``with``: each operator that this thread calls, and its backward, is a range.

        What ``torch.autograd.profiler.emit_nvtx`` is for CUDA.
        """
        torch.ops.opsmith.emit_ranges(True)
        try:
            yield
        finally:
            torch.ops.opsmith.emit_ranges(False)
