"""``torch.distributed`` on the device: the backend that PyTorch picks for its tensors.

``csrc/opsmith/distributed/collectives.cpp`` is the backend; it goes by gloo, PyTorch's backend for the CPU.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import distributed


def backend_name(device: str) -> str:
    """What ``init_process_group`` calls the backend of ``device``: ``simccl`` for ``sim``."""
    return f"{device}ccl"


def serve_collectives(device: str) -> None:
    """Has ``torch.distributed`` pick a backend of opsmith's for tensors on ``device``.

    ``init_process_group()`` without a backend does, and so does ``init_process_group("<device>ccl")``.
    """
    if not distributed.is_available() or not distributed.is_gloo_available():
        return
    name = backend_name(device)

    def make(options: Any, _: object) -> distributed.ProcessGroup:
        return _make_group(device, name, options)

    distributed.Backend.register_backend(name, make, extended_api=True, devices=[device])


def _make_group(device: str, name: str, options: Any) -> distributed.ProcessGroup:
    """A group with a backend for tensors on the CPU, gloo, and one for the device's, which goes by it.

    PyTorch takes a group, too, where it asks for a backend.  Of one that it makes for a single device by
    default it takes the CPU's backend for granted, and DistributedDataParallel asks for that.
    """
    place = options.store, options.group_rank, options.group_size
    gloo = distributed.ProcessGroupGloo(*place, timeout=options.timeout)
    gloo.options.global_ranks_in_group = options.global_ranks_in_group
    gloo.options.group_name = options.group_id
    gloo._set_sequence_number_for_group()
    group = distributed.ProcessGroup(*place)
    group._register_backend(torch.device("cpu"), distributed.ProcessGroup.BackendType.GLOO, gloo)
    torch.ops.opsmith.add_collectives(group.boxed(), name)
    group._set_default_backend(distributed.ProcessGroup.BackendType.CUSTOM)
    _check_calls_if_debugged(group, torch.device(device), options)
    return group


def _check_calls_if_debugged(
    group: distributed.ProcessGroup, device: torch.device, options: Any
) -> None:
    """With ``TORCH_DISTRIBUTED_DEBUG=DETAIL`` ranks compare their calls, as with PyTorch's own backends."""
    # A PyTorch without torch.distributed has neither.
    from torch._C._distributed_c10d import DebugLevel, get_debug_level
    from torch.distributed.distributed_c10d import _create_process_group_wrapper

    if get_debug_level() is not DebugLevel.DETAIL:
        return
    checking = _create_process_group_wrapper(
        group._get_backend(device),
        store_prefix=options.group_id,
        store=options.store,
        rank=options.group_rank,
        world_size=options.group_size,
        timeout=options.timeout,
    )
    group._register_backend(device, distributed.ProcessGroup.BackendType.CUSTOM, checking)
