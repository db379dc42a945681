"""Whether accelerate, transformers and Lightning are installed; no requirements name them."""

from __future__ import annotations

import importlib.util

import pytest

# The versions that the tests were made with.
VERSIONS = {"accelerate": "1.15.0", "lightning": "2.6.6", "transformers": "5.23.0"}


def require(*names: str) -> None:
    """Skips the whole file where one of the libraries is missing, with what installs it."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        wanted = " ".join(f"{name}=={VERSIONS[name]}" for name in missing)
        pytest.skip(f"{', '.join(missing)} missing: pip install {wanted}", allow_module_level=True)
