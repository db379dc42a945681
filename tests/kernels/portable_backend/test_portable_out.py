"""An `out` of another dtype than the result's, on the device and on the CPU: both cast, or both refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from device import DEVICE, LOADED
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo

# See ``device.py``.
pytestmark = pytest.mark.isolated(
    OPSMITH_PORTABLE_BACKEND=("sim", "portsim"), nightly=("portsim",), opinfo=True
)

OUTS = (torch.float64, torch.float32, torch.bfloat16, torch.int64, torch.int32, torch.bool)
SERVED = {
    entry.name.partition(".")[0]
    for entry in LOADED.plan.entries
    if entry.kernel is not None and entry.library == "portable"
}


def first_sample(info: OpInfo) -> Any | None:
    """The first one whose result is one Tensor with elements."""
    for sample in info.sample_inputs("cpu", torch.float32):
        if isinstance(sample.input, Tensor) and sample.input.numel():
            result = info.op(sample.input, *sample.args, **sample.kwargs)
            if isinstance(result, Tensor) and result.numel():
                return sample
    return None


SAMPLES = {
    info.formatted_name: (info, sample)
    for info in op_db
    if info.supports_out
    and info.aten_name in SERVED
    and torch.float32 in info.supported_dtypes("cpu")
    if (sample := first_sample(info)) is not None
}


def moved(sample: Any, device: str) -> Any:
    return sample.transform(lambda value: value.to(device) if isinstance(value, Tensor) else value)


def outcome(call: Callable[[], Tensor]) -> Tensor | str:
    """The result of a call, or the first line of its error."""
    try:
        return call().cpu()
    except (RuntimeError, TypeError, NotImplementedError) as error:
        return f"refused: {str(error).splitlines()[0]}"


def outcomes(info: OpInfo, sample: Any) -> Iterator[tuple[torch.dtype, Tensor | str, Tensor | str]]:
    shape = info.op(sample.input, *sample.args, **sample.kwargs).shape
    for dtype in OUTS:
        both = []
        for device in ("cpu", DEVICE):
            given = moved(sample, device)
            out = torch.zeros(shape, dtype=dtype, device=device)
            both.append(outcome(lambda: info.op(given.input, *given.args, **given.kwargs, out=out)))  # noqa: B023
        yield dtype, both[0], both[1]


@pytest.mark.parametrize("name", SAMPLES)
def test_an_out_of_another_dtype(name: str) -> None:
    for dtype, theirs, ours in outcomes(*SAMPLES[name]):
        if isinstance(theirs, str) or isinstance(ours, str):
            # The fallback's own word of it follows ATen's.
            assert isinstance(ours, str) and isinstance(theirs, str), dtype
            assert ours.startswith(theirs), dtype
        else:
            # Some of ATen's kernels round their operands to out's dtype first.
            near = 2e-2 if dtype == torch.bfloat16 else 1e-5
            torch.testing.assert_close(ours, theirs, rtol=near, atol=near, equal_nan=True)
