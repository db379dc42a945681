"""A library that devices do not have: its operators are in no plan, and ExecuTorch has them."""

from __future__ import annotations

from pathlib import Path

from opsmith.plan import OpenedBackend


def test_a_library_for_executorch_alone(tmp_path: Path) -> None:
    path = tmp_path / "backend.yaml"
    path.write_text("backend: apart\ndriver: sim\nlibraries: [dim_order]\n")
    opened = OpenedBackend(path, None)
    assert [library.name for library in opened.description.executorch_libraries] == ["dim_order"]
    assert opened.plan.custom == ()
    assert "dim_order" not in {entry.library for entry in opened.plan.entries}
