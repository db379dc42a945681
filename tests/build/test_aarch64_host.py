"""A device on an AArch64 host: built there, trained, and packaged in a wheel that needs no compiler.

The kernels' values on AArch64 are those of tests/kernels/kernel_suite/test_kernels_on_aarch64.py.
"""

from __future__ import annotations

import re
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from aarch64_host import Aarch64Host, make_aarch64_host
from opsmith.executorch.elf import ElfFile

pytestmark = [pytest.mark.nightly, pytest.mark.needs("AArch64"), pytest.mark.needs("apt")]


@pytest.fixture(scope="module")
def host() -> Iterator[Aarch64Host]:
    with tempfile.TemporaryDirectory(prefix="opsmith-aarch64-") as folder:
        yield make_aarch64_host(Path(folder))


@pytest.fixture(scope="module")
def project(host: Aarch64Host, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project of `opsmith new`, written there, with `optimized` before `portable`."""
    folder = tmp_path_factory.mktemp("host")
    host.python("-m", "opsmith", "new", "mychip", folder=folder)
    description = folder / "mychip" / "src" / "mychip" / "backend.yaml"
    text = description.read_text()
    description.write_text(text.replace("  - portable", "  - optimized\n  - portable"))
    return folder / "mychip"


@pytest.fixture(scope="module")
def wheel(host: Aarch64Host, project: Path) -> Path:
    """The project's wheel, packaged there: all of the build."""
    command = ("-m", "opsmith", "package", "src/mychip/backend.yaml")
    host.python(*command, folder=project, timeout=7200)
    (wheel,) = (project / "dist").iterdir()
    return wheel


def test_a_wheel_is_for_its_processor(wheel: Path, tmp_path: Path) -> None:
    assert re.fullmatch(r"mychip-0\.1\.0-py3-none-manylinux_2_\d+_aarch64\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(tmp_path)
    libraries = {path: ElfFile.read(path).machine for path in tmp_path.rglob("*.so")}
    assert len(libraries) >= 2 and {*libraries.values()} == {"aarch64"}


def test_an_installed_device_trains_as_the_cpu_does(
    host: Aarch64Host, project: Path, wheel: Path
) -> None:
    host.python("-m", "pip", "install", "--no-deps", "--no-index", wheel, folder=project)
    tests = ("tests/test_training.py", "tests/test_values.py")
    command = ("-m", "pytest", "-q", *tests)
    said = host.python(*command, folder=project, CXX="no-such-compiler")
    assert " passed" in said.splitlines()[-1]


LOADED = """
import opsmith, torch

device = opsmith.load("src/mychip/backend.yaml")
results = []
for name in (device.name, "cpu"):
    x = torch.linspace(-3, 3, 40).reshape(5, 8).to(name).requires_grad_()
    with opsmith.count_fallbacks() as block:
        torch.nn.functional.gelu(x @ x.T).sum().backward()
    assert not block.fallbacks.counts
    results.append(x.grad.cpu())
torch.testing.assert_close(*results)
print(device.name)
"""


def test_a_device_is_loaded_by_its_description(
    host: Aarch64Host, project: Path, wheel: Path
) -> None:
    said = host.python("-c", LOADED, folder=project, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert said == "mychip\n"
