"""Facts about opsmith for CMake projects: ``python -m opsmith.build.cmake`` prints them.

Without an argument, the folder of ``opsmithConfig.cmake``, for ``opsmith_DIR``; with ``facts``, the places
that the file itself asks for, as CMake's ``set`` commands.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from opsmith.build.cpu_operators import BRIDGE, LEAN_RUNTIME
from opsmith.build.csrc import INCLUDE_DIRS, PACKAGE
from opsmith.build.etensor_headers import own_headers
from opsmith.build.executorch import ExecutorchInstallation, find_target_executorch
from opsmith.build.flags import lean_flags
from opsmith.build.toolchain import TorchInstallation, find_torch
from opsmith.errors import ExecutorchMissing, OpsmithError


def config_folder() -> Path:
    """Where ``opsmithConfig.cmake`` lies."""
    return PACKAGE / "executorch" / "cmake"


def facts() -> dict[str, Sequence[str | Path]]:
    """The variables of ``opsmithConfig.cmake``, by name.

    Objects are for both kinds of libraries, so they have ExecuTorch's headers where it is installed.  Without
    it there are libraries for PyTorch alone.  Raises :class:`~opsmith.errors.LoadError`.
    """
    torch, version = find_torch(), ""
    libraries: Sequence[str | Path]
    try:
        executorch = find_target_executorch()
        headers, libraries, version = executorch.headers, executorch.libraries, executorch.version
        runner = _runner_libraries(executorch, torch)
    except ExecutorchMissing as error:
        headers = own_headers(torch)
        libraries = runner = _not_found(error)
    return {
        "OPSMITH_INCLUDE_DIRS": INCLUDE_DIRS,
        "OPSMITH_LEAN_FLAGS": lean_flags(),
        "OPSMITH_LEAN_INCLUDE_DIRS": headers.include_dirs,
        "OPSMITH_LEAN_SOURCES": LEAN_RUNTIME,
        "OPSMITH_BRIDGE_SOURCES": BRIDGE,
        "OPSMITH_TORCH_INCLUDE_DIRS": [*torch.include_dirs, headers.include_dirs[0]],
        "OPSMITH_TORCH_LIBRARY_DIR": [torch.library_dir],
        "OPSMITH_EXECUTORCH_LIBRARIES": libraries,
        "OPSMITH_EXECUTORCH_VERSION": [version],
        "OPSMITH_EXECUTORCH_INCLUDE_DIRS": headers.include_dirs,
        "OPSMITH_EXECUTORCH_RUNNER_LIBRARIES": runner,
    }


def _runner_libraries(
    executorch: ExecutorchInstallation, torch: TorchInstallation
) -> Sequence[str | Path]:
    """The libraries of a runner; of an ExecuTorch that none can be linked with, what CMake says of it."""
    try:
        return executorch.runner_libraries(torch.library_dir)
    except ExecutorchMissing as error:
        return _not_found(error)


def _not_found(error: ExecutorchMissing) -> Sequence[str | Path]:
    """The value of a variable for what is missing: what CMake says where it is asked for."""
    return [f"{error.message}: {error.remedy}-NOTFOUND"]


def _set_commands(values: dict[str, Sequence[str | Path]]) -> Iterable[str]:
    for name, items in values.items():
        quoted = " ".join(f"[==[{item}]==]" for item in items)
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
