"""Names of PyTorch's own: where opsmith reaches them, and what becomes of one that is missing."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import opsmith
from opsmith.errors import TorchNameMissing
from opsmith.schema import torch_names
from opsmith.schema.torch_names import (
    TORCH_NAMES,
    Feature,
    TorchName,
    found,
    missing_features,
    set_up,
)

PACKAGE = Path(opsmith.__file__).parent
ROOT = PACKAGE.parents[1]
TORCH = ("torch", "torchgen")
PRIVATE_MODULE = re.compile(r"(?:torch|torchgen)(?:\.\w+)*\._[a-z]\w*(?:\.\w+)*")


def sources() -> list[Path]:
    """Every module of opsmith but the table itself, and the text of projects that `opsmith new` writes."""
    others = (PACKAGE / "schema" / "torch_names", PACKAGE / "vendor" / "scaffold" / "templates")
    return [
        path
        for path in sorted(PACKAGE.rglob("*.py"))
        if not any(path.is_relative_to(other) for other in others)
    ]


def is_private(name: str) -> bool:
    """Whether PyTorch promises nothing of ``name``; operators are a matter of the operator registry."""
    root, *parts = name.split(".")
    if parts[:1] == ["ops"]:
        return False
    return root == "torchgen" or any(
        part.startswith("_") and not part.endswith("__") for part in parts
    )


def reached(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The names of torch and torchgen that a module imports, reaches, or names in a string, with the line."""
    imported = {"torch": "torch"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, each.name) for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for each in node.names:
                name = f"{node.module}.{each.name}"
                imported[each.asname or each.name] = name
                yield node.lineno, name
        elif isinstance(node, ast.Constant) and PRIVATE_MODULE.fullmatch(str(node.value)):
            yield node.lineno, str(node.value)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            first, *parts = ast.unparse(node).split(".")
            if first in imported and imported[first].startswith("torch"):
                yield node.lineno, ".".join([imported[first], *parts])


def test_no_other_module_reaches_a_private_name_of_torch() -> None:
    wrong = [
        f"{source.relative_to(PACKAGE)}:{line}: {name}"
        for source in sources()
        for line, name in reached(ast.parse(source.read_text(encoding="utf-8")))
        if name.split(".")[0] in TORCH and is_private(name)
    ]
    assert wrong == []


def test_a_name_that_a_release_lacks_is_looked_up_where_it_is_used() -> None:
    """At the top of a module it would take away whatever else imports that module."""
    lacking = {
        each.name
        for each in TORCH_NAMES.values()
        if each.until is not None or (each.since is not None and not each.before)
    }
    wrong = [
        f"{source.relative_to(PACKAGE)}:{node.lineno}: {each.name}"
        for source in sources()
        for node in ast.parse(source.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ImportFrom) and node.module == "opsmith.schema.torch_names"
        for each in node.names
        if each.name in lacking
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("from torch._inductor import config", "torch._inductor.config"),
        ("import torchgen.model", "torchgen.model"),
        ("import torch\ntorch._C._set_conj(x, True)", "torch._C._set_conj"),
        ("from torch import storage\nstorage._LegacyStorage", "torch.storage._LegacyStorage"),
        ("when_imported('torch._dynamo.trace_rules', f)", "torch._dynamo.trace_rules"),
    ],
)
def test_each_way_to_reach_one_is_seen(text: str, name: str) -> None:
    assert name in {each for _, each in reached(ast.parse(text)) if is_private(each)}


