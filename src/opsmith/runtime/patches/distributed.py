"""``torch.distributed`` on the device: the backend that PyTorch picks for its tensors.

``csrc/opsmith/distributed/collectives.cpp`` is the backend; it goes by gloo, PyTorch's backend for the CPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import distributed

from opsmith.base.trusted_files import check_named_libraries

if TYPE_CHECKING:
    from opsmith.schema.torch_names import C10dBackend


def backend_name(device: str) -> str:
    """The name of the backend of ``device`` in ``init_process_group``: ``simccl`` for ``sim``."""
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
    check_named_libraries()
    place = options.store, options.group_rank, options.group_size
    gloo = distributed.ProcessGroupGloo(*place, timeout=options.timeout)
    gloo.options.global_ranks_in_group = options.global_ranks_in_group
    gloo.options.group_name = options.group_id
    gloo._set_sequence_number_for_group()

    def group_with_gloo() -> distributed.ProcessGroup:
        group = distributed.ProcessGroup(*place)
        group._register_backend(
            torch.device("cpu"), distributed.ProcessGroup.BackendType.GLOO, gloo
        )
        return group

    made = group_with_gloo()
    torch.ops.opsmith.add_collectives(made.boxed(), name)
    backend = _checking_if_debugged(made._get_backend(torch.device(device)), options)
    group = group_with_gloo()
    group._register_backend(
        torch.device(device), distributed.ProcessGroup.BackendType.CUSTOM, backend
    )
    group._set_default_backend(distributed.ProcessGroup.BackendType.CUSTOM)
    return group


def _checking_if_debugged(backend: C10dBackend, options: Any) -> C10dBackend:
    """With ``TORCH_DISTRIBUTED_DEBUG=DETAIL`` ranks compare their calls, as with PyTorch's own backends."""
    # A PyTorch without torch.distributed has neither.
    from opsmith.schema.torch_names import (
        DebugLevel,
        _create_process_group_wrapper,
        get_debug_level,
    )

    if get_debug_level() != DebugLevel.DETAIL:  # not the same object
        return backend
    checking: C10dBackend = _create_process_group_wrapper(
        backend,
        store_prefix=options.group_id,
        store=options.store,
        rank=options.group_rank,
        world_size=options.group_size,
        timeout=options.timeout,
    )
    return checking
