"""Device tensors that a program would hand to another process: refused where the driver cannot export memory.

Left to itself PyTorch shares memory of the CPU and of CUDA only: on another
device ``share_memory_()`` does nothing, ``is_shared()`` is true, and ``Queue.put`` fails in a thread while
the receiver waits for ever.
:mod:`opsmith.runtime.load` calls :func:`refuse_to_share` for such a driver.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from multiprocessing import queues
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any

from opsmith.errors import NotShareable
from opsmith.runtime.patches.sharing import shared_in

if TYPE_CHECKING:
    import torch


def refuse_to_share(device_type: str) -> None:
    """Makes sharing raise :class:`NotShareable` for tensors, parameters and storages of ``device_type``.

    That is ``share_memory_()``, of modules too, and what :mod:`multiprocessing` sends: through queues and
    pipes, as arguments of processes.  Other tensors are shared as before.
    """
    import torch
    from torch.multiprocessing import reductions

    storage = torch.UntypedStorage
    storage.share_memory_ = _refusing(storage.share_memory_, device_type)  # type: ignore[method-assign]
    storage.is_shared = _never(storage.is_shared, device_type)  # type: ignore[method-assign]
    for shared, reduce in {
        torch.Tensor: reductions.reduce_tensor,
        torch.nn.Parameter: reductions.reduce_tensor,
        torch.UntypedStorage: reductions.reduce_storage,
    }.items():
        ForkingPickler.register(shared, _refusing(reduce, device_type))
    # A queue pickles in a thread of its own, from which nothing is raised.
    for queue in (queues.Queue, queues.JoinableQueue):
        queue.put = _refusing_first(queue.put, device_type)  # type: ignore[method-assign]


def _refusing(function: Callable[..., Any], device_type: str) -> Callable[..., Any]:
    """``function`` of a tensor or storage, which raises for those of the device."""

    @functools.wraps(function)
    def checked(shared: Any, *arguments: Any, **options: Any) -> Any:
        _check(shared, device_type)
        return function(shared, *arguments, **options)

    return checked


def _never(is_shared: Callable[..., bool], device_type: str) -> Callable[..., bool]:
    @functools.wraps(is_shared)
    def checked(storage: torch.UntypedStorage) -> bool:
        return storage.device.type != device_type and is_shared(storage)

    return checked


def _refusing_first(put: Callable[..., Any], device_type: str) -> Callable[..., Any]:
    @functools.wraps(put)
    def checked(queue: Any, item: Any, *arguments: Any, **options: Any) -> Any:
        for shared in shared_in(item):
            _check(shared, device_type)
        return put(queue, item, *arguments, **options)

    return checked


def _check(shared: torch.Tensor | torch.UntypedStorage, device_type: str) -> None:
    if shared.device.type == device_type:
        raise NotShareable(
            f"memory of {shared.device} cannot be shared with another process: the driver has no way "
            "to export it",
            remedy="hand over a copy in the CPU's memory, .cpu(), and move it to the device there",
        )
