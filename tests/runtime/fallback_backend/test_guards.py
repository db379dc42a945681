"""Calls that the fallback refuses, with the operator, the reason and what to do instead."""

from __future__ import annotations

import pytest
import torch
from loaded import DEVICE

import opsmith
from refusal import refusal

pytestmark = pytest.mark.isolated(OPSMITH_TEST_BACKEND=("zero_copy", "copying"), opinfo=True)


def test_mkldnn_tensors_are_the_cpus() -> None:
    tensor = torch.ones(3, 3, device=DEVICE)
    assert refusal(NotImplementedError, tensor.to_mkldnn) == (
        f"aten::to_mkldnn is not available on {DEVICE}: its result is an mkldnn tensor, which is of the "
        "CPU only. Call it on the CPU: move its arguments there with .cpu()."
    )


def test_mkldnn_tensors_do_not_mix_with_the_devices() -> None:
    tensor = torch.ones(3, 3, device=DEVICE)
    for call in (torch.add, torch.mul, torch.mm):
        with pytest.raises(RuntimeError, match=r"(?i)mkl-?dnn"):
            call(torch.ones(3, 3).to_mkldnn(), tensor)


def test_deny_covers_convolutions() -> None:
    x = torch.ones(1, 2, 3, device=DEVICE)
    with opsmith.fallback("deny"), pytest.raises(NotImplementedError) as error:
        torch.nn.functional.conv1d(x, x)
    assert str(error.value).startswith(
        f"aten::convolution_overrideable is not available on {DEVICE}: it would fall back to the CPU, "
    )


def test_tensors_in_a_dictionary_would_stay_on_the_cpu() -> None:
    library = torch.library.Library("guards", "DEF")
    library.define("named(Tensor x) -> Dict(str, Tensor)")
    library.impl("named", lambda x: {"one": x + 1}, "CPU")
    library.define("several(Tensor x) -> (Tensor, Tensor[], int)")
    library.impl("several", lambda x: (x + 1, [x + 2], 3), "CPU")
    tensor = torch.ones(2, device=DEVICE)
    assert refusal(NotImplementedError, torch.ops.guards.named, tensor) == (
        f"guards::named is not available on {DEVICE}: it falls back to the CPU, and its result is a "
        "Dict[str, Tensor], in which tensors would stay there. Let the operator return Tensor or Tensor[], "
        "or call it on the CPU: move its arguments there with .cpu()."
    )
    one, (two,), three = torch.ops.guards.several(tensor)
    assert (one.device, two.device, three) == (tensor.device, tensor.device, 3)
    assert two.tolist() == [3, 3]
