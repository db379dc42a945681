"""How ``cudnn`` has convolutions computed, and those that cuDNN does not compute; in JSON.

Run by ``test_cudnn.py`` against the stand-in, which tells what it was called for.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import conv2d, conv_transpose2d

import opsmith

opsmith.load(str(Path(__file__).with_name("backend.yaml")))
called = ctypes.CDLL(os.environ["OPSMITH_CUDNN_LIBRARY"]).opsmith_stand_in_convolutions
called.restype = ctypes.c_char_p
image = torch.randn(2, 4, 5, 5)
weight = torch.randn(4, 4, 3, 3)


def seen(
    call: Callable[..., Tensor] = conv2d, form: Callable[[Tensor], Tensor] = Tensor.clone
) -> str:
    """The calls of cuDNN in the forward and the backward pass of ``call``."""
    operands = [form(each).to("cudnngpu").requires_grad_() for each in (image, weight)]
    called()
    call(*operands).sum().backward()
    return called().decode()


def refused(call: Callable[..., Tensor], *operands: Tensor) -> int:
    """How often the CPU was called for ``call``, which gives what it should."""
    start = opsmith.fallbacks()
    result = call(*(each.to("cudnngpu") for each in operands)).cpu()
    torch.testing.assert_close(result, call(*operands))
    return opsmith.fallbacks(since=start)["convolution_overrideable"].calls


def raised(call: Callable[..., Tensor], *operands: Tensor) -> str:
    try:
        call(*(each.to("cudnngpu") for each in operands))
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return "nothing"


found: dict[str, str | int] = {"TF32": seen()}
torch.backends.cudnn.allow_tf32 = False
found["float32"] = seen()
torch.backends.cudnn.deterministic = True
found["deterministic"] = seen()
torch.backends.cudnn.deterministic = False
found["bfloat16"] = seen(form=Tensor.bfloat16)
found["channels-last"] = seen(
    form=lambda each: each.half().contiguous(memory_format=torch.channels_last)
)
found["transposed"] = seen(conv_transpose2d)
with torch.inference_mode():
    found["groups"] = refused(
        lambda x, w: conv2d(x, w, groups=2), image.double(), weight[:, :2].double()
    )
    found["output_padding"] = refused(
        lambda x, w: conv_transpose2d(x, w, dilation=2, output_padding=1), image, weight
    )
    found["dtype"] = raised(conv2d, image, weight.double())
    torch.backends.cudnn.enabled = False
    found["disabled"] = refused(conv2d, image, weight)
    torch.backends.cudnn.enabled = True
    os.environ["OPSMITH_STAND_IN_CUDNN_STATUS"] = "3000"
    found["not supported"] = refused(conv2d, image, weight)
    os.environ["OPSMITH_STAND_IN_CUDNN_STATUS"] = "5000"
    found["failed"] = raised(conv2d, image, weight)
print(json.dumps(found))