def test_the_types_are_those_of_the_table() -> None:
    """The block that mypy reads imports each name of the table from where it is looked up."""
    tree = ast.parse(
        (PACKAGE / "schema" / "torch_names" / "__init__.py").read_text(encoding="utf-8")
    )
    block = next(
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    typed = {
        (each.asname or each.name, node.module, each.name)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for each in node.names
    }
    declared = {ast.unparse(node.target) for node in block.body if isinstance(node, ast.AnnAssign)}
    names = [each for each in TORCH_NAMES.values() if "." not in each.attribute]
    assert typed == {
        (each.name, each.module, each.attribute) for each in names if each.name not in declared
    }
    assert declared <= {each.name for each in names}


def test_the_table_agrees_with_the_records_of_all_releases() -> None:
    checked = subprocess.run(
        [sys.executable, ROOT / "tools" / "check_torch", "--recorded"],
        capture_output=True,
        text=True,
    )
    assert (checked.stdout, checked.returncode) == ("", 0), checked.stderr


# ---- names that are missing


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A module of PyTorch's, ``torch._fake``, of which the table has ``old_name`` and ``gone``."""
    module = types.ModuleType("torch._fake")
    monkeypatch.setitem(sys.modules, "torch._fake", module)
    gone = TorchName("gone", "torch._fake", "gone", Feature.GRAPHS, since=(2, 99))
    for each in (gone, replace(gone, name="new_name", attribute="new_name", before="old_name")):
        monkeypatch.setitem(TORCH_NAMES, each.name, each)  # type: ignore[arg-type]
    monkeypatch.setattr(found.importlib.metadata, "version", lambda _: "2.13.7")
    missing_features_before = dict(missing_features)
    yield module  # type: ignore[misc]
    missing_features.clear()
    missing_features.update(missing_features_before)


def test_a_missing_name_says_what_is_lost(fake: types.ModuleType) -> None:
    with pytest.raises(TorchNameMissing) as caught:
        torch_names.find("gone")
    assert str(caught.value) == (
        "torch 2.13.7 has no torch._fake.gone: `torch.<device>` records no graphs, and "
        "`mode=\"reduce-overhead\"` replays none\n  remedy: pip install 'torch>=2.99'"
    )
    with pytest.raises(TorchNameMissing):
        exec("from opsmith.schema.torch_names import gone")


def test_the_name_of_before_stands_in(fake: types.ModuleType) -> None:
    fake.old_name = 3  # type: ignore[attr-defined]
    assert torch_names.find("new_name") == 3
    fake.new_name = 4  # type: ignore[attr-defined]
    assert torch_names.find("new_name") == 4


def test_a_set_up_goes_on_without_a_feature(fake: types.ModuleType) -> None:
    done: list[int] = []
    set_up(Feature.GRAPHS, torch_names.find, "gone")
    set_up(Feature.DYNAMO, done.append, 1)
    assert done == [1]
    assert missing_features[Feature.GRAPHS].message.startswith(
        "torch 2.13.7 has no torch._fake.gone"
    )
    assert Feature.DYNAMO not in missing_features
    # It would keep alive whatever the frames hold that came upon the missing name.
    error = missing_features[Feature.GRAPHS]
    assert error.__traceback__ is error.__context__ is error.__cause__ is None


def test_nothing_loads_without_what_loading_needs(fake: types.ModuleType) -> None:
    with pytest.raises(TorchNameMissing):
        set_up(Feature.LOADING, torch_names.find, "gone")


def test_a_failing_import_of_another_package_is_not_a_missing_name(
    fake: types.ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "needy.py").write_text("import a_package_that_is_not_there")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(TORCH_NAMES, "n", TorchName("n", "needy", "n", Feature.GRAPHS))  # type: ignore[arg-type]
    with pytest.raises(ModuleNotFoundError, match="a_package_that_is_not_there"):
        torch_names.find("n")


def test_importing_the_names_imports_no_torch() -> None:
    loaded = "'torch' in sys.modules, 'torchgen' in sys.modules"
    program = f"import sys, opsmith.schema.torch_names; print({loaded})"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert told.stdout == "False False\n", told.stderr


# ---- tools/check_torch


def write_torch(folder: Path, names: str) -> None:
    (folder / "torch" / "_inductor").mkdir(parents=True)
    (folder / "torch" / "version.py").write_text("__version__ = '2.15.1+cpu'\n")
    (folder / "torch" / "_inductor" / "utils.py").write_text(names)
    (folder / "torch" / "include" / "ATen").mkdir(parents=True)
    (folder / "torch" / "include" / "ATen" / "ATen.h").touch()


def test_the_check_says_what_is_missing_in_sources(tmp_path: Path) -> None:
    write_torch(
        tmp_path,
        "from sympy import *\n"
        "if True:\n    class IndentedBuffer: pass\n"
        "try:\n    from torch.there import get_all_devices\nexcept ImportError: pass\n"
        "def device_need_guard(device, *, more): ...\n",
    )
    checked = subprocess.run(
        [sys.executable, ROOT / "tools" / "check_torch", tmp_path], capture_output=True, text=True
    )
    lines = checked.stdout.splitlines()
    assert checked.returncode == 1, checked.stderr
    assert re.fullmatch(r"torch 2.15.1\+cpu: \d+ names, \d+ headers", lines[0])
    of_utils = [line for line in lines if " torch._inductor.utils." in line]
    assert of_utils[0].startswith(
        "note: torch._inductor.utils.device_need_guard took (device) in torch 2.14."
    )
    assert of_utils[0].endswith(", and takes (device, *, more)")
    lost = {feature: f"({feature.value})" for feature in Feature}
    assert of_utils[1:] == [
        "error: torch 2.15.1+cpu has no torch._inductor.utils.get_current_backend "
        + lost[Feature.CPP_KERNELS],
        "error: torch 2.15.1+cpu has no torch._inductor.utils.use_scatter_fallback "
        + lost[Feature.CPP_KERNELS],
        "error: torch 2.15.1+cpu has no torch._inductor.utils.get_bounds_index_expr "
        + lost[Feature.FUSED_KERNELS],
        "error: torch 2.15.1+cpu has no torch._inductor.utils.upcast_compute_type "
        + lost[Feature.FUSED_KERNELS],
    ]
    assert "error: torch 2.15.1+cpu has no header <ATen/core/GraphImplInterface.h>" in lines
    assert "error: torch 2.15.1+cpu has no header <ATen/ATen.h>" not in lines
