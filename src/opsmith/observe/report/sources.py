"""Where a kernel library's sources define its kernels, by looking for the lines that do.

No compiler is asked, so a definition that a macro hides beyond its first argument is not found: the
report then shows the manifest's line only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from opsmith.description import Library
from opsmith.errors import Location

_NOT_A_NAME = re.compile(r"\W")
_RUNTIME = "runtime"


def sources_of(library: Library) -> tuple[Path, ...]:
    """The files that define the kernels of ``library``; opsmith's own, for those of every device."""
    if library.name == _RUNTIME and not library.sources:
        return tuple(sorted(library.location.path.parent.glob("opsmith/*.cpp")))
    return library.sources


def definitions(library: Library, symbols: Iterable[str]) -> dict[str, Location]:
    """The place of each of ``symbols`` that is found in the sources of ``library``."""
    by_name: dict[str, list[str]] = {}
    for symbol in symbols:
        name = symbol.rpartition("::")[2]
        if name and not _NOT_A_NAME.search(name):
            by_name.setdefault(name, []).append(symbol)
    if not by_name:
        return {}
    names = "|".join(sorted(by_name, key=len, reverse=True))
    # `void add(…`, `at::Tensor& Lib::add(…` at the start of a line; else `OPSMITH_UNARY(exp, …`.
    function = re.compile(
        rf"^(?!\s|//|#)[\w:<>,&*\[\] ]*?[\s:&*](?P<name>{names})\s*\([^;\n]*$", re.M
    )
    macro = re.compile(rf"^[A-Z][A-Z0-9_]*\(\s*(?P<name>{names})\b", re.M)
    found: dict[str, Location] = {}
    texts = [(source, _text(source)) for source in sources_of(library)]
    for pattern in (function, macro):
        for source, text in texts:
            for match in pattern.finditer(text):
                line = text.count("\n", 0, match.start("name")) + 1
                for symbol in by_name[match["name"]]:
                    found.setdefault(symbol, Location(source, line))
    return found


def _text(source: Path) -> str:
    try:
        return source.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
