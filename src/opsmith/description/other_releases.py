"""Entries of opsmith's own manifests whose operators only other releases of torch have.

One manifest holds for all supported releases, so such an entry is left out, with the reason; in anybody
else's it is an error.  Called by ``manifest`` and by the reader of ExecuTorch's entries.
"""

from __future__ import annotations

import functools
from pathlib import Path

from opsmith.description.document import Document, Step
from opsmith.description.model import Unserved
from opsmith.schema import Catalogue, releases_with, torch_release

_PACKAGE = Path(__file__).resolve().parent.parent


def left_out(document: Document, catalogue: Catalogue | None, *steps: Step) -> Unserved | None:
    """The entry at ``steps`` and why it is left out; None for one that is read."""
    if catalogue is None or not _is_opsmiths(document.path):
        return None
    name = document.at(*steps).get("op", "")
    if name in catalogue.operators:
        return None
    releases = releases_with(name, torch_release())
    reason = f"torch {catalogue.torch} lacks the operator; {releases} have it"
    return Unserved(name, document.locate(*steps, "op"), reason) if releases else None


@functools.cache
def _is_opsmiths(path: Path) -> bool:
    return path.is_relative_to(_PACKAGE)
