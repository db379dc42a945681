"""The fallback and the runtime's own operators, with a host window and without: tests/fallback_backend."""

from __future__ import annotations

from pathlib import Path

import pytest

from apart import run_apart

HERE = Path(__file__).parent
CHECKS = [str(path.relative_to(HERE)) for path in sorted(HERE.glob("fallback_backend/check_*.py"))]


@pytest.mark.parametrize("mode", ["zero_copy", "copying"])
def test_the_checks_pass(mode: str) -> None:
    run_apart(*CHECKS, OPSMITH_TEST_BACKEND=mode)
