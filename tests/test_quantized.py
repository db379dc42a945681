"""The quantized library on a device: see ``quantized_backend/check_quantized.py``.

In ExecuTorch: ``test_kernels_in_executorch.py``, and whole models in ``test_executorch_end_to_end.py``.
"""

from __future__ import annotations

import pytest

from apart import run_apart

pytest.importorskip("executorch")


@pytest.mark.parametrize("instruction_set", ["baseline", "avx2", ""])
def test_quantized_kernels_on_a_device(instruction_set: str) -> None:
    run_apart("quantized_backend/check_quantized.py", OPSMITH_ISA=instruction_set)
