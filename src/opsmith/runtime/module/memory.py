"""The memory functions of ``torch.<name>`` and ``torch.<name>.memory``: those of ``torch.cuda``.

Statistics are ``torch.accelerator``'s; what that does not offer asks opsmith's allocator through
``torch.ops.opsmith``.  Sizes are in bytes.  :mod:`~opsmith.runtime.module.device_module` says what a device
may be.
"""

from __future__ import annotations

import contextlib
import pickle
import sys
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch

from opsmith.runtime.module import memory_pools
from opsmith.runtime.module.public_module import Submodule
from opsmith.schema.torch_names import _accelerator_hooks_device_count

AnyDevice: TypeAlias = "torch.device | str | int | None"

_BLOCK_STATES = ("inactive", "active_allocated", "active_awaiting_free")
_NO_POOL = (0, 0)  # PyTorch's name for what belongs to no private pool
_UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))

_SUMMARY = {
    "allocated_bytes": "allocated memory",
    "requested_bytes": "of that, requested",
    "active_bytes": "active memory",
    "reserved_bytes": "reserved memory",
    "inactive_split_bytes": "cached beside allocations",
    "allocation": "allocations",
    "active": "active blocks",
    "segment": "segments",
    "inactive_split": "blocks beside allocations",
}
_POOLS = {"large_pool": "  large pool", "small_pool": "  small pool"}


