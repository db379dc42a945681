"""The portable library's pointwise families and reductions: see ``portable_backend/check_pointwise.py``."""

from __future__ import annotations

from apart import run_apart


def test_pointwise_and_reductions_are_atens() -> None:
    run_apart("portable_backend/check_pointwise.py")
