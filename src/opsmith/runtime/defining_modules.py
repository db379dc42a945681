"""Imports the Python modules that define operators which kernel libraries implement.

Some of them end the process where they find their operators defined by others, so they come before a
library is loaded or a program lowered.  Called by ``load`` and by ``executorch``.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from opsmith.errors import ExecutorchMissing
from opsmith.schema.torch_names import module_of

if TYPE_CHECKING:
    from opsmith.description import ExternalNamespace

# The operators that pt2e writes into a graph; PyTorch defines them in Python, when somebody imports this.
WRITTEN_BY_PT2E = module_of("quantized_decomposed_lib")


def import_defining_modules(namespaces: Iterable[ExternalNamespace]) -> None:
    """Imports the modules of ``namespaces``.  Those that are not installed define nothing.

    One that loads kernels for ExecuTorch stays out where a library in this process has some for its
    namespace: the runtime ends the process at a second kernel for the same calls.
    """
    for each in namespaces:
        for module in each.modules:
            with contextlib.suppress(ModuleNotFoundError):
                if not _registers_again(each.namespace, module):
                    importlib.import_module(module)


def _registers_again(namespace: str, module: str) -> bool:
    if module in sys.modules or "executorch" not in sys.modules:
        return False
    # Not at the top: a packaged device is loaded without anything that builds.
    from opsmith.build.executorch import find_executorch

    try:
        runtime = sys.modules.get(find_executorch().extension_module)
    except ExecutorchMissing:  # of a release for which no library of ours is built
        return False
    names = () if runtime is None else runtime._get_operator_names()
    if not any(name.startswith(f"{namespace}::") for name in names):
        return False
    spec = importlib.util.find_spec(module)
    folder = Path(spec.origin).parent if spec and spec.origin else None
    return folder is not None and any(folder.glob("*.so"))