class MemoryFunctions:
    """Functions that ``torch.<name>`` and ``torch.<name>.memory`` share."""

    MemPool = memory_pools.MemPool

    def _index(self, device: AnyDevice) -> int:
        raise NotImplementedError

    def memory_allocated(self, device: AnyDevice = None) -> int:
        """The bytes that tensors occupy, each size rounded up as the allocator does."""
        return torch.accelerator.memory_allocated(self._index(device))

    def max_memory_allocated(self, device: AnyDevice = None) -> int:
        """The most since the process began, or since :meth:`reset_peak_memory_stats`."""
        return torch.accelerator.max_memory_allocated(self._index(device))

    def memory_reserved(self, device: AnyDevice = None) -> int:
        """The bytes that are taken from the driver: by tensors, and by the cache for the next ones."""
        return torch.accelerator.memory_reserved(self._index(device))

    def max_memory_reserved(self, device: AnyDevice = None) -> int:
        return torch.accelerator.max_memory_reserved(self._index(device))

    def memory_stats(self, device: AnyDevice = None) -> OrderedDict[str, Any]:
        """Everything that is counted, by the names of ``torch.cuda.memory_stats``."""
        return torch.accelerator.memory_stats(self._index(device))

    def memory_stats_as_nested_dict(self, device: AnyDevice = None) -> dict[str, Any]:
        """:meth:`memory_stats` as dictionaries in dictionaries, by the parts of the names."""
        return _nested(self.memory_stats(device))

    def reset_peak_memory_stats(self, device: AnyDevice = None) -> None:
        torch.accelerator.reset_peak_memory_stats(self._index(device))

    def reset_accumulated_memory_stats(self, device: AnyDevice = None) -> None:
        torch.accelerator.reset_accumulated_memory_stats(self._index(device))

    def mem_get_info(self, device: AnyDevice = None) -> tuple[int, int]:
        """The free and the total memory of ``device``, whoever uses it."""
        free, total = torch.ops.opsmith.memory_info(self._index(device))
        return free, total

    def device_memory_used(self, device: AnyDevice = None) -> int:
        """The bytes of ``device`` that are in use, by any process."""
        free, total = self.mem_get_info(device)
        return total - free

    def empty_cache(self) -> None:
        """Gives back to the driver what no tensor uses, on every device."""
        torch.accelerator.empty_cache()

    def get_allocator_backend(self) -> str:
        """``"native"``, or ``"none"`` where ``OPSMITH_ALLOC_CONF`` switched the cache off."""
        backend: str = torch.ops.opsmith.allocator_backend()
        return backend

    def set_per_process_memory_fraction(self, fraction: float, device: AnyDevice = None) -> None:
        """Limits what this process may hold of ``device``, cache included, to a part of all its memory."""
        if not isinstance(fraction, float):
            raise TypeError(f"the fraction must be a float, not {type(fraction).__name__}")
        if not 0 <= fraction <= 1:
            raise ValueError(f"the fraction must be from 0 to 1, not {fraction}")
        torch.ops.opsmith.set_memory_fraction(fraction, self._index(device))

    def get_per_process_memory_fraction(self, device: AnyDevice = None) -> float:
        fraction: float = torch.ops.opsmith.memory_fraction(self._index(device))
        return fraction

    def memory_snapshot(
        self, mempool_id: tuple[int, int] | None = None, include_traces: bool = True
    ) -> list[dict[str, Any]]:
        """The segments of all devices, or those of a pool, with the blocks of each; they have no traces."""
        segments: list[dict[str, Any]] = self._snapshot()["segments"]
        if mempool_id is None:
            return segments
        return [each for each in segments if each["segment_pool_id"] == (0, sum(mempool_id))]

    @contextlib.contextmanager
    def use_mem_pool(self, pool: memory_pools.MemPool, device: AnyDevice = None) -> Iterator[None]:
        """``with``: what this thread allocates on ``device`` is memory of ``pool``."""
        index, (_, number) = self._index(device), pool.id
        torch.ops.opsmith.hold_memory_pool(index, number)
        before = torch.ops.opsmith.exchange_memory_pool(index, number)
        try:
            yield
        finally:
            torch.ops.opsmith.exchange_memory_pool(index, before)
            torch.ops.opsmith.release_memory_pool(index, number)

    def host_memory_stats(self) -> OrderedDict[str, Any]:
        """The pinned memory of this process, by the names of ``torch.cuda.host_memory_stats``.

        Nothing of it is kept when it is freed, so that what is allocated is in use; nobody takes the time.
        """
        kinds = ("current", "peak", "allocated", "freed")
        blocks, sizes = (
            dict(zip(kinds, row, strict=True)) for row in torch.ops.opsmith.host_memory_stats()
        )
        counted = {"active_requests": blocks, "allocations": blocks} | {
            "active_bytes": sizes,
            "allocated_bytes": sizes,
        }
        stats = {
            f"{name}.{kind}": value for name, row in counted.items() for kind, value in row.items()
        }
        stats |= {"num_host_alloc": blocks["allocated"], "num_host_free": blocks["freed"]}
        return OrderedDict(sorted(stats.items()))

    def host_memory_stats_as_nested_dict(self) -> dict[str, Any]:
        """:meth:`host_memory_stats` as dictionaries in dictionaries, by the parts of the names."""
        return _nested(self.host_memory_stats())

    def reset_peak_host_memory_stats(self) -> None:
        torch.ops.opsmith.reset_host_memory_stats(True)

    def reset_accumulated_host_memory_stats(self) -> None:
        torch.ops.opsmith.reset_host_memory_stats(False)

    def memory_summary(self, device: AnyDevice = None, abbreviated: bool = False) -> str:
        """The statistics as a table for people; ``abbreviated`` leaves out the pools."""
        index = self._index(device)
        return _summary(self.memory_stats(index), index, {} if abbreviated else _POOLS)

    def memory_cached(self, device: AnyDevice = None) -> int:
        """The old name of :meth:`memory_reserved`."""
        _warn("memory_cached() is called memory_reserved()")
        return self.memory_reserved(device)

    def max_memory_cached(self, device: AnyDevice = None) -> int:
        """The old name of :meth:`max_memory_reserved`."""
        _warn("max_memory_cached() is called max_memory_reserved()")
        return self.max_memory_reserved(device)

    def reset_max_memory_allocated(self, device: AnyDevice = None) -> None:
        """The old name of :meth:`reset_peak_memory_stats`."""
        _warn("call reset_peak_memory_stats(), which resets all peaks")
        self.reset_peak_memory_stats(device)

    def reset_max_memory_cached(self, device: AnyDevice = None) -> None:
        """The old name of :meth:`reset_peak_memory_stats`."""
        _warn("call reset_peak_memory_stats(), which resets all peaks")
        self.reset_peak_memory_stats(device)

    def _record_memory_history(
        self,
        enabled: Literal["state", "all"] | None = "all",
        context: Literal["state", "alloc", "all"] | None = "all",
        stacks: Literal["python", "all"] = "python",
        max_entries: int = sys.maxsize,
        clear_history: bool = False,
    ) -> None:
        """Starts to record stacks and, with ``"all"``, every allocation and release; ``None`` stops.

        Stacks are recorded for all of these, or with ``context=None`` for none.
        """
        if enabled not in (None, "state", "all"):
            raise ValueError(f"enabled must be None, 'state' or 'all', not {enabled!r}")
        if stacks not in ("python", "all"):
            raise ValueError(f"stacks must be 'python' or 'all', not {stacks!r}")
        torch.ops.opsmith.record_memory_history(
            enabled is not None,
            enabled == "all",
            stacks if context is not None else "",
            max_entries,
            clear_history,
        )

    def _snapshot(self) -> dict[str, Any]:
        """The snapshot for PyTorch's memory visualiser: segments, and each device's recorded history."""
        segments: list[dict[str, Any]] = []
        traces = []
        for device in range(_accelerator_hooks_device_count()):
            found, history = _read_snapshot(device, torch.ops.opsmith.memory_snapshot(device))
            segments += found
            traces.append(history)
        return {
            "segments": segments,
            "device_traces": traces,
            "allocator_settings": {},
            "external_annotations": [],
        }

    def _dump_snapshot(self, filename: str = "dump_snapshot.pickle") -> None:
        """Writes :meth:`_snapshot` to a file for https://pytorch.org/memory_viz."""
        Path(filename).write_bytes(pickle.dumps(self._snapshot()))


