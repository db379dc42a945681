"""Descriptions: what is read, and which names a device may have."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from opsmith.description import Execution, FallbackDefault, find_backend, read_backend
from opsmith.description.device_names import check_device_name
from opsmith.errors import BackendUnknown, Location, SyntaxInvalid
from opsmith.schema import Catalogue, read_catalogue
from refusal import refusal

Describe = Callable[..., Path]


def test_a_description_is_read_with_its_places(describe: Describe, catalogue: Catalogue) -> None:
    path = describe(
        """
        - op: aten::add.out
          kernel_name: chip::add
          structured: true
          dtypes: [Real, Long]
        """,
        header="execution: host\ntype_alias: {Real: [Float, Double]}",
        fallback="{deny: [topk]}",
    )
    backend = read_backend(path, catalogue)
    assert backend.name == "chip"
    assert [library.name for library in backend.libraries] == ["chiplib", "runtime"]
    (kernel,) = backend.libraries[0].kernels
    assert (kernel.operator, kernel.symbol, kernel.structured) == ("add.out", "chip::add", True)
    assert kernel.dtypes == (("", ("Float", "Double", "Long")),)
    assert kernel.execution is Execution.HOST
    assert str(kernel.location) == f"{path.parent}/kernels.yaml:6:5"
    assert backend.fallback.default is FallbackDefault.CPU
    assert [operator.name for operator in backend.fallback.deny] == ["topk"]
    assert backend.driver.sources == ((path.parent / "driver.c").resolve(),)


def test_a_shipped_backend_is_found_by_name() -> None:
    assert find_backend("sim").name == "backend.yaml"


def test_unknown_backend() -> None:
    assert refusal(BackendUnknown, find_backend, "simm") == (
        "there is no backend `simm` (did you mean sim?)\n"
        "  remedy: name a shipped backend (cuda_driver, opencl, sim) or the path of a backend.yaml"
    )


def test_symint_for_a_library_and_for_one_kernel(describe: Describe, catalogue: Catalogue) -> None:
    path = describe(
        """
        - {op: new_empty, kernel_name: f}
        - {op: relu, kernel_name: g, symint: false}
        """,
        header="symint: true",
    )
    kernels = read_backend(path, catalogue).libraries[0].kernels
    assert [kernel.symint for kernel in kernels] == [True, False]


def test_a_shipped_driver_is_named(describe: Describe, catalogue: Catalogue) -> None:
    driver = read_backend(describe(driver="sim"), catalogue).driver
    assert driver.sources == read_backend(find_backend("sim"), catalogue).driver.sources
    assert str(driver.location).endswith("backend.yaml:2:1")
    path = describe(driver="{name: sim, host_window: off}")
    assert not read_backend(path, catalogue).driver.host_window


def test_no_device_is_called_like_anything_of_pytorch(tmp_path: Path) -> None:
    # In a process of its own: here a device may have been loaded, which is then one of them.
    listed = subprocess.run(
        [sys.executable, "-c", _NAMES_OF_PYTORCH],
        env=os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    operators = {name.partition(".")[0] for name in read_catalogue().operators}
    names = {name for name in listed.stdout.split() if re.fullmatch("[a-z][a-z0-9_]*", name)}
    free = []
    for name in sorted(names - operators):
        with suppress(SyntaxInvalid):
            check_device_name(name, Location(tmp_path))
            free.append(name)
    assert len(names) > 500 and free == []
    for name in ("chip", "sim", "mychip", "npu", "cpu2", "neuron_core", "opencl"):
        check_device_name(name, Location(tmp_path))


_NAMES_OF_PYTORCH = """
import pkgutil, torch
from torch.nn.utils.rnn import PackedSequence
print(*dir(torch), *(module.name for module in pkgutil.iter_modules(torch.__path__)))
for owner in (torch.Tensor, torch.nn.Module, PackedSequence):
    print(*dir(owner), *(name[3:] for name in dir(owner) if name.startswith("is_")))
"""
