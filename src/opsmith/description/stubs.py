"""Refuses, at its place, a ``stub:`` that cannot be filled or that nothing would come of."""

from __future__ import annotations

from opsmith.errors import KernelRejected, Location, StubUnknown, nearest
from opsmith.schema import StubMap, read_stubs


def check_stub(name: str, location: Location) -> None:
    """Raises :class:`StubUnknown` or :class:`KernelRejected` where ``name`` serves no operator."""
    known = read_stubs()
    if name not in known.stubs:
        raise StubUnknown(
            f"torch {known.torch} has no DispatchStub `{name}`{nearest(name, known.stubs)}",
            location=location,
            remedy="`opsmith stubs` lists every stub",
        )
    if obstacle := known.obstacle(name):
        raise KernelRejected(
            f"nothing can be served through the stub `{name}`: {obstacle}",
            location=location,
            remedy=_instead(known, name),
        )


def _instead(known: StubMap, name: str) -> str:
    operators = [unfit.operator for unfit in known.unfit.values() if name in unfit.stubs]
    if operators:
        return f"name the operator instead: `op: {min(operators)}`, with a kernel of its signature"
    return (
        "name the operators that it would serve instead, with `op:` and kernels of their signatures"
    )
