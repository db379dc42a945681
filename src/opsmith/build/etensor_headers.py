"""The headers that kernels of the ``executorch`` ABI are compiled with: opsmith's own, or ExecuTorch's.

Libraries of a device have opsmith's, in ``csrc/etensor``, whatever is installed: their objects are the same
with ExecuTorch and without.  Libraries for ExecuTorch's runtime have its own, which say how its values lie in
memory.  The names are the same, so a kernel is compiled with either.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from opsmith.build.csrc import CSRC
from opsmith.build.toolchain import TorchInstallation

ETENSOR = CSRC / "etensor"
"""The directory of opsmith's own headers; they include c10's Half, BFloat16 and complex, of torch."""


@dataclass(frozen=True)
class ETensorHeaders:
    """A set of headers: ``include_dirs``, the later of which has c10.

    ``root`` is the folder that messages call ``root_name``.  ``version`` stands for the headers in an
    object's digest; where it is empty, their contents do.
    """

    include_dirs: tuple[Path, Path]
    root: Path
    root_name: str
    version: str = ""


def own_headers(torch: TorchInstallation) -> ETensorHeaders:
    """opsmith's headers, with the c10 of ``torch``."""
    return ETensorHeaders((ETENSOR, torch.include_dirs[0]), torch.root, "torch")
