"""Every library's kernels in ExecuTorch's runtime, by the suite that they must pass on a device too.

See ``kernel_suite/check_in_executorch.py``: thousands of calls, in processes of their own.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from apart import run_apart

pytest.importorskip("executorch")

BACKEND = "backend: suite\ndriver: sim\nlibraries: [portable, optimized, quantized]\n"


def test_all_libraries_give_what_aten_gives(tmp_path: Path) -> None:
    from executorch_programs import build

    (tmp_path / "backend.yaml").write_text(BACKEND)
    built = build(tmp_path / "backend.yaml", tmp_path / "built")
    run_apart("kernel_suite/check_in_executorch.py", OPSMITH_SUITE_LIBRARY=str(built.library))
