"""PyTorch's composite kernels that read their arguments' elements as host memory.

Reads ``recorded/2.NN/host_readers.yaml``, which ``tools/find_host_readers`` writes.  They are registered for
every device, and where the host cannot address the device's memory they end the process.  Decides nothing;
``plan`` gives them another route.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import msgspec

from opsmith.schema.installed_torch import torch_release
from opsmith.schema.recorded import read_recorded


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
    """Those of the installed torch."""
    raw = read_recorded("host_readers", _Record, torch_release())
    return HostReaders(raw.torch, raw.readers, raw.differentiated)
