"""How calls end that may be refused, and their warnings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def refusal(
    kind: type[BaseException], call: Callable[..., object], *arguments: Any, **options: Any
) -> str:
    """The text of the error of ``kind`` that ``call`` raises."""
    with pytest.raises(kind) as caught:
        call(*arguments, **options)
    return str(caught.value)


def outcome(call: Callable[..., object], *arguments: object) -> object:
    """The result of the call, or the type of the exception that it raises."""
    try:
        return call(*arguments)
    except Exception as error:
        return type(error)


def printed_warnings(capfd: pytest.CaptureFixture[str], warned: pytest.WarningsRecorder) -> str:
    """The warnings of ``torch.ops``: Python's from torch 2.15 on, printed by C++ before."""
    return capfd.readouterr().err + "".join(str(each.message) for each in warned)
