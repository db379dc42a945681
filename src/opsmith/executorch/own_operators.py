"""Operators that a backend's libraries declare: PyTorch knows them once the backend is loaded.

A graph that calls one is exported with the backend loaded, and says so in its file, so that whoever reads it
loads the backend first.  Called by ``export`` and, in the runtime's process, by ``exported_module``.
"""

from __future__ import annotations

import re
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from opsmith.description import Backend

# The file in the exported graph's archive with the path of the backend's description.
BACKEND_FILE = "opsmith_backend"

# PyTorch's message about an operator that nobody has defined.
_UNDEFINED = re.compile(r"'_OpNamespace' '(\w+)' object has no attribute '(\w+)'")


def misses_own_operator(error: Exception, backend: Backend) -> bool:
    """Whether ``error`` says that an operator of the backend's own is not there: ``optimized::rms_norm``."""
    found = _UNDEFINED.search(str(error))
    declared = {each.operator.name.partition(".")[0] for each in backend.operators}
    return found is not None and "::".join(found.groups()) in declared


def backend_of(graph: Path) -> Path | None:
    """The description of the backend whose operators the exported graph calls; None where it calls none."""
    try:
        with ZipFile(graph) as archive:
            for name in archive.namelist():
                if name.rpartition("/")[2] == BACKEND_FILE:
                    return Path(archive.read(name).decode())
    except (BadZipFile, OSError):
        pass  # torch.export.load says what is wrong with it
    return None
