"""The derived variants, on a backend of their own: see ``derived_backend/check_variants.py``."""

from __future__ import annotations

from apart import run_apart


def test_derived_variants_agree_with_the_cpu() -> None:
    run_apart("derived_backend/check_variants.py")
