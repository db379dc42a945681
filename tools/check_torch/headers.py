"""The headers of PyTorch that ``csrc/`` and generated code include, and members that ``csrc/`` uses."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[2] / "src" / "opsmith"
_INCLUDE = re.compile(r"#\s*include <((?:ATen|c10|caffe2|torch)/[\w./-]+)>")
_CONDITION = re.compile(r"TORCH_VERSION_MINOR (<|<=|>|>=|==) (\d+)")
_NAMED_CONDITION = re.compile(rf"#define (OPSMITH_\w+) \({_CONDITION.pattern}\)")
_COMPARE = {
    "<": int.__lt__,
    "<=": int.__le__,
    ">": int.__gt__,
    ">=": int.__ge__,
    "==": int.__eq__,
}


def included_headers(minor: int | None = None) -> frozenset[str]:
    """The headers that are included with PyTorch 2.``minor``, or with any."""
    found = set()
    for folder, pattern in (("csrc", "*.h"), ("csrc", "*.cpp"), ("emit", "*.py")):
        for source in _PACKAGE.joinpath(folder).rglob(pattern):
            for line in _compiled(source.read_text(encoding="utf-8"), minor):
                found.update(_INCLUDE.findall(line))
    return frozenset(found)


def _compiled(text: str, minor: int | None) -> Iterator[str]:
    """The lines that a compiler sees; conditions on something other than the release are taken to hold."""
    holds: list[bool] = []
    for line in text.splitlines():
        directive = line.strip()
        if directive.startswith("#if"):
            holds.append(_holds(directive.partition(" ")[2], minor))
        elif directive.startswith("#else") and holds:
            holds[-1] = not holds[-1] or minor is None
        elif directive.startswith("#endif") and holds:
            holds.pop()
        elif all(holds):
            yield line


def _holds(condition: str, minor: int | None) -> bool:
    """Whether a condition on the release holds; others do."""
    stated = _CONDITION.fullmatch(_named_conditions().get(condition, condition))
    return minor is None or stated is None or _COMPARE[stated[1]](minor, int(stated[2]))


@cache
def _named_conditions() -> dict[str, str]:
    """The conditions on the release that ``torch_version.h`` names."""
    text = (_PACKAGE / "csrc" / "opsmith" / "torch_version.h").read_text(encoding="utf-8")
    found = _NAMED_CONDITION.finditer(text)
    return {each[1]: f"TORCH_VERSION_MINOR {each[2]} {each[3]}" for each in found}


def failed_sources(torch: Path) -> list[str]:
    """The compiler's errors in the runtime's sources, the first of each; ``torch`` is the package."""
    from opsmith.build.csrc import CSRC, PUBLIC_HEADERS

    include = torch / "include"
    command = [*os.environ.get("CXX", "c++").split(), "-std=c++20", "-fsyntax-only", "-w"]
    command += [f"-I{each}" for each in (CSRC, PUBLIC_HEADERS, _PACKAGE)]
    command += ["-isystem", include, "-isystem", include / "torch" / "csrc" / "api" / "include"]
    command.append("-DAT_PER_OPERATOR_HEADERS")

    def failure(source: Path) -> str:
        done = subprocess.run([*command, source], capture_output=True, text=True)
        said = (line for line in done.stderr.splitlines() if "error:" in line)
        return next(said, "") if done.returncode else ""

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return [
            each for each in pool.map(failure, sorted((CSRC / "opsmith").rglob("*.cpp"))) if each
        ]
