"""A start finds what an earlier one has found, until a file or the environment says otherwise."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from command import imported_by
from opsmith.build.backend import build_backend
from opsmith.build.inputs import watched_paths
from opsmith.build.own_options import _SETTINGS
from opsmith.description import Rng, find_backend, has_old_names, read_backend
from opsmith.description.built import BuiltBackend, note_unchanged, unchanged_backend
from opsmith.description.built.unchanged import VARIABLES
from opsmith.errors import Location
from opsmith.runtime.records import trace
from opsmith.runtime.records.fallbacks import REPORT_VARIABLE

LATER = 10  # seconds after which a file counts as one that has not changed lately


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BuiltBackend:
    """Libraries, which lie in a cache, of a description in the folder ``chip``."""
    cache, folder = tmp_path / "cache", tmp_path / "chip"
    for each in (cache, folder):
        each.mkdir()
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(cache))
    for name in ("libchip.so", "libdriver.so"):
        (cache / name).write_bytes(b"\x7fELF")
    (folder / "backend.yaml").write_text("backend: chip\n")
    (folder / "kernels.cpp").write_text("int f();\n")
    place = Location(folder / "backend.yaml", 2, 1)
    return BuiltBackend(
        "chip",
        cache / "libchip.so",
        cache / "libdriver.so",
        cache / "generated",
        True,
        Rng.CPU,
        place,
        cache,
    )


def noted(built: BuiltBackend, since: float) -> BuiltBackend | None:
    """The libraries that a start finds after one that has begun at ``since`` and found ``built``."""
    folder = built.driver_location.path.parent
    watched = [folder, *folder.iterdir(), built.library, built.driver]
    description = folder / "backend.yaml"
    note_unchanged(
        description, built, watched, trusted=[built.library, built.driver], used=[], since=since
    )
    return unchanged_backend(description)


def changed_kernel(built: BuiltBackend) -> None:
    kernels = built.driver_location.path.with_name("kernels.cpp")
    kernels.write_text(kernels.read_text().replace("f", "g"))  # of the same size


def added_header(built: BuiltBackend) -> None:
    built.driver_location.path.with_name("kernels.h").touch()


def altered_library(built: BuiltBackend) -> None:
    built.library.write_bytes(b"\x7fELG")


def removed_driver(built: BuiltBackend) -> None:
    built.driver.unlink()


def library_for_all_to_write(built: BuiltBackend) -> None:
    built.library.chmod(0o777)


def test_what_was_found_is_found_again(built: BuiltBackend) -> None:
    assert noted(built, time.time() + LATER) == built


@pytest.mark.parametrize(
    "change",
    [changed_kernel, added_header, altered_library, removed_driver, library_for_all_to_write],
)
def test_a_change_is_seen(built: BuiltBackend, change: Callable[[BuiltBackend], None]) -> None:
    noted(built, time.time() + LATER)
    change(built)
    assert unchanged_backend(built.driver_location.path) is None


@pytest.mark.parametrize("variable", [*_SETTINGS, "CXX", "PATH", "OPSMITH_HOST_WINDOW"])
def test_the_environment_is_seen(
    built: BuiltBackend, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert variable in VARIABLES or variable.startswith("OPSMITH_")
    noted(built, time.time() + LATER)
    monkeypatch.setenv(variable, "other")
    assert unchanged_backend(built.driver_location.path) is None


def test_where_a_report_goes_changes_nothing(
    built: BuiltBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted(built, time.time() + LATER)
    monkeypatch.setenv(REPORT_VARIABLE, "elsewhere")
    monkeypatch.setenv(trace.VARIABLE, "elsewhere")
    assert unchanged_backend(built.driver_location.path) == built


def test_a_file_that_has_just_changed_may_change_unseen(built: BuiltBackend) -> None:
    assert noted(built, time.time()) is None


def test_a_note_that_was_altered_is_not_believed(built: BuiltBackend) -> None:
    noted(built, time.time() + LATER)
    (note,) = (built.cache / "starts").iterdir()
    note.write_bytes(note.read_bytes().replace(b"libchip.so", b"libevil.so"))
    assert unchanged_backend(built.driver_location.path) is None


def test_a_description_that_reaches_out_of_its_folder_is_read_each_time(
    describe: Callable[..., Path], tmp_path: Path
) -> None:
    description = describe("- {op: add.out, kernel_name: f}")
    watched = watched_paths(read_backend(description, None))
    assert watched is not None
    assert {description, description.parent} <= watched
    outside = tmp_path / "outside"
    outside.mkdir()
    (description.parent / "link").symlink_to(outside)
    assert watched_paths(read_backend(description, None)) is None


def test_a_description_with_an_old_name_is_read_each_time(describe: Callable[..., Path]) -> None:
    """Each process warns of it."""
    description = describe()
    read_backend(description, None)
    assert not has_old_names(description)
    description.write_text("backend: chip\ndriver: sim\nlibraries: []\nfallback: {whole: []}\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        read_backend(description, None)
    assert has_old_names(description)


@pytest.mark.compiles
def test_a_load_imports_nothing_that_builds() -> None:
    build_backend(find_backend("sim"))
    # The first of them takes what may just have been built, which may change unseen.
    *_, imported = [imported_by("-c", 'import opsmith; opsmith.load("sim")') for _ in range(3)]
    assert imported & {"opsmith.build.backend", "opsmith.plan.model", "yaml"} == set()
