"""Where the package and its own C++ are, and where its headers are found."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
CSRC = PACKAGE / "csrc"
PUBLIC_HEADERS = CSRC / "include"
"""What drivers and kernels may include."""
INCLUDE_DIRS = (PUBLIC_HEADERS, CSRC)
"""What generated code and the runtime include; the headers for kernels' authors are made of the runtime's."""
