"""PyTorch's composite kernels that read their arguments' elements as host memory.

Reads ``host_readers.yaml``, which ``tools/find_host_readers`` writes.  They are registered for every device,
and where the host cannot address the device's memory they end the process.  Decides nothing; ``plan`` gives
them another route.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

import msgspec

from opsmith.schema.recorded import read_recorded

_RECORD = Path(__file__).parent / "host_readers.yaml"


@dataclass(frozen=True)
class HostReaders:
    """The operators of one torch that have such a kernel.

    PyTorch differentiates those that are ``differentiated`` through operators that they call, so that no one
    call can take their place.
    """

    torch: str
    readers: frozenset[str]
    differentiated: frozenset[str]


class _Record(msgspec.Struct, forbid_unknown_fields=True):
    torch: str
    readers: frozenset[str]
    differentiated: frozenset[str]


@functools.cache
def read_host_readers() -> HostReaders:
    """Those of the installed torch.

    Raises :class:`~opsmith.errors.LoadError` when they were found on another torch.
    """
    what = "composites that read host memory were found"
    raw = read_recorded(_RECORD, _Record, what, "find_host_readers")
    return HostReaders(raw.torch, raw.readers, raw.differentiated)
