"""pytest plugin: OpInfo takes samples as outside of a test of unittest, which none of ours is.

With each sample it would look for one in all frames of the stack, for a twentieth of a second.
"""

from __future__ import annotations

import sys


def pytest_collection_finish() -> None:
    """The modules of tests, and so OpInfo where they need it, are imported."""
    for name in ("common_utils", "opinfo.core"):
        if module := sys.modules.get(f"torch.testing._internal.{name}"):
            vars(module)["extract_test_fn"] = lambda: None
