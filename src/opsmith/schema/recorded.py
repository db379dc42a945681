"""Facts about one torch that a tool has recorded in a YAML file of this folder."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, TypeVar

import msgspec
import yaml

from opsmith.errors import LoadError
from opsmith.schema.torch_release import torch_version


class _Recorded(Protocol):
    """``torch`` is the version that the facts are of, as ``2.13``."""

    torch: str


R = TypeVar("R", bound=_Recorded)


def read_recorded(path: Path, kind: type[R], what: str, tool: str) -> R:
    """The file ``path``, of the form ``kind``.

    Raises :class:`~opsmith.errors.LoadError`, with ``what`` was done and the ``tool`` that does it anew,
    when that was on another torch than is installed.
    """
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    recorded = msgspec.convert(yaml.load(path.read_text(encoding="utf-8"), loader), kind)
    installed = torch_version()
    if not installed.startswith(f"{recorded.torch}."):
        raise LoadError(
            f"opsmith's {what} on torch {recorded.torch}, and this is {installed}",
            remedy=f"make it anew in opsmith's source tree: python tools/{tool}",
        )
    return recorded
