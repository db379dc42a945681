"""Recorded facts: each known release has them, and another one is planned with those of the nearest."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from opsmith.description import find_backend, other_releases, read_backend
from opsmith.errors import OperatorUnknown
from opsmith.plan import NotServed, Route, resolve
from opsmith.schema import (
    KNOWN_RELEASES,
    Catalogue,
    RecordedFactsWarning,
    read_host_readers,
    read_parts,
    read_stubs,
    recorded,
    torch_release,
)
from opsmith.schema import catalogue as catalogue_module

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import recorded_files

# opsmith.schema has a function of that name.
torch_release_module = sys.modules["opsmith.schema.installed_torch"]

Describe = Callable[..., Path]
Install = Callable[[str], None]

# The releases of which facts are recorded; of the others a plan warns.
_FACTS = {
    "dispatcher": KNOWN_RELEASES,
    "host_readers": ((2, 13), (2, 15)),
    "operators": KNOWN_RELEASES,
    "parts": ((2, 13), (2, 14), (2, 15)),
    "stubs": ((2, 13), (2, 14), (2, 15)),
}
_READERS = (read_stubs, read_parts, read_host_readers, catalogue_module._dispatcher)


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Called with a version of torch, which recorded facts are then of."""

    def clear() -> None:
        for reader in _READERS:
            reader.cache_clear()
        recorded._warn_of_unrecorded.cache_clear()

    def install(version: str) -> None:
        monkeypatch.setattr(torch_release_module, "torch_version", lambda: version)
        clear()

    yield install
    monkeypatch.undo()
    clear()


def catalogue_of(release: tuple[int, int], catalogue: Catalogue) -> Catalogue:
    """The operators of ``catalogue`` that ``release`` has too."""
    names = recorded.read_facts("operators", release)["operators"]
    operators = {name: each for name, each in catalogue.operators.items() if name in names}
    groups = tuple(
        replace(
            group,
            **{kind.name.lower(): None for kind, name in group.members() if name not in names},
        )
        for group in catalogue.groups
    )
    return Catalogue(
        f"{recorded.shown(release)}.0",
        operators,
        groups,
        {name: group for group in groups for _, name in group.members()},
    )


# ---- the files


@pytest.mark.parametrize("name", _FACTS)
def test_the_recorded_facts_are_of_their_releases(name: str) -> None:
    assert recorded.recorded_releases(name) == list(_FACTS[name])
    for release in _FACTS[name]:
        assert recorded.read_facts(name, release)["torch"] == recorded.shown(release)


@pytest.mark.parametrize("name", _FACTS)
def test_files_hold_what_differs_and_nothing_else(name: str) -> None:
    for release in _FACTS[name]:
        path = recorded.files_of(name, release)[-1]
        text = path.read_text(encoding="utf-8")
        header = "".join(line for line in text.splitlines(True) if line.startswith("#"))
        facts = recorded.read_facts(name, release)
        assert recorded_files.document(name, header, facts, release) == text


@pytest.mark.parametrize("release", KNOWN_RELEASES)
def test_facts_are_of_operators_that_the_release_has(release: tuple[int, int]) -> None:
    facts = {
        name: recorded.read_facts(name, release)
        for name, releases in _FACTS.items()
        if release in releases
    }
    operators = facts["operators"]["operators"].keys()
    dispatcher = facts["dispatcher"]
    named = {*dispatcher["unlisted"], *dispatcher["without_meta"]}
    if parts := facts.get("parts"):
        named |= {*parts["parts"], *parts["unfit"]}
        named |= {part for ways in parts["parts"].values() for way in ways for part in way}
    if readers := facts.get("host_readers"):
        named |= {*readers["readers"], *readers["differentiated"]}
    if stubs := facts.get("stubs"):
        named |= {*stubs["callers"], *stubs["unfit"]}
        for caller in (*stubs["callers"].values(), *stubs["unfit"].values()):
            assert not set(caller["stubs"]) - stubs["stubs"].keys()
    assert not named - operators


def test_the_operators_are_those_of_the_installed_torch(catalogue: Catalogue) -> None:
    facts = recorded.read_facts("operators", torch_release())
    assert facts["operators"].keys() == catalogue.operators.keys()


