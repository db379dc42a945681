"""``torch.compile`` on the device: what Dynamo and Inductor have to be told of it.

Neither is imported for that: they are told once they are.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from opsmith.integrations.imported import when_imported


def serve_compilers(device: str, library: Path, has_host_window: bool) -> None:
    """Has ``torch.compile`` know ``device``, whose backend's library is ``library``."""

    def tell_dynamo(_: ModuleType) -> None:
        from opsmith.runtime.compile.device_interface import register_interface

        register_interface(device)

    def tell_inductor(_: ModuleType) -> None:
        from opsmith.runtime.compile.inductor import register_code_generation

        register_code_generation(device, library, has_host_window)

    when_imported("torch._dynamo.device_interface", tell_dynamo)
    when_imported("torch._inductor.codegen.common", tell_inductor)
