"""An AArch64 host beside this machine: Debian's Python for that processor, emulated, with opsmith in it.

What a process of it opens or imports is AArch64's.  What it starts by name is this machine's, since the
emulator hands that to the kernel: the cross compiler and ninja run as fast as elsewhere.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import ninja

from needs import AARCH64_COMPILER, AARCH64_EMULATOR
from opsmith.schema import compiled_for, requirement, torch_version

ROOT = Path(__file__).parents[2]
# Graviton2's and Altra's.
PROCESSOR = "neoverse-n1"
# Which torch reads when it is imported; qemu before 8.1 gives it this machine's, for which it crashes.
CPUINFO = """\
processor\t: {}
Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x3
CPU part\t: 0xd0c
CPU revision\t: 1

"""


@dataclass(frozen=True)
class Aarch64Host:
    """The host whose virtual environment is ``environment``; ``cache`` is its opsmith's."""

    environment: Path
    cache: Path

    def python(
        self, *arguments: str | Path, folder: Path, timeout: float = 900, **variables: str
    ) -> str:
        """The output of its Python, with the cross compiler for ``CXX``; a failure is an AssertionError."""
        done = subprocess.run(
            [self.environment / "bin" / "python", *arguments],
            cwd=folder,
            env={
                **os.environ,
                "COLUMNS": "120",
                "CXX": AARCH64_COMPILER,
                "OPSMITH_CACHE_DIR": str(self.cache),
                "PYTHONPATH": "",
                "TORCH_DEVICE_BACKEND_AUTOLOAD": "1",
                **variables,
            },
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def make_aarch64_host(folder: Path) -> Aarch64Host:
    """Makes the host in ``folder`` of what ``apt-get`` and ``pip`` download: 5 GB with torch for CUDA."""
    system, environment = folder / "system", folder / "environment"
    _unpack_python(system, folder)
    programs, python = environment / "bin", (system / "usr" / "bin" / "python3").resolve()
    packages = environment / "lib" / python.name / "site-packages"
    programs.mkdir(parents=True)
    emulator = [str(shutil.which(AARCH64_EMULATOR)), "-cpu", PROCESSOR, "-L", str(system)]
    started = shlex.join([*emulator, "-0", str(programs / "python"), str(python)])
    (programs / "python").write_text(f'#!/bin/sh\nexec {started} "$@"\n')
    (programs / "python").chmod(0o755)
    (programs / "ninja").symlink_to(Path(ninja.BIN_DIR) / "ninja")
    (environment / "pyvenv.cfg").write_text(f"home = {python.parent}\n")
    _install_opsmith(packages, python.name.removeprefix("python"), folder)
    return Aarch64Host(environment, folder / "cache")


def _unpack_python(system: Path, folder: Path) -> None:
    """Unpacks Python and what it needs into ``system``; the packages of this machine stay as they are."""
    state, cache = folder / "apt" / "state", folder / "apt" / "cache"
    for each in (state / "lists" / "partial", cache / "archives" / "partial", system / "proc"):
        each.mkdir(parents=True)
    (state / "status").touch()  # nothing is installed
    settings = {
        "APT::Architecture": "arm64",
        "APT::Architectures::": "arm64",
        "APT::Sandbox::User": "root",
        "Dir::Cache": cache,
        "Dir::State": state,
        "Dir::State::status": state / "status",
    }
    apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in settings.items())]
    _run([*apt, "update"])
    wanted = ("python3", "libstdc++6")
    _run([*apt, "install", "--yes", "--download-only", "--no-install-recommends", *wanted])
    for package in sorted((cache / "archives").glob("*.deb")):
        _run(["dpkg-deb", "--extract", package, system])
    cpus = map(CPUINFO.format, range(os.cpu_count() or 1))
    (system / "proc" / "cpuinfo").write_text("".join(cpus))


def _install_opsmith(packages: Path, version: str, folder: Path) -> None:
    """Installs into ``packages`` this opsmith, what it requires, and what makes packages and runs tests."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    _run([*pip, "wheel", "--no-deps", "--no-build-isolation", f"--wheel-dir={folder}", ROOT])
    # pip takes no tag of an older glibc for that of a newer one.
    systems = ("2014", *(f"_2_{minor}" for minor in range(17, 37)))
    platforms = [f"--platform=manylinux{system}_aarch64" for system in systems]
    torch = requirement(compiled_for(torch_version()))
    options = [*platforms, f"--python-version={version}", "--only-binary=:all:"]
    wanted = [*folder.glob("opsmith-*.whl"), torch, "hatchling", "numpy", "pip", "pytest"]
    _run([*pip, "install", f"--target={packages}", *options, *wanted])


def _run(command: Sequence[str | Path]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
