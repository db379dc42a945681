"""``torch.<name>.amp``: mixed precision under the names of ``torch.cuda.amp``.

Everything is ``torch.amp``'s with the device filled in.
"""

from __future__ import annotations

from typing import Any

import torch

from opsmith.runtime.public_module import PublicModule


class AmpModule(PublicModule):
    """``torch.<name>.amp``."""

    def __init__(self, device_type: str) -> None:
        super().__init__(f"torch.{device_type}.amp", f"Mixed precision on {device_type} devices.")
        self._device_type = device_type

    def autocast(
        self,
        enabled: bool = True,
        dtype: torch.dtype | None = None,
        cache_enabled: bool = True,
    ) -> torch.autocast:
        """``torch.autocast("<name>", …)``; ``dtype`` is float16 unless it is given."""
        return torch.autocast(self._device_type, dtype, enabled, cache_enabled)

    def GradScaler(self, **options: Any) -> torch.amp.GradScaler:  # noqa: N802 - PyTorch's name
        """``torch.amp.GradScaler("<name>", …)``."""
        return torch.amp.GradScaler(self._device_type, **options)

    def custom_fwd(self, fwd: Any = None, *, cast_inputs: torch.dtype | None = None) -> Any:
        """``torch.amp.custom_fwd(…, device_type="<name>")``."""
        return torch.amp.custom_fwd(fwd, device_type=self._device_type, cast_inputs=cast_inputs)

    def custom_bwd(self, bwd: Any = None) -> Any:
        """``torch.amp.custom_bwd(…, device_type="<name>")``."""
        return torch.amp.custom_bwd(bwd, device_type=self._device_type)
