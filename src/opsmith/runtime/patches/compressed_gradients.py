"""DistributedDataParallel's hooks that compress gradients to bfloat16, on the device.

PyTorch lets them through where NCCL or XCCL is there; the device's backend reduces bfloat16 as well.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from torch import distributed

from opsmith.schema.torch_names import find, replace

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel


def accept_bfloat16_hooks(device: str) -> None:
    """Has ``register_comm_hook`` of a model on ``device`` take ``bf16_compress_hook`` and its wrapper."""
    if not distributed.is_available():
        return
    name = "DistributedDataParallel._check_comm_hook"
    check = find(name)

    def _check_comm_hook(self: DistributedDataParallel, hook: Any) -> None:
        if self.device.type != device or not callable(hook):
            check(self, hook)
            return

        @wraps(hook)
        def by_another_name(*arguments: Any) -> Any:
            return hook(*arguments)

        # The one that PyTorch asks NCCL for is known by its name.
        by_another_name.__name__ = "compress_hook"
        check(self, by_another_name)

    replace(name, _check_comm_hook)
