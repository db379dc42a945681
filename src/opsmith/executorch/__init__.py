"""ExecuTorch programs: what they ask of kernel libraries, and libraries built, loaded and run for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opsmith.base.on_demand import on_demand

if TYPE_CHECKING:
    from opsmith.executorch.loading import LoadedLibrary, load_library
    from opsmith.executorch.program import ExecutorchProgram, read_program

__all__ = ["ExecutorchProgram", "LoadedLibrary", "load_library", "read_program"]

# Reading a program needs nothing of what builds and loads libraries.
__getattr__ = on_demand(
    __name__,
    {
        "loading": "load_library LoadedLibrary",
        "program": "read_program ExecutorchProgram",
    },
)
