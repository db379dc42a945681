"""opsmith's headers of ExecuTorch's types: vendors' kernels compile with them, and ExecuTorch's own agree."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest
import torch

from opsmith.build.csrc import CSRC
from opsmith.build.etensor_headers import ETensorHeaders, own_headers
from opsmith.build.executorch import find_executorch
from opsmith.build.flags import LEAN_FLAGS
from opsmith.build.toolchain import find_torch

SOURCES = (
    Path(__file__).with_name("etensor_headers.cpp"),
    CSRC / "lean" / "tensor.cpp",
    CSRC / "lean" / "failure.cpp",
)


def compiled(headers: ETensorHeaders, path: Path) -> ctypes.CDLL:
    """The kernels, compiled with ``headers`` and without ``-DNDEBUG``, whose checks are thus compiled too."""
    command = ["c++", *LEAN_FLAGS, "-O0", "-fPIC", "-shared", "-fvisibility=hidden", f"-I{CSRC}"]
    command += [f"-isystem{folder}" for folder in headers.include_dirs]
    subprocess.run([*command, *map(str, SOURCES), "-o", str(path)], check=True)
    library = ctypes.CDLL(str(path))
    library.etensor_facts.restype = ctypes.c_char_p
    return library


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return compiled(own_headers(find_torch()), tmp_path_factory.mktemp("own") / "kernels.so")


def test_both_sets_of_headers_agree(own: ctypes.CDLL, tmp_path: Path) -> None:
    theirs = compiled(find_executorch().headers, tmp_path / "kernels.so")
    facts = own.etensor_facts().decode().splitlines()
    assert len(facts) > 50
    assert facts == theirs.etensor_facts().decode().splitlines()


def test_kernels_of_a_vendor_give_the_cpus_values(own: ctypes.CDLL) -> None:
    x = torch.randn(5, 7)
    scaled, sums = torch.empty(5, 7), torch.empty(7)
    sizes = (ctypes.c_int32 * 2)(5, 7)
    pointers = [ctypes.c_void_p(each.data_ptr()) for each in (x, scaled, sums)]
    assert own.etensor_run(pointers[0], sizes, ctypes.c_double(0.5), *pointers[1:]) == 0
    torch.testing.assert_close(scaled, x * 0.5)
    torch.testing.assert_close(sums, x.sum(0))


def test_refusals_of_a_vendors_kernel_say_why(own: ctypes.CDLL) -> None:
    assert own.etensor_facts().decode().splitlines()[-6:] == [
        "Error::Ok: ",
        "Error::InvalidArgument: Check failed (tensors_have_same_dim_order(self, out)): ",
        "Error::MemoryAllocationFailed: No temp allocator provided; Check failed (memory.ok()): ",
        "aborted: In function sum_dim_out(), assert failed (self.scalar_type() == ScalarType::Float): "
        "Float is expected, not Half",
        "Error::InvalidArgument: Unhandled dtype Bool for scale.out",
        "aborted: In function check_matrix(), assert failed: t.dim() == 2",
    ]
