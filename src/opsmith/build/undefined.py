"""The error for a kernel that no source defines, at the line of the manifest that names it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from opsmith.description import Library
from opsmith.errors import Location, SymbolUndefined


@dataclass(frozen=True)
class WantedFunction:
    """A function that the sources of ``library`` must define, and ``purpose``, what for.

    ``declaration`` writes its C++ declaration.
    """

    symbol: str
    purpose: str
    location: Location
    library: Library
    declaration: Callable[[], str]


def located_undefined(error: SymbolUndefined, wanted: Iterable[WantedFunction]) -> SymbolUndefined:
    """``error`` at the place of the first missing function of ``wanted``; as it is, where it is none."""
    missing = {symbol.partition("(")[0] for symbol in error.symbols}
    for function in wanted:
        if function.symbol not in missing:
            continue
        library = function.library
        sources = ", ".join(source.name for source in library.sources) or "none are listed"
        others = len(missing) - 1
        return SymbolUndefined(
            f"the sources of library `{library.name}` do not define `{function.symbol}` with the "
            f"signature that {function.purpose} needs"
            + (f" (and {others} more)" if others else ""),
            symbols=error.symbols,
            location=function.location,
            remedy=f"define\n    {function.declaration()};\n  in one of its sources ({sources})",
        )
    return error
