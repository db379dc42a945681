"""``opsmith executorch``: programs of ExecuTorch and the kernel libraries that serve them."""

from __future__ import annotations

from opsmith.cli.deferred import Listed, group

COMMANDS = (
    Listed(
        "export",
        "opsmith.cli.executorch.export:export_module",
        "Export a module as a program, and keep its example inputs beside it.",
    ),
    Listed(
        "build",
        "opsmith.cli.executorch.build:build",
        "Build a backend's kernels into one library for ExecuTorch, all of them or what programs use.",
    ),
    Listed(
        "check",
        "opsmith.cli.executorch.check:check",
        "Say who will serve each call of a program, who nobody, and how much memory it takes.",
    ),
    Listed(
        "run",
        "opsmith.cli.executorch.run:run",
        "Run a program, say which library serves each instruction, compare with eager and time both.",
    ),
    Listed(
        "select",
        "opsmith.cli.executorch.select:select_kernels",
        "List the operators that programs use, by the dtypes and dim orders of their Tensors.",
    ),
)

executorch = group(COMMANDS, "Programs of ExecuTorch and the kernel libraries that serve them.")
