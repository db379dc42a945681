"""Wheels with built libraries: what is in them, that they need no compiler, and all that they refuse."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from email.parser import Parser
from pathlib import Path

import pytest

import fork_server
from command import run_opsmith
from device_project import PYPROJECT, write_folder, write_project
from opsmith.base.cache_folder import cache_root
from opsmith.build.places import places_in
from opsmith.description import read_backend
from opsmith.description.built import CarriedBuild, CarriedFile
from opsmith.errors import (
    EnvironmentUnusable,
    MetadataInvalid,
    OutputRejected,
    PackagingError,
    SourceOutside,
)
from opsmith.schema import compiled_for, requirement, torch_version
from opsmith.vendor.package import environments, fetched_torch, packaging
from opsmith.vendor.package.contents import described_files
from opsmith.vendor.package.packaging import Wanted, package
from opsmith.vendor.package.platform_tag import platform_tag
from opsmith.vendor.package.project import project_of
from refusal import refusal

SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
TORCH = compiled_for(torch_version())
BUILD = f"torch-{TORCH}-{platform.machine()}"
# Modules that a machine lacks which has opsmith and torch for running a packaged device only.
WITHOUT = (
    "opsmith.build",
    "opsmith.emit",
    "opsmith.vendor.package",
    "ninja",
    "clang_format",
    "executorch",
)
BLOCKED = f"""
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if any(name == each or name.startswith(each + ".") for each in {WITHOUT!r}):
            raise ModuleNotFoundError(f"blocked: {{name}}")
sys.meta_path.insert(0, Blocker())
"""


@dataclass(frozen=True)
class Installed:
    """A wheel, and the folder that it is installed in."""

    wheel: Path
    folder: Path

    @property
    def description(self) -> Path:
        return self.folder / "mychip" / "backend.yaml"

    @property
    def carried(self) -> Path:
        return self.folder / "mychip" / "prebuilt"

    def environment(self, **more: str) -> dict[str, str]:
        """Of a process that has the package and no compiler."""
        path = os.pathsep.join([str(self.folder), *sys.path])
        return {**os.environ, "PYTHONPATH": path, "CXX": "nowhere++", **more}

    def copied(self, folder: Path) -> Installed:
        """The same, to be damaged."""
        return replace(self, folder=Path(shutil.copytree(self.folder, folder / "installed")))

    def change(self, change: Callable[[dict[str, object]], object]) -> None:
        """Changes ``package.json``."""
        path = self.carried / "package.json"
        contents = json.loads(path.read_text())
        change(contents)
        path.write_text(json.dumps(contents))

    def load(self, **environment: str) -> subprocess.CompletedProcess[str]:
        """A process that loads it from its description."""
        script = f"import opsmith; print(opsmith.load({str(self.description)!r}).name)"
        return fork_server.run(
            [sys.executable, "-c", script], env=self.environment(**environment), timeout=300
        )

    def name(self) -> str:
        """The name of the backend that :meth:`load` loads."""
        run = self.load()
        assert run.returncode == 0, run.stderr
        return run.stdout.strip()

    def error(self, **environment: str) -> str:
        """The error of :meth:`load`, which fails."""
        run = self.load(**environment)
        assert run.returncode == 1, run.stdout
        return run.stderr[run.stderr.rindex("opsmith.errors.") :].strip()


def installed(wheel: Path, folder: Path) -> Installed:
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--quiet"),
            *("--disable-pip-version-check", "--target", folder, wheel),
        ],
        check=True,
    )
    return Installed(wheel, folder)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The description of a project that is not changed."""
    return write_project(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="module")
