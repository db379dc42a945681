"""Objects of an installed ``opsmith-runtime``: which builds link them, and which compile their own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from opsmith.base.cache_folder import cache_root
from opsmith.build import ready_built
from opsmith.build.backend import Installed, library_of
from opsmith.build.csrc import CSRC, INCLUDE_DIRS
from opsmith.build.generated import generated_for
from opsmith.build.objects import Object, Objects
from opsmith.build.shared_library import SharedLibrary
from opsmith.build.stored import seal
from opsmith.build.toolchain import Compiler, find_compiler, find_torch
from opsmith.build.units import CALLS, generated_unit, single
from opsmith.plan import OpenedBackend

COMPILER = find_compiler(cache_root())
LIBRARY = SharedLibrary(
    "note",
    (),
    INCLUDE_DIRS,
    torch=find_torch(),
    units=(single(CSRC / "opsmith" / "compiled_for.cpp", CALLS),),
)


def object_of(
    cache: Path, library: SharedLibrary = LIBRARY, compiler: Compiler = COMPILER
) -> Object:
    (found,) = Objects(compiler, cache).of(library)
    return found


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The object of ``LIBRARY`` in a distribution that is installed."""
    package = tmp_path / "site" / ready_built.MODULE
    path = package / ready_built.FOLDER / object_of(tmp_path / "cache").name
    path.parent.mkdir(parents=True)
    (package / "__init__.py").touch()
    path.write_bytes(b"an object")
    copy = Path(shutil.copyfile(path, tmp_path / "copy"))
    seal(path, copy)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    ready_built._folder.cache_clear()
    yield path
    monkeypatch.undo()
    ready_built._folder.cache_clear()


def test_an_installed_object_is_linked(installed: Path, tmp_path: Path) -> None:
    assert object_of(tmp_path / "cache").path == installed


def test_another_version_of_the_compiler_links_it_too(installed: Path, tmp_path: Path) -> None:
    other = replace(COMPILER, version="g++ (Debian) 99.1", path=Path("/usr/bin/g++-99"))
    assert object_of(tmp_path / "cache", compiler=other).path == installed


@pytest.mark.parametrize("option", ["-march=native", "-fsanitize=address"])
def test_other_options_compile_their_own(installed: Path, tmp_path: Path, option: str) -> None:
    other = replace(COMPILER, command=(*COMPILER.command, option))
    assert object_of(tmp_path / "cache", compiler=other).path.is_relative_to(tmp_path / "cache")


@pytest.mark.parametrize("version", ["2.99.0", "2.13.0a0+git1234"])
def test_another_torch_compiles_its_own(installed: Path, tmp_path: Path, version: str) -> None:
    other = replace(LIBRARY, torch=replace(find_torch(), version=version))
    assert object_of(tmp_path / "cache", other).path.is_relative_to(tmp_path / "cache")


def test_a_damaged_object_is_compiled_anew(installed: Path, tmp_path: Path) -> None:
    installed.write_bytes(b"an objec")
    assert object_of(tmp_path / "cache").path.is_relative_to(tmp_path / "cache")


def registrations(folder: Path, name: str, libraries: str) -> set[str]:
    """The names of the objects of what is generated for a backend on devices that the host cannot address."""
    folder.mkdir(exist_ok=True)
    (folder / "driver.so").touch()
    (folder / "kernels.cpp").touch()
    (folder / "kernels.yaml").write_text(
        "library: own\nsources: [kernels.cpp]\nkernels: [{op: relu.out, kernel_name: own::relu_out}]\n"
    )
    (folder / "backend.yaml").write_text(
        f"backend: {name}\ndriver: {{library: driver.so, host_window: off}}\n"
        f"libraries: [{libraries}]\nfallback: cpu\n"
    )
    cache = folder.parent / "cache"
    opened = OpenedBackend(folder / "backend.yaml", cache)
    generated = generated_for(opened.plan, cache)
    library = library_of(opened.outline, generated, Installed(find_torch(), COMPILER), COMPILER)
    units = tuple(map(generated_unit, library.generated))
    only = replace(library, generated=(), units=units, lean=())
    return {each.name for each in Objects(COMPILER, cache).of(only)}


def test_backends_share_the_registrations_in_which_no_kernel_of_their_own_stands(
    tmp_path: Path,
) -> None:
    shipped = registrations(tmp_path / "one", "one", "random, portable")
    assert len(shipped) > 60
    assert registrations(tmp_path / "two", "two", "random, portable") == shipped
    own = registrations(tmp_path / "three", "three", "kernels.yaml, random, portable")
    # The file with relu, and the one that says what falls back.
    assert len(own - shipped) <= 2
