"""What a CMake project needs to know of opsmith: ``python -m opsmith.build.cmake`` prints it.

Without an argument, the folder of ``opsmithConfig.cmake``, for ``opsmith_DIR``; with ``facts``, the places
that the file itself asks for, as CMake's ``set`` commands.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from opsmith.build.cpu_operators import BRIDGE, LEAN_RUNTIME
from opsmith.build.csrc import INCLUDE_DIRS, PACKAGE
from opsmith.build.executorch import ExecutorchInstallation, find_target_executorch
from opsmith.build.flags import lean_flags, lean_include_dirs
from opsmith.build.toolchain import TorchInstallation, find_torch
from opsmith.errors import ExecutorchMissing, OpsmithError


def config_folder() -> Path:
    """Where ``opsmithConfig.cmake`` lies."""
    return PACKAGE / "cmake"


def facts() -> dict[str, Sequence[str | Path]]:
    """The variables of ``opsmithConfig.cmake``, by name.

    Raises :class:`~opsmith.errors.ExecutorchMissing` or :class:`~opsmith.errors.LoadError`.
    """
    torch, executorch = find_torch(), find_target_executorch()
    return {
        "OPSMITH_INCLUDE_DIRS": INCLUDE_DIRS,
        "OPSMITH_LEAN_FLAGS": lean_flags(),
        "OPSMITH_LEAN_INCLUDE_DIRS": lean_include_dirs(executorch),
        "OPSMITH_LEAN_SOURCES": LEAN_RUNTIME,
        "OPSMITH_BRIDGE_SOURCES": BRIDGE,
        "OPSMITH_TORCH_INCLUDE_DIRS": [*torch.include_dirs, executorch.include_dir],
        "OPSMITH_TORCH_LIBRARY_DIR": [torch.library_dir],
        "OPSMITH_EXECUTORCH_LIBRARIES": executorch.libraries,
        "OPSMITH_EXECUTORCH_VERSION": [executorch.version],
        "OPSMITH_EXECUTORCH_INCLUDE_DIRS": lean_include_dirs(executorch),
        "OPSMITH_EXECUTORCH_RUNNER_LIBRARIES": _runner_libraries(executorch, torch),
    }


def _runner_libraries(
    executorch: ExecutorchInstallation, torch: TorchInstallation
) -> Sequence[str | Path]:
    """What a runner links; of an ExecuTorch that none can be linked with, what CMake then says of it."""
    try:
        return executorch.runner_libraries(torch.library_dir)
    except ExecutorchMissing as error:
        return [f"{error.message}: {error.remedy}-NOTFOUND"]


def _set_commands(values: dict[str, Sequence[str | Path]]) -> Iterable[str]:
    for name, items in values.items():
        quoted = " ".join(f'"{item}"' for item in items)
        yield f"set({name} {quoted})"


def _main(arguments: Sequence[str]) -> int:
    try:
        print("\n".join(_set_commands(facts())) if arguments == ["facts"] else config_folder())
    except OpsmithError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
