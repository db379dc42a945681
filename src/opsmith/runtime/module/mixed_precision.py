"""``torch.<name>.amp``: mixed precision under the names of ``torch.cuda.amp``.

Everything is ``torch.amp``'s with the device filled in.
"""

from __future__ import annotations

from typing import Any

import torch

from opsmith.runtime.module.public_module import PublicModule


class AmpModule(PublicModule):
    """``torch.<name>.amp``."""

    def __init__(self, device_type: str) -> None:
        super().__init__(f"torch.{device_type}.amp", f"Mixed precision on {device_type} devices.")
        self._device_type = device_type
        self.autocast = _autocast(device_type)
        self.GradScaler = _grad_scaler(device_type)
        for made in (self.autocast, self.GradScaler):  # pickled by this name
            made.__module__, made.__qualname__ = self.__name__, made.__name__

    def custom_fwd(self, fwd: Any = None, *, cast_inputs: torch.dtype | None = None) -> Any:
        """``torch.amp.custom_fwd(…, device_type="<name>")``."""
        return torch.amp.custom_fwd(fwd, device_type=self._device_type, cast_inputs=cast_inputs)

    def custom_bwd(self, bwd: Any = None) -> Any:
        """``torch.amp.custom_bwd(…, device_type="<name>")``."""
        return torch.amp.custom_bwd(bwd, device_type=self._device_type)


def _autocast(device_type: str) -> type[torch.autocast]:
    class autocast(torch.autocast):  # noqa: N801 - PyTorch's name
        """``torch.autocast("<name>", …)``; ``dtype`` is float16 unless it is given."""

        def __init__(
            self,
            enabled: bool = True,
            dtype: torch.dtype | None = None,
            cache_enabled: bool = True,
        ) -> None:
            super().__init__(device_type, dtype, enabled, cache_enabled)

    return autocast


def _grad_scaler(device_type: str) -> type[torch.amp.GradScaler]:
    class GradScaler(torch.amp.GradScaler):
        """``torch.amp.GradScaler("<name>", …)``."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(device_type, *arguments, **options)

    return GradScaler
