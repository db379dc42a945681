"""Modules that define operators, and load ExecuTorch's kernels for them, beside a library's own."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from opsmith.build.executorch import find_executorch
from opsmith.description import ExternalNamespace
from opsmith.errors import Location
from opsmith.runtime.defining_modules import import_defining_modules


@pytest.mark.parametrize(
    ("registered", "beside", "is_imported"),
    [
        (["wheel::scale.out"], "libwheel.so", False),
        (["wheel::scale.out"], "wheel.txt", True),
        (["aten::add.out"], "libwheel.so", True),
    ],
)
def test_kernels_are_not_registered_again(
    registered: list[str],
    beside: str,
    is_imported: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package = tmp_path / "wheel_operators"
    package.mkdir()
    for file in ("__init__.py", "defined.py", beside):
        (package / file).touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    runtime = SimpleNamespace(_get_operator_names=lambda: registered)
    importlib.import_module("executorch")
    monkeypatch.setitem(sys.modules, find_executorch().extension_module, runtime)
    for module in ("wheel_operators", "wheel_operators.defined"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    where = Location(tmp_path / "kernels.yaml", 1)
    import_defining_modules([ExternalNamespace("wheel", ("wheel_operators.defined",), where)])
    assert ("wheel_operators.defined" in sys.modules) == is_imported
