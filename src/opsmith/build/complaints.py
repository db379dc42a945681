"""Messages of failing compilers and linkers → errors that name the file, the line and the remedy."""

from __future__ import annotations

import re
from pathlib import Path

from opsmith.build.cache import unusable, write_whole
from opsmith.build.stored import UNWRITTEN
from opsmith.errors import BuildError, CompilationFailed, Location, SymbolUndefined

_DIAGNOSTIC = re.compile(
    r"^(?P<file>[^\n]+?):(?P<line>\d+):(?P<column>\d+): (?:fatal )?error: (?P<message>.*)$",
    re.MULTILINE,
)
# The messages of GNU ld and gold, and of lld and mold.
_UNDEFINED = re.compile(
    r"undefined reference to [`'](?P<gnu>[^\n]*)'$|undefined symbol: (?P<lld>[^\n]*)$", re.MULTILINE
)
# GNU ld, gold and mold, and lld.
_NO_LIBRARY = re.compile(r"(?:cannot find|library not found:|unable to find library) -l([^\s:]+)")
# Said by a tool, at the end of its line, and not shown as a line of the source ("  12 | ...").
_DISK_FULL = re.compile(
    r"^(?! *\d* \|).*(?P<why>No space left on device|Disk quota exceeded)'?$", re.MULTILINE
)
_UNWRITTEN = re.compile(rf"^{UNWRITTEN}(?P<why>.*)$", re.MULTILINE)
# The kernel, short of memory, ends the largest process: a compiler.
_KILLED = re.compile(
    r"fatal error: Killed signal|\bKilled\b|out of memory|cannot allocate memory", re.I
)


def failure(output: str, cache: Path, log: Path) -> BuildError:
    """The error that compilers and linkers mean by ``output``, which is kept in ``log``."""
    if refused := _DISK_FULL.search(output) or _UNWRITTEN.search(output):
        return unusable(cache, refused["why"])
    write_whole(log, output.encode())
    undefined = list(dict.fromkeys(m["gnu"] or m["lld"] for m in _UNDEFINED.finditer(output)))
    if undefined:
        return SymbolUndefined(
            f"the sources do not define {', '.join(f'`{symbol}`' for symbol in undefined[:3])}"
            + (f" and {len(undefined) - 3} more" if len(undefined) > 3 else ""),
            symbols=undefined,
            remedy=f"define them, or add the file that does to `sources`; full log: {log}",
        )
    if missing := list(dict.fromkeys(_NO_LIBRARY.findall(output))):
        return BuildError(
            f"the linker finds no library {', '.join(f'`{name}`' for name in missing)}",
            remedy="give its path in `libraries`, or its folder: `link_flags: [-L/opt/mysdk/lib]`; "
            f"full log: {log}",
        )
    diagnostics = list(_DIAGNOSTIC.finditer(output))
    if not diagnostics:
        if killed := _KILLED.search(output):
            return CompilationFailed(
                f"a compiler was ended, most likely for want of memory: {_line_of(killed)}",
                remedy=f"build with fewer at a time: MAX_JOBS=1; full log: {log}",
            )
        last = output.strip().splitlines()[-8:]
        return CompilationFailed(
            "the compiler failed:\n  " + "\n  ".join(last), remedy=f"see {log}"
        )
    first = diagnostics[0]
    shown = "\n".join(
        f"  {Path(found['file']).name}:{found['line']}:{found['column']}: {found['message']}"
        for found in diagnostics[:3]
    )
    if len(diagnostics) > 3:
        shown += f"\n  and {len(diagnostics) - 3} more"
    return CompilationFailed(
        f"the compiler rejects it\n{shown}",
        location=Location(Path(first["file"]), int(first["line"]), int(first["column"])),
        remedy=f"mend the source; full log: {log}",
    )


def _line_of(found: re.Match[str]) -> str:
    """The whole line in which something was found."""
    start = found.string.rfind("\n", 0, found.start()) + 1
    return found.string[start:].splitlines()[0]
