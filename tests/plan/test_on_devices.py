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


def test_a_kernel_with_fewer_dtypes_on_devices(tmp_path: Path) -> None:
    (tmp_path / "chip.yaml").write_text(
        "library: chip\nabi: executorch\nsources: [kernels.cpp]\nkernels:\n"
        "  - {op: abs.out, kernel_name: chip::abs_out, dtypes: {self: [Float, ComplexFloat]}, "
        "on_devices: [Float]}\n"
        "  - {op: neg.out, kernel_name: chip::neg_out, dtypes: [Float, Half]}\n"
    )
    (tmp_path / "kernels.cpp").write_text("")
    path = tmp_path / "backend.yaml"
    path.write_text("backend: apart\ndriver: sim\nlibraries: [chip.yaml]\n")
    opened = OpenedBackend(path, None)
    (library,) = opened.description.executorch_libraries
    assert [kernel.dtypes for kernel in library.kernels] == [
        (("self", ("Float", "ComplexFloat")),),
        (("", ("Float", "Half")),),
    ]
    library = opened.description.on_devices.libraries[0]
    assert [kernel.dtypes for kernel in library.kernels] == [
        (("", ("Float",)),),
        (("", ("Float", "Half")),),
    ]
