"""The requirements of building and loading a backend, and whether this machine meets them.

Each check looks at one thing, changes nothing but the cache directory, and never raises: what is wrong
is its answer, with the command that puts it right.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from opsmith.base.cache_folder import cache_root
from opsmith.build.backend import find_built
from opsmith.build.cache import size_in_bytes, unusable, usable_cache
from opsmith.build.executorch import find_executorch
from opsmith.build.toolchain import find_compiler, find_torch, ninja_binary
from opsmith.description import find_backend
from opsmith.errors import BuildError, ExecutorchMissing, OpsmithError
from opsmith.runtime.torch_import import reinstalled
from opsmith.schema import KNOWN_RELEASES, torch_release, torch_version
from opsmith.schema.recorded import shown
from opsmith.schema.torch_names import lost_in
from opsmith.vendor.doctor.driver_facts import expected_abi_version, read_driver_facts
from opsmith.vendor.doctor.tested_releases import tested_releases

OLDEST_PYTHON = (3, 10)
# A backend's objects and libraries take about a tenth of it.
LEAST_FREE_BYTES = 1 << 30


@dataclass(frozen=True)
class Diagnosis:
    """One thing that was looked at.

    ``found`` is what is there; ``remedy`` is empty where it is ``ok``.  What is not ``required`` does
    not keep a backend from being built and loaded.
    """

    name: str
    ok: bool
    found: str
    remedy: str = ""
    required: bool = True


def diagnose(backend: str = "sim") -> list[Diagnosis]:
    """All checks, for building and loading ``backend`` (shipped, or the path of a ``backend.yaml``)."""
    return [
        Diagnosis("opsmith", True, importlib.metadata.version("opsmith")),
        _python(),
        _torch(),
        _torch_features(),
        _tested_release(),
        _checked("torch headers", _torch_headers),
        _checked("compiler", _compiler),
        _checked("ninja", _ninja),
        _checked("clang-format", _clang_format),
        _checked("cache", _cache),
        _executorch(),
        _driver(backend),
    ]


def _checked(name: str, find: Callable[[], str]) -> Diagnosis:
    """The check that passes with what ``find`` returns, and fails with the error that it raises."""
    try:
        return Diagnosis(name, True, find())
    except OpsmithError as error:
        return Diagnosis(name, False, error.message, error.remedy)


def _executorch() -> Diagnosis:
    """Only libraries and programs for ExecuTorch's runtime need it."""
    try:
        return Diagnosis("executorch", True, find_executorch().version, required=False)
    except ExecutorchMissing as error:
        return Diagnosis("executorch", False, error.message, error.remedy, required=False)


def _python() -> Diagnosis:
    found = f"{platform.python_version()} at {sys.executable}"
    ok = sys.version_info >= OLDEST_PYTHON
    oldest = ".".join(map(str, OLDEST_PYTHON))
    return Diagnosis("python", ok, found, "" if ok else f"use Python {oldest} or later")


def _torch() -> Diagnosis:
    oldest, newest = shown(KNOWN_RELEASES[0]), shown(KNOWN_RELEASES[-1])
    too_new = f"{KNOWN_RELEASES[-1][0]}.{KNOWN_RELEASES[-1][1] + 1}"
    remedy = f'pip install "torch>={oldest},<{too_new}"'
    try:
        version, release = torch_version(), torch_release()
    except OpsmithError as error:
        return Diagnosis("torch", False, error.message, remedy)
    if release < KNOWN_RELEASES[0]:
        found = f"{version}, but opsmith is for torch {oldest} to {newest}"
        return Diagnosis("torch", False, found, remedy)
    if release > KNOWN_RELEASES[-1]:
        found = (
            f"{version}, which is newer than torch {newest}, the newest that opsmith is tested with: nobody "
            "has checked the names and headers of PyTorch that opsmith uses, nor what it knows of operators"
        )
        return Diagnosis("torch", False, found, remedy, required=False)
    if failure := _import_failure():
        found = f"{version}, which cannot be imported: {failure}"
        return Diagnosis("torch", False, found, reinstalled(version))
    return Diagnosis("torch", True, version)