def device(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("packaged")
    made = package(project, Wanted(folder / "dist"))
    assert made.notes == ()
    return installed(made.wheel, folder / "installed")


# ---- what is in a wheel


def test_it_has_the_project_and_what_was_built(device: Installed) -> None:
    files = {path for path in zipfile.ZipFile(device.wheel).namelist() if "dist-info" not in path}
    assert files == {
        "mychip/__init__.py",
        "mychip/backend.yaml",
        "mychip/driver.c",
        "mychip/kernels.cpp",
        "mychip/kernels.yaml",
        "mychip/kernels_in_python.py",
        "mychip/prebuilt/package.json",
        f"mychip/prebuilt/{BUILD}/libopsmith_mychip.so",
        f"mychip/prebuilt/{BUILD}/libopsmith_mychip_driver.so",
        f"mychip/prebuilt/{BUILD}/opsmith_adapter{SUFFIX}",
        f"mychip/prebuilt/{BUILD}/plan.json",
    }


def test_its_metadata_are_the_projects_and_what_it_needs(device: Installed) -> None:
    assert device.wheel.name.startswith("mychip_torch-1.2-py3-none-manylinux_2_")
    assert device.wheel.name.endswith(f"_{platform.machine()}.whl")
    archive = zipfile.ZipFile(device.wheel)
    metadata = Parser().parsestr(archive.read("mychip_torch-1.2.dist-info/METADATA").decode())
    assert metadata.get_all("Requires-Dist") == [
        "numpy",
        "opsmith>=0.1.0,<0.2",
        requirement(TORCH),
    ]
    assert (metadata["Summary"], metadata["License-Expression"]) == ("A chip", "MIT")
    wheel = archive.read("mychip_torch-1.2.dist-info/WHEEL").decode()
    assert "Root-Is-Purelib: false" in wheel


def test_nothing_in_it_tells_where_it_was_built(device: Installed, project: Path) -> None:
    folders = (project.parent, cache_root(), Path(sys.prefix), Path.home())
    for path in sorted(device.carried.rglob("*")):
        if path.is_file():
            assert (path.name, places_in(path.read_bytes(), folders)) == (path.name, ())


def test_its_tag_says_which_glibc_it_needs(device: Installed, tmp_path: Path) -> None:
    libraries = sorted(device.carried.rglob("*.so"))
    asked = subprocess.run(
        ["readelf", "-VW", *libraries], capture_output=True, text=True, check=True
    ).stdout
    versions = {tuple(map(int, each.split("."))) for each in _glibc_versions(asked)}
    major, minor = max(versions)
    assert platform_tag(libraries).tag == f"manylinux_{major}_{minor}_{platform.machine()}"


def _glibc_versions(text: str) -> list[str]:
    import re

    return re.findall(r"Name: GLIBC_([0-9]+\.[0-9]+)", text)


def test_the_same_input_gives_the_same_bytes(
    device: Installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Elsewhere and later.
    project = write_project(tmp_path / "elsewhere")
    os.utime(project, (0, 0))
    again = package(project, Wanted(tmp_path / "dist")).wheel
    assert _digest(again) == _digest(device.wheel)


def _digest(path: Path) -> tuple[str, str]:
    return path.name, hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_folder_without_a_project_is_named_for_its_backend(tmp_path: Path) -> None:
    description = write_folder(tmp_path / "chip")
    run = run_opsmith("package", description, "-o", tmp_path / "dist", "--version", "3.1")
    assert run.returncode == 0, run.stderr
    (wheel,) = (tmp_path / "dist").iterdir()
    assert wheel.name.startswith("mychip-3.1-py3-none-")
    assert run.stdout.splitlines()[1:] == [
        f"for      torch {TORCH} on {platform.machine()}",
        "sources  2 files; --no-sources leaves them out",
        f"install  pip install {wheel}",
    ]
    assert run.stderr.splitlines()[-1] == (
        "note: no pyproject.toml describes it: it is called mychip 3.1; --version gives it another version"
    )
    archive = zipfile.ZipFile(wheel)
    assert (
        "mychip = mychip:autoload" in archive.read("mychip-3.1.dist-info/entry_points.txt").decode()
    )
    target = installed(wheel, tmp_path / "installed")
    assert target.name() == "mychip"


def test_without_sources(project: Path, tmp_path: Path) -> None:
    made = package(project, Wanted(tmp_path / "dist", with_sources=False))
    target = installed(made.wheel, tmp_path / "installed")
    said = (
        '#error "mychip-torch 1.2 was packaged with --no-sources: it can be loaded on the torch that it '
        'carries libraries for, and not be built."\n'
    )
    package_folder = target.description.parent
    assert (package_folder / "kernels.cpp").read_text() == said
    assert (package_folder / "driver.c").read_text() == said
    assert target.name() == "mychip"
    target.change(_another_torch)
    assert target.error() == (
        "opsmith.errors.PackageUnfit: `mychip-torch==1.2` carries libraries for torch 2.5, and this is "
        f"torch {torch_version()}\n"
        '  remedy: pip install "torch==2.5.*"; or make a wheel for this torch: opsmith package, in the '
        "sources of mychip"
    )


def test_programs_that_sources_include_are_sources(tmp_path: Path) -> None:
    description = write_project(tmp_path)
    with description.with_name("kernels.cpp").open("a") as kernels:
        kernels.write('const char* const programs =\n#include "programs.cl"\n;\n')
    description.with_name("programs.cl").write_text('R"(secret)"\n')
    backend = read_backend(description, None)
    files = described_files(backend, project_of(backend), with_sources=False)
    assert "mychip/programs.cl" in files.sources
    assert "was packaged with --no-sources" in files.written["mychip/programs.cl"]
    assert "mychip/programs.cl" not in files.copied


def test_a_library_of_tvm_ffi_is_carried_as_it_is(tmp_path: Path) -> None:
    description = write_project(tmp_path)
    manifest, library = (description.with_name(f"vectors.{end}") for end in ("yaml", "so"))
    library.touch()
    manifest.write_text("library: vectors\nabi: tvm_ffi\nmodule: vectors.so\nkernels: []\n")
    text = description.read_text().replace("[kernels.yaml]", "[kernels.yaml, vectors.yaml]")
    description.write_text(text)
    backend = read_backend(description, None)
    files = described_files(backend, project_of(backend), with_sources=False)
    assert files.copied["mychip/vectors.so"] == library
    assert "mychip/vectors.yaml" in files.copied


# ---- what it does where it is installed


def test_import_torch_brings_the_device_without_anything_that_builds(
    device: Installed, tmp_path: Path
) -> None:
    script = f"""{BLOCKED}
import torch
x = torch.tensor([1.0, 2.0], device="mychip")
print((x + x).tolist(), (torch.ones(2, 3, device="mychip") @ torch.ones(3, 2, device="mychip")).sum().item())
from mychip.kernels_in_python import device
print((-x).tolist(), device.plan.entry("neg").why)
print(sorted(name for name in sys.modules if name.startswith({WITHOUT!r})))
"""
    cache = tmp_path / "cache"
    environment = device.environment(
        PATH="/nonexistent", OPSMITH_CACHE_DIR=str(cache), TORCH_DEVICE_BACKEND_AUTOLOAD="1"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, timeout=300
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == [
        "[2.0, 4.0] 12.0",
        run.stdout.splitlines()[1],
        "[]",
    ]
    assert run.stdout.splitlines()[1].startswith("[-1.0, -2.0] from the kernel of `neg.out`: ")


def test_commands_take_it_by_its_name(device: Installed) -> None:
    environment = device.environment()
    explained = run_opsmith("explain", "add_.Tensor", "--backend", "mychip", env=environment)
    assert explained.returncode == 0, explained.stderr
    assert "mychip::add" in explained.stdout
    planned = run_opsmith("plan", "mychip", "--route", "structured", env=environment)
    assert planned.returncode == 0, planned.stderr
    assert "mm.out" in planned.stdout
    unknown = run_opsmith("plan", "mychp", env=environment)
    assert unknown.stderr.splitlines() == [
        "error: there is no backend `mychp` (did you mean mychip?)",
        "  remedy: name a shipped backend (cuda_driver, opencl, sim), an installed one (mychip) or the path "
        "of a backend.yaml",
    ]


# ---- what it refuses where it is installed


def _another_torch(contents: dict[str, object]) -> None:
    contents["builds"][0]["torch"] = "2.5"  # type: ignore[index]


def test_another_torch_and_no_compiler(device: Installed, tmp_path: Path) -> None:
    target = device.copied(tmp_path)
    target.change(_another_torch)
    empty = {"OPSMITH_CACHE_DIR": str(tmp_path / "cache")}
    assert target.error(**empty) == (
        "opsmith.errors.PackageUnfit: `mychip-torch==1.2` carries libraries for torch 2.5, and this is "
        f"torch {torch_version()}; and it cannot be built from its sources: the compiler `nowhere++` that "
        "CXX names was not found on PATH\n"
        '  remedy: pip install "torch==2.5.*"; or make a wheel for this torch: opsmith package, in the '
        "sources of mychip; or, to build it here, apt-get install g++ (Debian, Ubuntu) or dnf install "
        "gcc-c++ (Fedora); or set CXX"
    )
    script = f"import torch, opsmith; opsmith.autoload({str(target.description)!r}); print('torch is there')"
    run = fork_server.run([sys.executable, "-c", script], env=target.environment(**empty))
    assert run.stdout == "torch is there\n"
    assert run.stderr == (
        "opsmith: the backend `mychip` is not loaded: `mychip-torch==1.2` carries libraries for torch "
        f"2.5, and this is torch {torch_version()}; to build it: opsmith build mychip\n"
    )


def test_another_machine(device: Installed, tmp_path: Path) -> None:
    target = device.copied(tmp_path)

    def another_machine(contents: dict[str, object]) -> None:
        contents["builds"][0]["machine"] = "riscv64"  # type: ignore[index]
        contents["has_sources"] = False

    target.change(another_machine)
    assert target.error() == (
        "opsmith.errors.PackageUnfit: `mychip-torch==1.2` carries libraries for riscv64, and this machine is "
        f"{platform.machine()}\n"
        "  remedy: on a machine like this one: opsmith package, in the sources of mychip"
    )


@pytest.mark.parametrize("kept", [1000, -1])
def test_a_library_that_was_cut_short(device: Installed, tmp_path: Path, kept: int) -> None:
    target = device.copied(tmp_path)
    library = target.carried / BUILD / "libopsmith_mychip.so"
    content = library.read_bytes()
    library.write_bytes(content[:kept])
    assert target.error() == (
        f"opsmith.errors.PackageInvalid: {library} has {len(content[:kept]):,} bytes of {len(content):,}\n"
        "  remedy: pip install --force-reinstall --no-deps mychip-torch==1.2"
    )


def test_a_library_that_is_missing_or_another(device: Installed, tmp_path: Path) -> None:
    target = device.copied(tmp_path)
    library = target.carried / BUILD / "libopsmith_mychip_driver.so"
    library.write_bytes(library.read_bytes()[:-1] + b"?")
    assert f"{library} has other bytes than were packaged\n" in target.error()
    library.unlink()
    assert f"{library} cannot be read: No such file or directory\n" in target.error()


def test_a_library_for_another_torch_that_is_forced_in(device: Installed, tmp_path: Path) -> None:
    target = device.copied(tmp_path)
    library = target.carried / BUILD / "libopsmith_mychip.so"
    note = b"opsmith\0" + TORCH.encode()
    content = library.read_bytes()
    assert content.count(note) == 1
    other = content.replace(note, b"opsmith\x002.05")
    library.write_bytes(other)

    def forge(contents: dict[str, object]) -> None:
        digest = hashlib.sha256(other).hexdigest()
        contents["builds"][0]["library"]["sha256"] = digest  # type: ignore[index]

    target.change(forge)
    assert target.error() == (
        f"opsmith.errors.LoadError: {library} was compiled for torch 2.5, and this is torch "
        f"{torch_version()}\n  remedy: pip install --force-reinstall --no-deps mychip-torch==1.2"
    )


def test_packages_of_other_versions_of_opsmith(device: Installed, tmp_path: Path) -> None:
    target = device.copied(tmp_path)
    target.change(lambda contents: contents.update(format=4, opsmith="0.3.0", novel=True))
    assert target.error() == (
        "opsmith.errors.PackageInvalid: `mychip-torch==1.2` was packaged by a newer opsmith, 0.3.0, in "
        "format 4; this one reads format 3\n"
        "  remedy: pip install --upgrade opsmith, to 0.3.0 or later"
    )
    target.change(lambda contents: contents.update(format=0, opsmith="0.0.9"))
    assert target.error() == (
        "opsmith.errors.PackageInvalid: `mychip-torch==1.2` was packaged by an older opsmith, 0.0.9, in "
        "format 0; this one reads format 3\n"
        "  remedy: install a newer mychip-torch, or opsmith==0.0.9"
    )
    path = target.carried / "package.json"
    path.write_text("{")
    assert target.error().startswith(
        f"opsmith.errors.PackageInvalid: {path} is not as `opsmith package` writes it: "
    )


# ---- what cannot be packaged


def test_metadata_that_are_none(tmp_path: Path) -> None:
    for number, (old, new, said) in enumerate(
        (
            ('version = "1.2"', 'version = "one"', "no metadata of a wheel: "),
            ('version = "1.2"', "", "no metadata of a wheel: "),
            ('name = "mychip-torch"', "name = 3", "no metadata of a wheel: "),
            ("[project]", "[project", "it cannot be read as TOML: "),
        )
    ):
        description = write_project(tmp_path / str(number), PYPROJECT.replace(old, new, 1))
        text = refusal(MetadataInvalid, package, description, Wanted(tmp_path / "dist"))
        assert text.startswith(f"{tmp_path / str(number) / 'pyproject.toml'}: {said}"), text
    assert not (tmp_path / "dist").exists()


def test_sources_outside_the_package(tmp_path: Path) -> None:
    description = write_project(tmp_path)
    outside = tmp_path / "driver.c"
    (description.parent / "driver.c").rename(outside)
    text = description.read_text().replace("driver.c", "../../driver.c")
    description.write_text(text)
    assert refusal(SourceOutside, package, description, Wanted(tmp_path / "dist")) == (
        f"{description}:2:1: {outside} lies outside {description.parent}, which becomes the package "
        "`mychip`\n  remedy: move it, and what lies beside it, into that folder: what is installed has "
        "nothing else"
    )


def test_a_folder_that_cannot_be_written(project: Path, tmp_path: Path) -> None:
    taken = tmp_path / "dist"
    taken.touch()
    assert refusal(OutputRejected, package, project, Wanted(taken)) == (
        f"the folder {taken} cannot be written: File exists\n  remedy: name a folder of yours: -o dist"
    )


def test_a_package_of_a_package(device: Installed, tmp_path: Path) -> None:
    assert refusal(PackagingError, package, device.description, Wanted(tmp_path)) == (
        f"{device.description}: this description is that of an installed package already, "
        "`mychip-torch==1.2`\n  remedy: package its sources, where they are kept"
    )


def test_a_package_of_what_comes_with_opsmith(tmp_path: Path) -> None:
    run = run_opsmith("package", cwd=tmp_path)
    assert (run.returncode, run.stderr.splitlines()) == (
        1,
        [
            "error: `sim` comes with opsmith, and needs no package",
            "  remedy: name the backend.yaml of your own device: opsmith package src/mychip/backend.yaml",
        ],
    )


def test_without_hatchling(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hatchling.builders.wheel", None)
    assert refusal(PackagingError, package, project, Wanted(tmp_path)) == (
        "wheels are written by hatchling, which is not installed here\n  remedy: pip install hatchling"
    )


# ---- several environments


def test_a_torch_that_no_environment_has_and_pip_cannot_fetch(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    text = refusal(EnvironmentUnusable, package, project, Wanted(tmp_path, torch=("2.99.0",)))
    assert text.startswith("pip could not fetch torch==2.99.*:\n  ")
    assert "No matching distribution found for torch==2.99.*" in text
    assert text.endswith("\n  remedy: name an environment that has it: --python VENV/bin/python")


def test_a_torch_that_is_fetched_stands_in_for_the_environments_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def install(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        target = Path(command[command.index("--target") + 1])
        for name in ("torch", "torchgen", "bin"):
            (target / name).mkdir()
        (target / "torch-2.99.1.dist-info").mkdir()
        metadata = "Metadata-Version: 2.1\nName: torch\nVersion: 2.99.1\n"
        (target / "torch-2.99.1.dist-info" / "METADATA").write_text(metadata)
        fetched.append(command[-1])
        return subprocess.CompletedProcess(command, 0, "", "")

    fetched: list[str] = []
    with monkeypatch.context() as patched:
        patched.setattr(fetched_torch.subprocess, "run", install)
        folders = {fetched_torch.fetched_torch("2.99", tmp_path, print) for _ in range(2)}
    (folder,) = folders
    assert fetched == ["torch==2.99.*"]
    assert sorted(path.name for path in folder.iterdir()) == [
        "torch",
        "torch-2.99.1.dist-info",
        "torchgen",
    ]
    script = "from opsmith.schema import compiled_for, torch_version; print(compiled_for(torch_version()))"
    environment = environments._environment(folder)
    run = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout == "2.99\n"


def test_another_python_that_is_none_or_has_no_opsmith(project: Path, tmp_path: Path) -> None:
    wanted = Wanted(tmp_path / "dist", pythons=(str(tmp_path / "python"),))
    assert refusal(EnvironmentUnusable, package, project, wanted) == (
        f"there is no Python `{tmp_path / 'python'}`\n"
        "  remedy: name an environment's interpreter: --python path/to/venv/bin/python"
    )
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    text = refusal(EnvironmentUnusable, package, project, wanted)
    assert text.startswith(f"the environment of `{bare}` does not run this opsmith:\n  ")
    assert text.endswith(f"\n  remedy: {bare} -m pip install opsmith==0.1.0")


def test_another_environment_with_the_same_torch_adds_nothing(
    device: Installed, project: Path, tmp_path: Path
) -> None:
    other = tmp_path / "python"
    paths = os.pathsep.join(sys.path)
    other.write_text(f'#!/bin/sh\nPYTHONPATH="{paths}" exec {sys.executable} "$@"\n')
    other.chmod(0o755)
    made = package(project, Wanted(tmp_path / "dist", pythons=(str(other),)))
    assert _digest(made.wheel) == _digest(device.wheel)


def test_builds_of_several_torches_lie_side_by_side(tmp_path: Path) -> None:
    def build(torch: str, suffix: str, folder: Path) -> CarriedBuild:
        name = f"torch-{torch}-x86_64"
        (folder / name).mkdir(parents=True)
        files = ("libopsmith_mychip.so", "plan.json", f"opsmith_adapter{suffix}")
        library, plan, adapter = (CarriedFile(file, 1, "") for file in files)
        for file in files:
            (folder / name / file).write_text(f"{torch} {suffix}")
        return CarriedBuild(torch, "x86_64", name, library, None, plan, {suffix: adapter})

    builds = [build("2.13", ".cpython-311.so", tmp_path / "all")]
    for number, (torch, suffix) in enumerate(
        (("2.15", ".cpython-311.so"), ("2.13", ".cpython-312.so"))
    ):
        own = tmp_path / str(number)
        builds = packaging._joined(builds, build(torch, suffix, own), own, tmp_path / "all")
    assert [(each.torch, sorted(each.adapters)) for each in builds] == [
        ("2.13", [".cpython-311.so", ".cpython-312.so"]),
        ("2.15", [".cpython-311.so"]),
    ]
    assert sorted(path.name for path in (tmp_path / "all" / "torch-2.13-x86_64").iterdir()) == [
        "libopsmith_mychip.so",
        "opsmith_adapter.cpython-311.so",
        "opsmith_adapter.cpython-312.so",
        "plan.json",
    ]
    library = tmp_path / "all" / "torch-2.13-x86_64" / "libopsmith_mychip.so"
    assert library.read_text() == "2.13 .cpython-311.so"
    assert packaging._dependencies(builds) == (
        "opsmith>=0.1.0,<0.2",
        "torch>=2.13,<2.16,!=2.14.*",
    )
