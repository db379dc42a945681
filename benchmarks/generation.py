"""The time to generate everything, and to build every structured group from nothing and after an edit.

``emit`` is timed on the widest description that PyTorch allows: a kernel for each group of ATen,
structured where PyTorch is.  The build has a kernel for each of the structured groups, which computes
nothing, and starts from an empty cache; it takes as many cores as the machine lends it, at most two.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from opsmith.observe.benchmarks.measurements import measured, report

ROUNDS = 3
CORES = 2
_EMIT = """
import sys, time
from pathlib import Path
from opsmith.plan import plan_backend
plan = plan_backend(sys.argv[1], None)
from opsmith.emit import emit
start = time.perf_counter()
files = emit(plan)
print(time.perf_counter() - start)
print(len(files), sum(len(file.text) for file in files))
"""
_BUILD = """
import sys, time
from pathlib import Path
from opsmith.build.backend import build_backend
start = time.perf_counter()
build_backend(Path(sys.argv[1]), progress=lambda step: print(step, file=sys.stderr))
print(time.perf_counter() - start)
"""
_DECLARATION = re.compile(r"^(?:void|at::|::std::)[^;]*?\)(?=;)", re.MULTILINE | re.DOTALL)


def describe(folder: Path, *, only_structured: bool) -> Path:
    """A backend with a kernel for each group: structured, or for its out or functional variant."""
    from opsmith.schema import Composite, read_catalogue

    catalogue = read_catalogue()
    lines = []
    for group in catalogue.groups:
        name = group.out or group.functional
        if name is None or catalogue.operators[name].composite is Composite.IMPLICIT:
            continue
        symbol = f"chip::{name.replace('.', '_')}"
        if group.structured:
            lines.append(f"  - {{op: {name}, kernel_name: {symbol}, structured: true}}")
        elif not only_structured:
            lines.append(f"  - {{op: {name}, kernel_name: {symbol}}}")
    (folder / "kernels.cpp").touch()
    (folder / "kernels.yaml").write_text(
        "library: chiplib\nsources: [kernels.cpp]\nkernels:\n" + "\n".join(lines) + "\n"
    )
    path = folder / "backend.yaml"
    path.write_text("backend: chip\ndriver: sim\nlibraries: [kernels.yaml]\n")
    return path


def define_kernels(description: Path) -> None:
    """Writes empty definitions of the description's kernels to its ``kernels.cpp``."""
    from opsmith.emit import emit
    from opsmith.plan import plan_backend

    plan = plan_backend(str(description), None)
    header = next(file.text for file in emit(plan) if file.name == "ChipNativeFunctions.h")
    declared = [text for text in _DECLARATION.findall(header) if text.startswith("void ")]
    definitions = "\n".join(f"{text} {{}}" for text in declared)
    (description.parent / "kernels.cpp").write_text(
        f'#include "ChipNativeFunctions.h"\n\nnamespace chip {{\n{definitions}\n}}\n'
    )


def run(script: str, description: Path, **environment: str) -> list[str]:
    """The lines that ``script`` prints, run in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", script, str(description)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    ).stdout.splitlines()


def built(description: Path, cache: Path) -> tuple[float, float]:
    """The seconds that a build takes, and the processors' seconds divided by the cores."""
    before = os.times()
    seconds = float(run(_BUILD, description, OPSMITH_CACHE_DIR=str(cache), MAX_JOBS=str(CORES))[-1])
    after = os.times()
    used = sum(after[2:4]) - sum(before[2:4])
    return seconds, used / CORES


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        everything, structured = folder / "everything", folder / "structured"
        for each in (everything, structured):
            each.mkdir()
        description = describe(everything, only_structured=False)
        emitted = [run(_EMIT, description) for _ in range(ROUNDS)]
        seconds = [float(lines[0]) for lines in emitted]
        files, size = emitted[0][1].split()

        description = describe(structured, only_structured=True)
        define_kernels(description)
        cache = folder / "cache"
        whole, whole_used = built(description, cache)
        kernels = description.parent / "kernels.cpp"
        kernels.write_text(kernels.read_text() + "\n// edited\n")
        edited, edited_used = built(description, cache)
    report(
        "generating and building; peer: the processors' own time, shared by two cores",
        [
            measured(
                f"emit all of ATen: {files} files, {int(size) >> 10} KiB", "s", seconds, goal=3
            ),
            measured(
                "build 275 structured groups", "s", [whole], [whole_used], 300, is_absolute=True
            ),
            measured(
                "after an edit of a kernel file", "s", [edited], [edited_used], 15, is_absolute=True
            ),
        ],
    )


if __name__ == "__main__":
    main()
