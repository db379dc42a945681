"""Device tensors in other processes: what :mod:`multiprocessing` sends shares their memory.

As with CUDA: the receiver's tensor is the sender's memory, views of one storage share one, and the memory is
kept until every receiver has given it up or has ended.  PyTorch's own reductions take tensors apart; what is
here sends their storages, whose memory ``csrc/opsmith/sharing`` keeps and finds.  Where the driver cannot
export memory, :mod:`opsmith.runtime.patches.sharing_refused` refuses.  :mod:`opsmith.runtime.load` calls
:func:`share_between_processes`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from multiprocessing import queues, util
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any

from opsmith.errors import NotShareable, SharedMemoryGone
from opsmith.runtime.loaded import loaded_if_any

if TYPE_CHECKING:
    import torch

_REMEDY = "\n  remedy: "
# After multiprocessing has sent what queues hold and has waited for the children, who may ask until then.
_LAST = -1000


def share_between_processes(device_type: str) -> None:
    """Has queues, pipes and arguments of processes share tensors and storages of ``device_type``.

    Other tensors are shared as before.  What cannot be shared raises :class:`NotShareable`.
    """
    import torch
    from torch.multiprocessing import reductions

    reduce_tensor = _of_device(reductions.reduce_tensor, _reduced_tensor, device_type)
    for kind in (torch.Tensor, torch.nn.Parameter):
        ForkingPickler.register(kind, reduce_tensor)
    reduce_storage = _of_device(reductions.reduce_storage, _reduced_storage, device_type)
    ForkingPickler.register(torch.UntypedStorage, reduce_storage)
    storage = torch.UntypedStorage
    storage.is_shared = _always(storage.is_shared, device_type)  # type: ignore[method-assign]
    # A queue pickles in a thread of its own, from which nothing is raised.
    for queue in (queues.Queue, queues.JoinableQueue):
        queue.put = _checking_first(queue.put, device_type)  # type: ignore[method-assign]
    util.Finalize(None, torch.ops.opsmith.stop_sharing, exitpriority=_LAST)


def _always(is_shared: Callable[..., bool], device_type: str) -> Callable[..., bool]:
    """``is_shared``, which is true of storages on the device as of CUDA's."""

    @functools.wraps(is_shared)
    def checked(storage: torch.UntypedStorage) -> bool:
        return storage.device.type == device_type or is_shared(storage)

    return checked


def _of_device(
    others: Callable[[Any], Any], own: Callable[[Any], Any], device_type: str
) -> Callable[[Any], Any]:
    """The reduction ``own`` for what is on the device, ``others`` for what is not."""

    @functools.wraps(others)
    def reduced(shared: Any) -> Any:
        return (own if shared.device.type == device_type else others)(shared)

    return reduced


# ---- sending


def _reduced_tensor(tensor: torch.Tensor) -> tuple[Any, ...]:
    from torch.multiprocessing import reductions

    _check_tensor(tensor)
    reduced: tuple[Any, ...] = reductions.reduce_tensor(tensor)  # type: ignore[no-untyped-call]
    # PyTorch's own reduction forgets these.
    bits = (tensor.is_conj(), tensor.is_neg())
    return (_with_bits, (*bits, *reduced)) if any(bits) else reduced


def _check_tensor(tensor: torch.Tensor) -> None:
    if tensor.is_quantized:
        raise NotShareable(
            f"quantized tensors of {tensor.device} cannot be shared with another process: PyTorch "
            "shares their elements only",
            remedy="hand over tensor.int_repr() with the scales and zero points, and put them together there",
        )


def _reduced_storage(storage: torch.UntypedStorage) -> tuple[Any, ...]:
    import torch

    if storage.nbytes() == 0:
        return _empty_storage, (_backend(), storage.device)
    return _received_storage, (_backend(), *_translated(torch.ops.opsmith.send_storage, storage))


def _backend() -> str:
    loaded = loaded_if_any()
    assert loaded is not None  # there are tensors of its device
    return str(loaded.description)


def _checking_first(put: Callable[..., Any], device_type: str) -> Callable[..., Any]:
    import torch

    @functools.wraps(put)
    def checked(queue: Any, item: Any, *arguments: Any, **options: Any) -> Any:
        for shared in shared_in(item):
            if shared.device.type == device_type:
                if isinstance(shared, torch.Tensor):
                    _check_tensor(shared)
                for storage in _storages_of(shared):
                    _translated(torch.ops.opsmith.check_shareable, storage)
        return put(queue, item, *arguments, **options)

    return checked


def shared_in(item: object) -> Iterator[torch.Tensor | torch.UntypedStorage]:
    """The tensors in containers, and those of modules.  What hides in other objects is met when pickled."""
    import torch

    from opsmith.schema.torch_names import tree_iter

    for leaf in tree_iter(item):
        if isinstance(leaf, torch.Tensor | torch.UntypedStorage):
            yield leaf
        elif isinstance(leaf, torch.TypedStorage):
            yield leaf._untyped_storage
        elif isinstance(leaf, torch.nn.Module):
            yield from leaf.parameters()
            yield from leaf.buffers()


def _storages_of(shared: torch.Tensor | torch.UntypedStorage) -> Iterator[torch.UntypedStorage]:
    """Those that have memory; sparse and nested tensors are taken apart when they are pickled."""
    import torch

    if isinstance(shared, torch.Tensor):
        if shared.layout != torch.strided or shared.is_nested:
            return
        shared = shared.untyped_storage()
    if shared.nbytes() > 0:
        yield shared


# ---- receiving: called by name in the other process


def _received_storage(backend: str, address: str, memory: int) -> torch.UntypedStorage:
    import torch

    _load(backend)
    received: torch.UntypedStorage = _translated(
        torch.ops.opsmith.receive_storage, address, memory, kind=SharedMemoryGone
    )
    return received


def _empty_storage(backend: str, device: torch.device) -> torch.UntypedStorage:
    import torch

    _load(backend)
    return torch.UntypedStorage(0, device=device)  # type: ignore[no-untyped-call]


def _with_bits(conj: bool, neg: bool, rebuild: Callable[..., Any], arguments: Any) -> torch.Tensor:
    from opsmith.schema.torch_names import _set_conj, _set_neg

    tensor: torch.Tensor = rebuild(*arguments)
    _set_conj(tensor, conj)
    _set_neg(tensor, neg)
    return tensor


def _load(backend: str) -> None:
    """The device, where the program has not loaded it in this process."""
    if loaded_if_any() is None:
        import opsmith

        opsmith.load(backend)


def _translated(
    operator: Callable[..., Any], *arguments: Any, kind: type[NotShareable] = NotShareable
) -> Any:
    """The result of ``operator``; an error with a remedy becomes a ``kind``."""
    try:
        return operator(*arguments)
    except RuntimeError as error:
        message, is_ours, remedy = str(error).partition(_REMEDY)
        if not is_ours:
            raise
        raise kind(message, remedy=remedy.splitlines()[0]) from None
