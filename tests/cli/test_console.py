"""Texts that others wrote, as commands print them."""

from __future__ import annotations

import pytest
import typer

from opsmith.cli import console
from opsmith.errors import ResultsInvalid


def test_a_text_does_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        console.fail(ResultsInvalid("no \x1b]0;title\x07 and \x9b2J", remedy="\x1b[31mred\ttape"))
    console.err.print("a reason\x1b[2J", markup=False)
    shown = capsys.readouterr().err
    assert "error: no \\x1b]0;title\\x07 and \\x9b2J" in shown
    assert "remedy: \\x1b[31mred" in shown
    assert "a reason\\x1b[2J" in shown
    assert not {"\x1b", "\x07", "\x9b"} & set(shown)
