"""Sim's operators write to, and share memory with, what their schemas say.

PyTorch's SchemaCheckMode looks; autograd, ``torch.compile`` and ``vmap`` rely on it.  Samples are OpInfo's.
Where PyTorch's own CPU departs from a schema, sim may, too.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.schema_check_mode import SchemaCheckMode
from torch.testing._internal.common_methods_invocations import OpInfo, op_db

pytestmark = pytest.mark.usefixtures("sim")

SAID = (
    "is not defined to alias output",
    "is not defined as mutable but was mutated",
    "are not allowed to directly return inputs",
    "alias unexpectedly",
)


def calls(
    info: OpInfo, device: str, dtype: torch.dtype, samples: int
) -> Iterator[Callable[[], Any]]:
    """The operator, in place and with gradients, on its first samples."""
    gradients = info.supports_autograd and dtype.is_floating_point
    torch.manual_seed(0)
    for sample in itertools.islice(
        info.sample_inputs(device, dtype, requires_grad=gradients), samples
    ):
        given = (sample.args, sample.kwargs)

        def forward(operand: Any = sample.input, given: Any = given) -> None:
            results = info(operand, *given[0], **given[1])
            every = results if isinstance(results, tuple | list) else [results]
            roots = [each for each in every if isinstance(each, Tensor) and each.requires_grad]
            if roots:
                torch.autograd.backward(roots, [torch.ones_like(root) for root in roots])

        yield forward
        if info.inplace_variant is not None and isinstance(sample.input, Tensor):
            written = sample.input.detach().clone()
            yield lambda written=written, given=given: info.inplace_variant(
                written, *given[0], **given[1]
            )


def violations(info: OpInfo, device: str, dtype: torch.dtype, samples: int) -> set[str]:
    found = set()
    for call in calls(info, device, dtype, samples):
        try:
            with SchemaCheckMode():
                call()
        except Exception as error:  # a sample that the operator refuses in place, or in this dtype
            text = str(error)
            if any(said in text for said in SAID):
                found.add(f"{info.formatted_name}: {text}")
    return found


@pytest.mark.parametrize(
    ("dtype", "every", "samples"),
    [
        (torch.float32, 8, 1),
        pytest.param(torch.float32, 1, 20, marks=pytest.mark.nightly),
        pytest.param(torch.int64, 1, 20, marks=pytest.mark.nightly),
        pytest.param(torch.complex64, 1, 20, marks=pytest.mark.nightly),
        pytest.param(torch.bool, 1, 20, marks=pytest.mark.nightly),
    ],
    ids=lambda value: str(value).removeprefix("torch."),
)
def test_operators_write_and_alias_as_their_schemas_say(
    dtype: torch.dtype, every: int, samples: int
) -> None:
    found = set()
    for info in op_db[::every]:
        if dtype in info.dtypes and (ours := violations(info, "sim", dtype, samples)):
            found |= ours - violations(info, "cpu", dtype, samples)
    assert not found
