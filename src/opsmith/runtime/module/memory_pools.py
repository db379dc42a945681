"""``torch.<name>.MemPool``: memory of the caching allocator that serves nothing else, as ``torch.cuda``'s.

The pools are those that graphs have (``csrc/opsmith/device/memory_pool.h``).
:mod:`opsmith.runtime.module.memory` has the function that routes allocations to one.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

from opsmith.errors import NotOffered


class MemPool:
    """A pool of memory of the current device, which is ordinary memory again once the object is deleted.

    Its ``id`` can be the ``pool`` of a graph.
    """

    def __init__(
        self, allocator: Any = None, use_on_oom: bool = False, no_split: bool = False
    ) -> None:
        """Raises :class:`~opsmith.errors.NotOffered` for anything but the defaults."""
        options = {
            "allocator": allocator is not None,
            "use_on_oom": use_on_oom,
            "no_split": no_split,
        }
        if asked := [name for name, is_asked in options.items() if is_asked]:
            raise NotOffered(
                f"a MemPool has no `{asked[0]}`: its memory is the driver's, cut and kept as the rest",
                remedy=f"leave out `{asked[0]}`",
            )
        self._device = torch.accelerator.current_device_index()
        self.allocator = None
        self.id: tuple[int, int] = (0, torch.ops.opsmith.make_memory_pool(self._device))
        weakref.finalize(self, torch.ops.opsmith.release_memory_pool, self._device, self.id[1])

    def use_count(self) -> int:
        """How many hold it: this object, contexts of ``use_mem_pool``, and graphs."""
        count: int = torch.ops.opsmith.memory_pool_holders(self._device, self.id[1])
        return count

    def snapshot(self, include_traces: bool = True) -> list[dict[str, Any]]:
        """The pool's segments, as ``memory_snapshot()`` has them; they come without traces."""
        memory = torch.get_device_module(torch.accelerator.current_accelerator())
        found: list[dict[str, Any]] = memory.memory_snapshot(self.id, include_traces)
        return found
