"""Calls that OpInfo says are refused: sim refuses them with the words that PyTorch's own tests look for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

pytestmark = pytest.mark.usefixtures("sim")

REFUSING = {info.full_name: info for info in op_db if info.error_inputs_func is not None}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", REFUSING)
def test_what_pytorch_refuses_is_refused_alike(name: str) -> None:
    unlike = []
    for wanted, there in zip(questions(name, "cpu"), questions(name, "sim"), strict=False):
        if wanted.error_regex == there.error_regex and answers(name, wanted):
            error = raised(name, there)
            if not fits(there, error):
                unlike.append(f"{there.error_regex}: {error!r}")
    assert not unlike


def questions(name: str, device: str) -> Iterator[Any]:
    """The calls that the operator refuses; some are about the CPU, or about other devices, only."""
    torch.manual_seed(0)
    return iter(REFUSING[name].error_inputs(device))


def answers(name: str, question: Any) -> bool:
    """Whether the CPU raises what is expected: some declarations are out of date."""
    return fits(question, raised(name, question))


def raised(name: str, question: Any) -> Exception | None:
    sample = question.sample_input
    try:
        REFUSING[name](sample.input, *sample.args, **sample.kwargs)
    except Exception as error:
        return error
    return None


def fits(question: Any, error: Exception | None) -> bool:
    return isinstance(error, question.error_type) and bool(
        re.search(question.error_regex, str(error))
    )
