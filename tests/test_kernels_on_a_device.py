"""Every library's kernels on a device, by the suite that they must pass in ExecuTorch too.

See ``kernel_suite/check_on_device.py``; what a library has beyond the kernels is tested in its own file.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from apart import run_apart

# Backends in which the library stands first, as its own tests have them.
BACKENDS = {
    "portable": Path(__file__).parent / "portable_backend" / "backend.yaml",
    "optimized": "sim",
    "quantized": Path(__file__).parent / "quantized_backend" / "backend.yaml",
}


@pytest.mark.parametrize("library", BACKENDS)
def test_a_library_gives_what_aten_gives(library: str) -> None:
    run_apart(
        "kernel_suite/check_on_device.py",
        OPSMITH_SUITE_BACKEND=str(BACKENDS[library]),
        OPSMITH_SUITE_LIBRARY=library,
    )
