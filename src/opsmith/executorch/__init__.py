"""ExecuTorch programs: what they ask of kernel libraries, and libraries built, loaded and run for them."""

from opsmith.executorch.loading import LoadedLibrary, load_library
from opsmith.executorch.program import ExecutorchProgram, read_program

__all__ = ["ExecutorchProgram", "LoadedLibrary", "load_library", "read_program"]
