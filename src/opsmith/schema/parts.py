"""The operators that PyTorch decomposes composites into on a device of its own.

Reads ``recorded/2.NN/parts.yaml``, which ``tools/find_parts`` writes: the operators that each composite
calls, as recorded.  Decides nothing; ``plan`` counts by it how often a composite would fall back.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from opsmith.schema.installed_torch import torch_release
from opsmith.schema.recorded import read_recorded


@dataclass(frozen=True)
class PartsMap:
    """The decompositions of one torch.

    ``parts`` has, by composite, the ways in which it was seen to be decomposed: how often which operator
    is called, 2 standing for twice or more.  Operators that only make, view or copy Tensors on every device
    are left out, and so are composites of nothing else.  ``unfit`` are composites that one call on the CPU
    does not equal, and why.
    """

    torch: str
    parts: Mapping[str, tuple[Mapping[str, int], ...]]
    unfit: Mapping[str, str]


class _Map(msgspec.Struct, forbid_unknown_fields=True):
    torch: str
    parts: dict[str, tuple[dict[str, int], ...]]
    unfit: dict[str, str]


@functools.cache
def read_parts() -> PartsMap:
    """The decompositions of the installed torch; about 0.05 s, once a process."""
    raw = read_recorded("parts", _Map, torch_release())
    return PartsMap(raw.torch, raw.parts, raw.unfit)
