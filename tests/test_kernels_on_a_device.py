"""Every library's kernels on a device, by the suite that they must pass in ExecuTorch too.

See ``kernel_suite/check_on_device.py``; what a library has beyond the kernels is tested in its own file.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from apart import run_apart

BACKENDS = Path(__file__).parent


@pytest.mark.parametrize("library", ["portable", "optimized", "quantized"])
def test_a_library_gives_what_aten_gives(library: str) -> None:
    run_apart(
        "kernel_suite/check_on_device.py",
        OPSMITH_SUITE_BACKEND=str(BACKENDS / f"{library}_backend" / "backend.yaml"),
        OPSMITH_SUITE_LIBRARY=library,
    )
