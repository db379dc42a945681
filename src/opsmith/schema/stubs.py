"""PyTorch's DispatchStubs, and the operators that can be had by filling them.

Reads ``recorded/2.NN/stubs.yaml``, which ``tools/find_stubs`` writes: what the headers declare, what libtorch
exports, and which operators call which stubs, found by running each.  Decides nothing; ``description`` checks
names against it, ``plan`` serves operators through it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from opsmith.schema.installed_torch import torch_release
from opsmith.schema.recorded import read_recorded


@dataclass(frozen=True, slots=True)
class Stub:
    """One ``DispatchStub``.

    ``name`` is relative to ``at::native`` (``abs_stub``, ``cpublas::gemm_stub``); ``signature`` the type of
    the functions that fill it, ``void (at::TensorIteratorBase&)``; ``header`` declares it.  ``exported``:
    libtorch exports it, so code out of tree can fill it.  ``own_dtypes``: its TensorIterator's operands
    keep their own dtypes, such as a mask's or an index's.
    """

    name: str
    signature: str
    header: str
    exported: bool = True
    own_dtypes: bool = False


@dataclass(frozen=True, slots=True)
class Caller:
    """An operator's kernel in PyTorch that does its work through ``stubs``, on any device.

    ``kernel`` is a function, or for a structured operator a class with ``impl``, that libtorch
    exports.
    """

    operator: str
    kernel: str
    stubs: tuple[str, ...]

    @property
    def structured(self) -> bool:
        """Whether :attr:`kernel` is a structured kernel's class."""
        return self.kernel.rpartition("::")[2].startswith("structured_")


@dataclass(frozen=True, slots=True)
class Unfit:
    """An operator whose kernel reaches ``stubs``, but does more that only works on the CPU: ``why``."""

    operator: str
    stubs: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class StubMap:
    """Every stub of one torch, and who calls them.

    ``isolated`` are headers that no file can include together with another stub's header.
    """

    torch: str
    stubs: Mapping[str, Stub]
    callers: Mapping[str, Caller]
    unfit: Mapping[str, Unfit]
    isolated: frozenset[str]

    def operators(self, stub: str) -> tuple[str, ...]:
        """The operators that can be served through ``stub``, sorted; some need other stubs too."""
        return tuple(sorted(c.operator for c in self.callers.values() if stub in c.stubs))

    def obstacle(self, stub: str) -> str:
        """Why opsmith can serve no operator through ``stub``; empty where it can."""
        if not self.stubs[stub].exported:
            return "libtorch does not export it, so it cannot be filled from outside"
        if self.operators(stub):
            return ""
        unfit = [other for other in self.unfit.values() if stub in other.stubs]
        if unfit:
            first = min(unfit, key=lambda other: other.operator)
            more = f" (and {len(unfit) - 1} more)" if len(unfit) > 1 else ""
            return f"`{first.operator}`{more} calls it, but {first.why}"
        return (
            "no operator was found that calls it for another device than the CPU: PyTorch's kernels "
            "name the CPU when they call it, or never do"
        )


class _Caller(msgspec.Struct, forbid_unknown_fields=True):
    kernel: str
    stubs: tuple[str, ...]


class _Unfit(msgspec.Struct, forbid_unknown_fields=True):
    stubs: tuple[str, ...]
    why: str


class _Stub(msgspec.Struct, forbid_unknown_fields=True):
    signature: str
    header: str
    exported: bool = True
    own_dtypes: bool = False


class _Map(msgspec.Struct, forbid_unknown_fields=True):
    torch: str
    isolated: list[str]
    stubs: dict[str, _Stub]
    callers: dict[str, _Caller]
    unfit: dict[str, _Unfit]


@functools.cache
def read_stubs() -> StubMap:
    """The stubs of the installed torch; about 0.1 s, once a process."""
    raw = read_recorded("stubs", _Map, torch_release())
    return StubMap(
        torch=raw.torch,
        stubs={
            name: Stub(name, stub.signature, stub.header, stub.exported, stub.own_dtypes)
            for name, stub in raw.stubs.items()
        },
        callers={
            name: Caller(name, caller.kernel, caller.stubs) for name, caller in raw.callers.items()
        },
        unfit={name: Unfit(name, unfit.stubs, unfit.why) for name, unfit in raw.unfit.items()},
        isolated=frozenset(raw.isolated),
    )