@functools.cache
def _import_failure() -> str:
    """The last line of what an import of torch says where it fails; a wheel may lack libraries of others."""
    code = "import torch"
    env = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    return done.stderr.strip().rpartition("\n")[2] if done.returncode else ""


def _torch_features() -> Diagnosis:
    """The features that the installed release of torch takes away, as far as is known."""
    name = "features"
    try:
        lost = lost_in(torch_release())
    except OpsmithError as error:
        return Diagnosis(name, False, error.message, error.remedy)
    if not lost:
        return Diagnosis(name, True, "every name of PyTorch's own that opsmith uses")
    found = "; ".join(f"{feature.value} (no {why.qualified})" for feature, why in lost.items())
    since = max((why.since for why in lost.values() if why.since), default=None)
    remedy = f'pip install "torch>={since[0]}.{since[1]}"' if since else ""
    return Diagnosis(name, False, found, remedy, required=False)


def _tested_release() -> Diagnosis:
    """The tests that passed on the installed release of torch, where opsmith was tested on it."""
    name = "tests"
    try:
        release = shown(torch_release())
    except OpsmithError as error:
        return Diagnosis(name, False, error.message, error.remedy)
    tested = tested_releases()
    if release in tested:
        return Diagnosis(name, not tested[release].fails, str(tested[release]), required=False)
    found = f"nobody has run them on torch {release}, but on {', '.join(tested)}"
    remedy = "opsmith conform, which compares each operator with the CPU's"
    return Diagnosis(name, False, found, remedy, required=False)


def _torch_headers() -> str:
    return str(find_torch().include_dirs[0])


def _compiler() -> str:
    compiler = find_compiler(cache_root())
    return f"{compiler.version} ({' '.join(compiler.command)})"


def _ninja() -> str:
    binary = ninja_binary()
    return f"{_version_said_by(binary, 'ninja')} ({binary})"


def _clang_format() -> str:
    # Without it nothing can be generated: emit lays out its code with it.
    spec = importlib.util.find_spec("clang_format")
    if spec is None or spec.origin is None:
        raise _broken("clang-format", "it is not installed in this environment")
    binary = Path(spec.origin).parent / "data" / "bin" / "clang-format"
    return f"{_version_said_by(binary, 'clang-format')} ({binary})"


def _version_said_by(binary: Path, package: str) -> str:
    try:
        said = subprocess.run(
            [binary, "--version"], capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise _broken(package, str(error)) from None
    return said.strip().partition("\n")[0]


def _broken(package: str, why: str) -> BuildError:
    return BuildError(
        f"{package} does not run: {why}", remedy=f"pip install --force-reinstall {package}"
    )


def _cache() -> str:
    root = usable_cache()
    free = shutil.disk_usage(root).free
    if free < LEAST_FREE_BYTES:
        raise unusable(root, f"only {_shown(free)} are free on its disk")
    return f"{root}, {_shown(size_in_bytes(root))} used, {_shown(free)} free"


def _shown(size: float) -> str:
    return f"{size / (1 << 30):.1f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):.1f} MiB"


def _driver(backend: str) -> Diagnosis:
    name = f"driver of {backend}"
    try:
        built = find_built(find_backend(backend))
        if built is None:
            # Nothing is wrong: it is built when it is first loaded.
            return Diagnosis(
                name, False, "not built yet", f"opsmith build {backend}", required=False
            )
        facts = read_driver_facts(built.driver, built.python_driver)
    except OpsmithError as error:
        place = f"{error.location}: " if error.location else ""
        return Diagnosis(name, False, f"{place}{error.message}", error.remedy)
    expected = expected_abi_version()
    if facts.abi_version != expected:
        return Diagnosis(
            name,
            False,
            f"`{facts.name}` has version {facts.abi_version} of opsmith_driver.h, but this opsmith has "
            f"version {expected} ({built.driver})",
            "rebuild the driver with this opsmith's header",
        )
    if built.host_window and not facts.host_window:
        return Diagnosis(
            name,
            False,
            f"{built.driver_location}: `{facts.name}` has no host window (its entry `host_window` is NULL), "
            "and the description counts on one",
            "add `host_window: off` to `driver` there",
        )
    return Diagnosis(
        name,
        True,
        f"`{facts.name}`, ABI version {facts.abi_version} ({built.python_driver or built.driver})",
    )
