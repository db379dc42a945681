"""Kernels on lean tensors on a PyTorch device: see ``lean_backend/check_lean.py``."""

from __future__ import annotations

from apart import run_apart


def test_lean_kernels_serve_a_device() -> None:
    run_apart("lean_backend/check_lean.py")
