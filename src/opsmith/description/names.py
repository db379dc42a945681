"""The forms of the names that descriptions hold: C++ names, operators, libraries.

Whether a name exists is not known here: the catalogue knows operators, the linker C++ names.
"""

from __future__ import annotations

import re

IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
"""A C++ identifier."""

SYMBOL = re.compile(r"[A-Za-z_]\w*(::[A-Za-z_]\w*)*", re.ASCII)
"""A C++ name with its namespaces."""

LIBRARY = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)
"""A kernel library's name, which generated code quotes in comments."""
