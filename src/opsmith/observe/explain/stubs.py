"""Rows of ``opsmith stubs``: every DispatchStub of the installed torch and what filling it would serve."""

from __future__ import annotations

from dataclasses import dataclass

from opsmith.errors import StubUnknown, nearest
from opsmith.schema import read_stubs


@dataclass(frozen=True)
class StubRow:
    """One stub: what ``stubs.yaml`` says of it, and whether opsmith can serve operators through it.

    ``operators`` are those that it serves, some of them only together with other stubs; ``obstacle`` says
    why there are none.
    """

    name: str
    signature: str
    header: str
    exported: bool
    operators: tuple[str, ...]
    served: bool
    obstacle: str


def stub_rows(text: str = "") -> list[StubRow]:
    """The stubs whose name, or one of whose operators' names, contains ``text``; sorted by name.

    Raises :class:`~opsmith.errors.StubUnknown` where there is none.
    """
    known = read_stubs()
    rows = []
    for name, stub in sorted(known.stubs.items()):
        operators = known.operators(name)
        if not any(text in candidate for candidate in (name, *operators)):
            continue
        obstacle = known.obstacle(name)
        rows.append(
            StubRow(
                name=name,
                signature=stub.signature,
                header=stub.header,
                exported=stub.exported,
                operators=operators,
                served=not obstacle,
                obstacle=obstacle,
            )
        )
    if not rows:
        raise StubUnknown(
            f"torch {known.torch} has no DispatchStub `{text}`, nor one that serves an operator of "
            f"that name{nearest(text, known.stubs)}",
            remedy="`opsmith stubs` lists every stub",
        )
    return rows
