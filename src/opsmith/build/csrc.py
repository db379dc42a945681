"""Where the package and its own C++ are, and where its headers are found."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
CSRC = PACKAGE / "csrc"
PUBLIC_HEADERS = CSRC / "include"
"""The folder of the headers that drivers and kernels may include."""
INCLUDE_DIRS = (PUBLIC_HEADERS, CSRC)
"""Folders that generated code and the runtime include; kernels' authors get headers made of the runtime's."""
META_FUNCTIONS = sorted((PACKAGE / "kernels").glob("**/meta/*.cpp"))
"""The functions that shape results: those of ``plan/meta_functions.yaml``, and of shipped libraries."""
