"""A stranger's description: commands that read it build and run nothing of it, unless they are asked to."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys

import msgspec
import pytest

import fork_server
from fake_builds import FakeBuild, fake_build
from opsmith.base.cache_folder import cache_root
from opsmith.description.built import FORMAT, CarriedBuild, CarriedFile, Contents, Place
from opsmith.schema import compiled_for, read_catalogue, torch_version

# Whoever imports it leaves a file behind.
SPY = "open({!r}, 'w').close()\n"
TRITON = "library: tri\nabi: triton\nmodule: tri.py\nkernels: [{op: neg.out, elements: neg}]\n"
READING = (
    ("plan",),
    ("gen", "-o", "generated"),
    ("explain", "relu"),
    ("ops", "show", "relu"),
    ("report", "-o", "report.html"),
)
SHOWING = READING[2:]
NOTE = "no dispatch tables: {}; --build builds and loads it"
WARNING = "warning: this report is without dispatch tables: {}; --build builds and loads it"


@pytest.fixture(scope="module")
def chip(tmp_path_factory: pytest.TempPathFactory) -> FakeBuild:
    """With a driver and kernels in Python, and an option that has the compiler load a plug-in."""
    tmp_path = tmp_path_factory.mktemp("stranger")
    fake = fake_build(tmp_path, "{python: 'driver.py:Chip', host_window: off}")
    read_catalogue()  # which takes seconds where it is not kept
    shutil.copytree(cache_root() / "catalogues", fake.cache / "catalogues")
    fake.cache.chmod(0o700)
    folder = fake.description.parent
    for name in ("driver.py", "tri.py"):
        (folder / name).write_text(SPY.format(str(tmp_path / "imported")))
    (folder / "tri.yaml").write_text(TRITON)
    manifest = folder / "kernels.yaml"
    manifest.write_text(
        manifest.read_text().replace("\n", "\ncompile_flags: [-fplugin=/evil.so]\n", 1)
    )
    described = fake.description.read_text()
    fake.description.write_text(described.replace("[kernels.yaml]", "[kernels.yaml, tri.yaml]"))
    return fake


def run(chip: FakeBuild, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "opsmith", *arguments, "--backend", str(chip.description)]
    environment = {**os.environ, **chip.environment, "COLUMNS": "500"}
    return fork_server.run(command, env=environment, cwd=chip.compiler.parent)


@pytest.mark.parametrize("command", READING, ids=lambda words: words[0])
def test_reading_a_description_runs_nothing_of_it(
    command: tuple[str, ...], chip: FakeBuild
) -> None:
    done = run(chip, *command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert chip.made() == []
    assert not (chip.compiler.parent / "imported").exists()
    note = WARNING if command[0] == "report" else NOTE
    assert (note.format("it is not built") in done.stderr) is (command in SHOWING)


def test_it_is_built_where_that_is_asked_for_and_not_loaded_again_unasked(chip: FakeBuild) -> None:
    """Python beside it may be another by now."""
    done = run(chip, "explain", "relu", "--build")
    assert "object" in chip.made()
    # The compiler is none.
    assert done.returncode == 1 and "libopsmith_chip.so" in done.stderr
    for command in SHOWING:
        check_unloaded(
            chip, command, "it runs Python that is beside it, and no installed package brings it"
        )


def check_unloaded(chip: FakeBuild, command: tuple[str, ...], why: str) -> None:
    done = run(chip, *command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (WARNING if command[0] == "report" else NOTE).format(why) in done.stderr
    assert not (chip.compiler.parent / "imported").exists()


def test_libraries_that_came_with_it_are_not_loaded(chip: FakeBuild) -> None:
    folder = chip.description.parent / "prebuilt"
    folder.mkdir()
    (folder / "lib.so").write_bytes(b"evil")
    file = CarriedFile("lib.so", 4, hashlib.sha256(b"evil").hexdigest())
    torch = compiled_for(torch_version())
    build = CarriedBuild(torch, platform.machine(), ".", file, file, file, {})
    contents = Contents(
        format=FORMAT,
        opsmith="0",
        distribution="chip==1",
        backend="chip",
        has_sources=True,
        host_window=False,
        rng="philox",
        driver=None,
        python_driver=None,
        driver_place=Place("backend.yaml", 2, 1),
        namespaces=(),
        builds=(build,),
    )
    (folder / "package.json").write_bytes(msgspec.json.encode(contents))
    check_unloaded(
        chip, SHOWING[0], "its libraries came with it, and no installed package brings it"
    )
