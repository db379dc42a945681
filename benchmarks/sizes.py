"""How large the library is that a program of ExecuTorch needs, beside the one with every kernel.

Bytes of code and constants, which are the same in every run with the same compiler.  The peer is all of
``quantized``, ``optimized``, ``portable`` and ``dim_order``.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

from opsmith.executorch.build import build_library
from opsmith.executorch.export import ModuleToExport, export_program
from opsmith.executorch.program import read_program
from opsmith.observe.benchmarks.measurements import Measurement, measured, report
from programs import BACKEND, MODELS

SHARE = 0.15


def measurements(folder: Path) -> Iterator[Measurement]:
    description = folder / "backend.yaml"
    description.write_text(BACKEND)
    for place, (name, model) in enumerate(MODELS.items()):
        module, x = model.made()
        what = ModuleToExport(name, module, (x,), {})
        program = export_program(what, folder / f"{place}.pte", description).program
        built = build_library(description, [read_program(program)], folder / "built")
        yield measured(name, "bytes", [built.text], [built.full_text], SHARE)


def main() -> None:
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        found = list(measurements(Path(folder)))
    report("a program's kernels in ExecuTorch, peer: all kernels", found)


if __name__ == "__main__":
    main()
