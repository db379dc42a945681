"""The convolutions of ``cudnn`` on the device of ``backend.yaml``, with their gradients, beside the CPU's.

Prints what differs.  Run by ``test_cudnn.py`` against the stand-in of NVIDIA's libraries; where there is a
GPU, tools/gpu/check runs it with a backend of its own, the one argument.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import opsmith

here = str(Path(__file__).with_name("backend.yaml"))
device = opsmith.load(sys.argv[1] if sys.argv[1:] else here).name
torch.backends.cudnn.allow_tf32 = False
TOLERANCES = {
    torch.float32: 1e-4,
    torch.float64: 1e-9,
    torch.float16: 2e-2,
    torch.bfloat16: 1e-1,
}
CASES: tuple[dict[str, Any], ...] = (
    {},
    {"padding": 1},
    {"stride": 2, "padding": 2},
    {"padding": 2, "dilation": 2},
    {"groups": 2},
    {"stride": 3, "padding": 2, "dilation": 2, "groups": 4},
)
CHANNELS, FILTERS = 4, 8
Form = Callable[[Tensor], Tensor]
# How an image lies in memory.
FORMS: dict[str, Form] = {
    "contiguous": lambda image: image,
    "channels-last": lambda image: image.contiguous(
        memory_format=torch.channels_last if image.dim() == 4 else torch.channels_last_3d
    ),
    "the second image": lambda image: image[1:],  # of float16 at an address that 16 does not divide
    "rows as columns": lambda image: image.transpose(-1, -2),
}


def gradients(
    call: Callable[..., Tensor], form: Form, device: str, operands: tuple[Tensor, ...]
) -> list[Tensor]:
    """The result of ``call`` on ``device`` and the gradients of its operands, the first in a form."""
    leaves = [each.detach().to(device).requires_grad_() for each in operands]
    result = call(form(leaves[0]), *leaves[1:])
    result.backward(result.detach() + 1)
    return [result.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)]


def differs(call: Callable[..., Tensor], form: Form, *operands: Tensor) -> bool:
    """Whether the device gives something else than the CPU, which computes halves in float32."""
    dtype = operands[0].dtype
    wide = torch.float32 if dtype.itemsize == 2 else dtype
    expected = gradients(call, form, "cpu", tuple(each.to(wide) for each in operands))
    found = gradients(call, form, device, operands)
    for theirs, ours in zip(expected, found, strict=True):
        theirs, ours = theirs.double(), ours.cpu().double()
        largest = theirs.abs().max().item() if theirs.numel() else 0.0
        bound = TOLERANCES[dtype] * max(1.0, largest)
        if not (theirs.shape == ours.shape and torch.allclose(ours, theirs, rtol=0, atol=bound)):
            return True
    return False


wrong = compared = 0
torch.manual_seed(0)
for dtype, dims, images, case, transposed in itertools.product(
    TOLERANCES, (1, 2, 3), (2, 0), CASES, (False, True)
):
    groups = case.get("groups", 1)
    if dtype is torch.float64 and groups > 1:
        continue  # the stand-in computes none
    channels = (CHANNELS, FILTERS // groups) if transposed else (FILTERS, CHANNELS // groups)
    image = torch.randn(images, CHANNELS, *(7, 5, 3)[:dims]).to(dtype)
    weight = torch.randn(*channels, *(3, 2, 3)[:dims]).to(dtype)
    bias = torch.randn(FILTERS).to(dtype)
    more = {"output_padding": 1} if transposed and "stride" in case else {}
    call = partial(getattr(functional, f"conv{'_transpose' * transposed}{dims}d"), **(case | more))
    for name, form in FORMS.items():
        if name != "contiguous" and (dims == 1 or images == 0):
            continue
        compared += 1
        if differs(call, form, image, weight, bias):
            wrong += 1
            print(f"{call} of {dtype}, {images} images, {name}")
on_cpu = {each.operator for each in opsmith.fallbacks().counts}
print(
    f"{wrong} of {compared} differ; on the CPU: {sorted(each for each in on_cpu if 'conv' in each)}"
)
sys.exit(wrong > 0)