class MemoryModule(Submodule, MemoryFunctions):
    """``torch.<name>.memory``."""

    def __init__(self, device_type: str, index: Callable[[AnyDevice], int]) -> None:
        super().__init__(device_type, "memory", f"The memory of {device_type} devices.", index)


def _nested(flat: OrderedDict[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for name, value in flat.items():
        *groups, last = name.split(".")
        inner = nested
        for group in groups:
            inner = inner.setdefault(group, {})
        inner[last] = value
    return nested


def _warn(text: str) -> None:
    warnings.warn(text, FutureWarning, stacklevel=3)


def _read_snapshot(
    device: int, rows: tuple[Any, ...]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Segments and history from the rows of ``opsmith::memory_snapshot``."""
    segments, blocks, actions, entries, frames_of_stacks, names, files, lines = rows
    all_frames = [
        {"name": name, "filename": file, "line": line}
        for name, file, line in zip(names, files, lines, strict=True)
    ]
    stacks = [[all_frames[frame] for frame in frames] for frames in frames_of_stacks]

    def frames(stack: int) -> list[dict[str, Any]]:
        return stacks[stack] if stack >= 0 else []

    rest = iter(blocks)
    read = [_segment(device, segment, islice(rest, segment[-1]), frames) for segment in segments]
    history = [
        _history_entry(action, entry, frames)
        for action, entry in zip(actions, entries, strict=True)
    ]
    return read, history


def _segment(
    device: int,
    row: list[int],
    block_rows: Iterator[list[int]],
    frames: Callable[[int], list[dict[str, Any]]],
) -> dict[str, Any]:
    address, size, stream, is_small, stack, pool, _ = row
    blocks = [
        {
            "address": at,
            "size": length,
            "requested_size": requested,
            "state": _BLOCK_STATES[state],
            "frames": frames(block_stack),
        }
        for at, length, requested, state, block_stack in block_rows
    ]
    active = [block for block in blocks if block["state"] != "inactive"]
    return {
        "device": device,
        "address": address,
        "total_size": size,
        "allocated_size": sum(b["size"] for b in active if b["state"] == "active_allocated"),
        "active_size": sum(block["size"] for block in active),
        "requested_size": sum(block["requested_size"] for block in active),
        "stream": stream,
        "segment_type": "small" if is_small else "large",
        "segment_pool_id": (0, pool),
        "is_expandable": False,
        "frames": frames(stack),
        "blocks": blocks,
    }


def _history_entry(
    action: str, row: list[int], frames: Callable[[int], list[dict[str, Any]]]
) -> dict[str, Any]:
    address, size, stream, time_us, stack = row
    return {
        "action": action,
        "device_free" if action == "oom" else "addr": address,
        "size": size,
        "stream": stream,
        "time_us": time_us,
        "pool_id": _NO_POOL,
        "frames": frames(stack),
    }


def _size_text(size: int) -> str:
    for name, unit in _UNITS:
        if abs(size) >= unit:
            return f"{size / unit:.2f} {name}"
    return f"{size} B"


def _summary(stats: OrderedDict[str, Any], device: int, pools: dict[str, str]) -> str:
    columns = ("current", "peak", "allocated", "freed")
    lines = [
        f"memory of device {device}: out of memory {stats.get('num_ooms', 0)} times, "
        f"cache released {stats.get('num_alloc_retries', 0)} times to make room",
        "",
        f"{'':26}" + "".join(f"{column:>14}" for column in columns),
    ]
    for metric, title in _SUMMARY.items():
        text = _size_text if metric.endswith("bytes") else str
        for pool, name in {"all": title, **pools}.items():
            values = (text(stats[f"{metric}.{pool}.{column}"]) for column in columns)
            lines.append(f"{name:26}" + "".join(f"{value:>14}" for value in values))
    return "\n".join(lines) + "\n"
