"""Portable kernels on a PyTorch device: see ``portable_backend/check_indexing.py``."""

from __future__ import annotations

from apart import run_apart


def test_portable_kernels_give_what_the_cpu_gives() -> None:
    run_apart("portable_backend/check_indexing.py")
