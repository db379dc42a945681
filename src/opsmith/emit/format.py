"""clang-format for emitted C++, in the project's own style.

The binary comes from PyPI's ``clang-format``, so that everyone's generated code is byte-identical.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from opsmith.errors import BuildError

# The same style as .clang-format, which an installed package does not have.
_STYLE = (
    "{BasedOnStyle: Google, ColumnLimit: 110, AllowShortFunctionsOnASingleLine: Inline, "
    "DerivePointerAlignment: false, PointerAlignment: Left, SortIncludes: Never, "
    "IncludeBlocks: Preserve}"
)


def formatted(text: str) -> str:
    """``text``, a C++ file, in the project's style.

    Raises :class:`BuildError` when clang-format is missing or fails.
    """
    import clang_format

    binary = Path(clang_format.__file__).parent / "data" / "bin" / "clang-format"
    try:
        return subprocess.run(
            [binary, f"--style={_STYLE}"], input=text, capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise BuildError(
            f"clang-format failed on generated code: {error}",
            remedy="pip install --force-reinstall clang-format",
        ) from None
