"""Inside pytest, as it runs TorchCTS: leaves out work that is done for each test anew, and for nothing here.

Without it `test_opinfo_forward` is collected in half a minute instead of in half an hour.
Whatever another TorchCTS or torch has under another name stays as it is.
"""

from __future__ import annotations

import importlib
from contextlib import suppress
from pathlib import Path
from typing import Any

from opsmith.schema.torch_names import module_of


def _replace(module: str, name: str, new: Any) -> None:
    """Puts ``new(old)`` in the place of a function, where there is one."""
    with suppress(ImportError, AttributeError):
        of = importlib.import_module(module)
        setattr(of, name, new(getattr(of, name)))


def _once_for_all(versions: Any) -> Any:
    """TorchCTS gathers the versions of torch that it knows from its records of all operators."""
    known: dict[int, tuple[Any, Any]] = {}  # by the identity of the records, which are kept with it

    def gathered(metadata: Any = None) -> Any:
        if id(metadata) not in known:
            known[id(metadata)] = metadata, versions(metadata)
        return known[id(metadata)][1]

    return gathered


def _no_case(_: Any) -> Any:
    """OpInfo looks for a unittest.TestCase on the stack, and reads the sources of all that is there.

    Tests of TorchCTS are functions.
    """
    return lambda: None


def _written_in_haste(_: Any) -> Any:
    """TorchCTS writes all its results after each test, and waits until they are on the disk."""

    def write(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")

    return write


_replace("torchcts.op_metadata", "_validation_metadata", _once_for_all)
for each in ("extract_test_fn", "extract_test_fn_of_opinfo"):
    _replace(module_of(each), "extract_test_fn", _no_case)
_replace("torchcts.core.result_artifacts", "_atomic_write_text", _written_in_haste)
