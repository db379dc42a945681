"""FlagGems' table as a library: what fits ATen's schemas is taken, and the rest listed with its reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from opsmith.description import read_backend
from opsmith.description.formats.flag_gems import read_flag_gems
from opsmith.errors import FileMissing, FormatUnknown
from opsmith.schema import Catalogue

TABLE = """\
_FULL_CONFIG = (
    ("abs", abs),
    ("add.Tensor", add),
    ("add.Tensor", add_again),
    ("copy_", copy_),
    ("conv2d", conv2d),
    ("no_such_operator", abs),
    ("mm", mm),
    ("bmm.out", bmm_out),
    ("cumsum", cumsum),
    ("exp", abs, lambda: version.parse(torch.__version__) >= version.parse("2.4")),
    ("exp2", abs, lambda: version.parse(torch.__version__) >= version.parse("9.0")),
)
"""
FUNCTIONS = """\
def abs(A): ...
def add(A, B, *, alpha=1): ...
def mm(a): ...
def bmm_out(a, b): ...
def cumsum(a, dim, axis, *, dtype=None): ...
"""


def package(folder: Path, table: str = TABLE) -> Path:
    (folder / "flag_gems" / "ops").mkdir(parents=True)
    init = folder / "flag_gems" / "__init__.py"
    init.write_text(table)
    (folder / "flag_gems" / "ops" / "__init__.py").write_text(
        "from flag_gems.ops.all import abs, add, mm, bmm_out, cumsum\n"
    )
    (folder / "flag_gems" / "ops" / "all.py").write_text(FUNCTIONS)
    return init


def test_the_rows_of_the_table(tmp_path: Path, catalogue: Catalogue) -> None:
    init = package(tmp_path)
    library = read_flag_gems(init, catalogue)
    assert {each.operator: each.symbol for each in library.kernels} == {
        "abs": "flag_gems:abs",
        "add.Tensor": "flag_gems:add",
        "exp": "flag_gems:abs",
    }
    assert str(library.kernels[1].location) == f"{init}:3"
    assert {(each.name, each.reason) for each in library.unserved} == {
        ("add.Tensor", f"FlagGems registers it twice: the first is `flag_gems:add` ({init}:3)"),
        ("copy_", "it copies between devices too, which opsmith's runtime does by the driver"),
        ("conv2d", "PyTorch decomposes it, which is what makes it differentiable"),
        ("no_such_operator", f"torch {catalogue.torch} lacks the operator"),
        ("mm", "its function takes 1 arguments, and the schema has 2"),
        ("bmm.out", "its function has no parameter `out`, which the schema has"),
        ("cumsum", "its function needs `axis`, which the schema lacks"),
        ("exp2", f"FlagGems has it for other releases of torch than {catalogue.torch}"),
    }


def test_a_release_without_the_table(tmp_path: Path, catalogue: Catalogue) -> None:
    init = package(tmp_path, "OPERATORS = ()\n")
    with pytest.raises(FormatUnknown) as error:
        read_flag_gems(init, catalogue)
    assert str(error.value) == (
        f"{init}: this release of FlagGems has no table `_FULL_CONFIG` of operators\n"
        "  remedy: install one that opsmith knows: pip install --no-deps 'flag-gems>=5,<6'"
    )


def test_a_backend_names_it(
    tmp_path: Path, catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    description = tmp_path / "backend.yaml"
    description.write_text("backend: chip\ndriver: sim\nlibraries: [flag_gems, portable]\n")
    with monkeypatch.context() as missing, pytest.raises(FileMissing) as error:
        missing.setattr("importlib.util.find_spec", lambda name: None)
        read_backend(description, catalogue)
    assert str(error.value) == (
        f"{description}:3:13: FlagGems is not installed, whose operators the library `flag_gems` has\n"
        "  remedy: pip install triton sqlalchemy && pip install --no-deps 'flag-gems>=5,<6'"
    )
    package(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    backend = read_backend(description, catalogue)
    assert [each.name for each in backend.libraries] == ["flag_gems", "portable", "runtime"]
    assert backend.calls_python
    assert not backend.compiled.calls_python
