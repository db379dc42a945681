"""Modules that commands and imports leave alone, so that they start at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from command import imported_by
from opsmith.base.cache_folder import cache_root
from opsmith.cli.deferred import Listed
from opsmith.cli.executorch import COMMANDS as EXECUTORCH_COMMANDS
from opsmith.cli.main import COMMANDS
from opsmith.plan import plan_backend
from opsmith.schema import read_catalogue

# Each takes half a second or more.
SLOW = {
    "torch",
    "torchgen.model",
    "executorch",
    "sklearn",
    "scipy",
    "pandas",
    "matplotlib",
    "pytest",
}


@pytest.fixture(scope="module", autouse=True)
def planned() -> None:
    """The second start is what counts: the operators and the plan are in the cache."""
    read_catalogue()
    plan_backend("sim", cache_root())


@pytest.mark.parametrize(
    "arguments",
    [
        "--help",
        "plan",
        "plan --help",
        "plan --json",
        "explain add_.Tensor --no-table",
        "ops --help",
        "stubs abs",
        "executorch --help",
        "executorch select --help",
        "demo --help",
    ],
)
def test_a_command_imports_nothing_slow(arguments: str) -> None:
    imported = imported_by("-m", "opsmith", *arguments.split())
    assert "opsmith.cli.main" in imported
    assert imported & SLOW == set()


def test_planning_anew_parses_no_aten(describe: Callable[..., Path]) -> None:
    # The one operator's schema is enough: all of them take a second.
    path = describe("- {op: add.out, kernel_name: f}\n- {op: relu.out, kernel_name: g}")
    plan = f"from opsmith.plan import plan_backend; plan_backend({str(path)!r}, None)"
    imported = imported_by("-c", plan)
    assert "opsmith.plan.resolver" in imported
    assert imported & {"torch", "torchgen.gen"} == set()


def test_help_imports_no_command() -> None:
    modules = {each.target.partition(":")[0] for each in COMMANDS}
    assert imported_by("-m", "opsmith", "--help") & modules == set()
    # The module of one of them is the group.
    modules = {each.target.partition(":")[0] for each in EXECUTORCH_COMMANDS}
    assert imported_by("-m", "opsmith", "executorch", "--help") & modules == set()


@pytest.mark.parametrize("listed", [*COMMANDS, *EXECUTORCH_COMMANDS], ids=lambda each: each.target)
def test_a_command_is_listed_with_what_its_own_help_says(listed: Listed) -> None:
    first, _, _ = (listed.command().help or "").partition("\n\n")
    assert " ".join(first.split()) == listed.help


def test_the_entry_points_of_torch_and_pytest_import_no_more_than_themselves() -> None:
    # Every `import torch`, and every start of pytest, looks for them.
    assert {each for each in imported_by("-c", AUTOLOAD) if each.startswith("opsmith.")} == {
        "opsmith.base",
        "opsmith.base.collector",
        "opsmith.errors",
        "opsmith.base.on_demand",
        "opsmith.runtime",
        "opsmith.runtime.autoload",
        "opsmith.runtime.records",
        "opsmith.runtime.records.trace",
    }
    assert {each for each in imported_by("-c", PLUGIN) if each.startswith("opsmith.")} == {
        "opsmith.base",
        "opsmith.base.collector",
        "opsmith.errors",
        "opsmith.base.on_demand",
        "opsmith.runtime",
        "opsmith.runtime.pytest_plugin",
    }


AUTOLOAD = "from opsmith.runtime.autoload import autoload; autoload()"
PLUGIN = "import opsmith.runtime.pytest_plugin"


def test_the_demo_reads_its_images_without_scikit_learn() -> None:
    imported = imported_by("-c", "from opsmith.cli.demonstration.training import digits; digits()")
    assert "torch" in imported
    assert imported & {"sklearn", "scipy", "pandas", "matplotlib"} == set()