def test_differences_add_change_and_remove_entries() -> None:
    whole = {
        "torch": "2.13",
        "some": {"a": 1, "b": {"c": [1]}, "d": 3},
        "list": ["x"],
        "same": {"e": 1},
    }
    other = {
        "torch": "2.14",
        "some": {"a": 1, "aa": 2, "b": {"c": [2]}},
        "list": ["y"],
        "same": {"e": 1},
    }
    found = recorded_files.differences(whole, other)
    assert found == {
        "torch": "2.14", "some": {"aa": 2, "b": {"c": [2]}, "d": None}, "list": ["y"],
    }  # fmt: skip
    assert recorded.patched(whole, found) == other


# ---- another torch


def test_a_release_without_facts_takes_the_nearest_ones_with_a_warning(install: Install) -> None:
    install("2.16.0+cpu")
    with pytest.warns(RecordedFactsWarning) as warned:
        assert (read_stubs().torch, read_parts().torch) == ("2.15", "2.15")
        assert read_host_readers().torch == "2.15"
    (once,) = warned
    assert str(once.message) == (
        "opsmith has no facts of torch 2.16 on this, and plans with those of the release in brackets: "
        "which operators have no meta kernel (2.15); "
        "which operators DispatchStubs serve (2.15); "
        "what PyTorch decomposes composites into (2.15); "
        "which composites read host memory (2.15)\n"
        "  remedy: record them in opsmith's source tree: python tools/record_release"
    )


def test_a_release_older_than_all_takes_the_oldest_ones(install: Install) -> None:
    install("2.8.1")
    with pytest.warns(RecordedFactsWarning, match=r"of torch 2\.8 .* no meta kernel \(2\.9\)"):
        assert catalogue_module._dispatcher().torch == "2.9"


@pytest.mark.parametrize("name", ["sim", "opencl"])
@pytest.mark.parametrize("release", KNOWN_RELEASES)
def test_backends_are_planned_on_each_release(
    release: tuple[int, int], name: str, install: Install, catalogue: Catalogue
) -> None:
    install(f"{recorded.shown(release)}.0")
    of_release = catalogue_of(release, catalogue)
    plan = resolve(read_backend(find_backend(name), of_release), of_release)
    routes = Counter(entry.route for entry in plan.entries)
    assert routes[Route.KERNEL] + routes[Route.STRUCTURED] > 300
    assert routes[Route.MISSING] == 0
    assert [item for item in plan.not_served if "lacks the operator" in item.why] == []


# ---- operators of other releases

_OF_2_13 = """
    - {op: _foreach_mm, kernel_name: chip::mm}
    - {op: relu, kernel_name: chip::relu}
"""


@pytest.fixture
def on_2_12(install: Install, catalogue: Catalogue) -> Catalogue:
    install("2.12.1")
    return catalogue_of((2, 12), catalogue)


def test_opsmiths_own_manifest_leaves_out_what_the_release_lacks(
    describe: Describe, on_2_12: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = describe(_OF_2_13)
    monkeypatch.setattr(other_releases, "_PACKAGE", path.parent)
    plan = resolve(read_backend(path, on_2_12), on_2_12)
    assert plan.entry("relu").route is Route.KERNEL
    assert plan.not_served == (
        NotServed(
            "_foreach_mm",
            f"{path.parent}/kernels.yaml:5:6",
            "chiplib",
            "torch 2.12.0 lacks the operator; torch 2.13 and later have it",
        ),
    )


def test_anybody_elses_manifest_is_refused_with_the_releases(
    describe: Describe, on_2_12: Catalogue
) -> None:
    path = describe(_OF_2_13)
    with pytest.raises(OperatorUnknown) as caught:
        read_backend(path, on_2_12)
    assert str(caught.value) == (
        f"{path.parent}/kernels.yaml:5:6: torch 2.12.0 has no operator `_foreach_mm`; torch 2.13 and later "
        "have it\n"
        "  remedy: remove it here, or install a torch that has it"
    )


def test_an_operator_that_is_gone_is_named_with_the_last_release(
    describe: Describe, install: Install, catalogue: Catalogue
) -> None:
    install("2.14.0")
    path = describe("- {op: cholesky.out, kernel_name: chip::cholesky}")
    with pytest.raises(OperatorUnknown, match=r"`cholesky\.out`; torch 2\.13 and earlier have it"):
        read_backend(path, catalogue_of((2, 14), catalogue))
