"""Messages on stderr of a build that somebody waits for, and their times."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fake_builds import fake_build
from opsmith.build import waiting
from opsmith.build.progress import Progress
from opsmith.build.waiting import ShownBuild
from small_builds import until

STEP = Progress("compiling kernels.cpp", 3, 7)
LOAD = "import sys, opsmith; opsmith.load(sys.argv[1])"


class Terminal(io.StringIO):
    """A terminal, which keeps what is written to it."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second is a hundredth of one."""
    monkeypatch.setattr(waiting, "_SILENT_SECONDS", 0.01)
    monkeypatch.setattr(waiting, "_SECONDS_BETWEEN_CHANGES", 0.01)
    monkeypatch.setattr(waiting, "_SECONDS_BETWEEN_LINES", 0.02)


def test_nothing_is_said_of_what_takes_less_than_a_second() -> None:
    stream = io.StringIO()
    with ShownBuild("the backend `chip`", stream) as report:
        report(STEP)
    assert stream.getvalue() == ""


def test_nothing_is_said_where_there_is_nothing_to_do(hurried: None) -> None:
    stream = io.StringIO()
    with ShownBuild("the backend `chip`", stream):
        time.sleep(0.05)
    assert stream.getvalue() == ""


def test_what_and_how_many_and_the_end(hurried: None) -> None:
    stream = io.StringIO()
    with ShownBuild("the backend `chip`", stream) as report:
        report(STEP)
        # The same step again, while it lasts.
        until(lambda: stream.getvalue().count("\n") >= 2)
    lines = stream.getvalue().splitlines()
    shown = "opsmith: building the backend `chip` (0 s): [3/7] compiling kernels.cpp"
    assert lines == [
        *[shown] * (len(lines) - 1),
        "opsmith: building the backend `chip`: done after 0 s",
    ]


def test_a_build_that_fails_is_not_done(hurried: None) -> None:
    stream = io.StringIO()
    with pytest.raises(ValueError, match="no"), ShownBuild("`chip`", stream) as report:
        report(STEP)
        until(lambda: "\n" in stream.getvalue())
        raise ValueError("no")
    assert stream.getvalue().endswith("opsmith: building `chip`: stopped after 0 s\n")


def test_on_a_terminal_one_line_changes(hurried: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    stream = Terminal()
    with ShownBuild("`a/rather/long/path/of/a/chip/backend.yaml`", stream) as report:
        report(STEP)
        until(lambda: stream.getvalue().count("\r") >= 2)
        report(Progress("linking", 7, 7))
        until(lambda: stream.getvalue().count("\r") >= 4)
    text = stream.getvalue()
    assert text.endswith("\n") and text.count("\n") == 1
    # One that is broken into two could not be taken back.
    lines = text.split("\r\x1b[2K")
    assert len(lines) > 4 and max(len(line.rstrip("\n")) for line in lines) == 59


@pytest.mark.parametrize("name", ["closed", "none", "strange"])
def test_a_stream_that_nobody_reads_stops_no_build(
    name: str, hurried: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = io.StringIO()
    closed.close()
    streams = {"closed": closed, "none": None, "strange": object()}
    monkeypatch.setattr(sys, "stderr", streams[name])
    steps = []
    with ShownBuild("`chip`") as report:
        report(STEP)
        time.sleep(0.05)
        steps.append(STEP)
    assert steps == [STEP]


def test_loading_says_what_is_built_and_nothing_once_it_is(tmp_path: Path) -> None:
    fake = fake_build(tmp_path)
    environment = {**os.environ, **fake.environment, "FAKE_SECONDS": "0.6"}
    said = [
        subprocess.run(
            [sys.executable, "-c", LOAD, str(fake.description)],
            capture_output=True,
            text=True,
            env=environment,
        )
        for _ in range(2)
    ]
    first, second = (re.findall(r"^opsmith: .*$", done.stderr, re.M) for done in said)
    what = rf"opsmith: building the backend `{fake.description}`"
    assert re.fullmatch(rf"{what} \(\d+ s\): (\[\d+/\d+\] )?[a-zA-Z].*", first[0])
    assert re.fullmatch(rf"{what}: done after \d+ s", first[-1])
    assert second == []
    # The built library is text: it is refused after the build was shown.
    assert all("opsmith.errors.LoadError: " in done.stderr for done in said)


def test_loading_on_a_terminal_changes_one_line(tmp_path: Path) -> None:
    fake = fake_build(tmp_path)
    ours, theirs = pty.openpty()
    environment = {**os.environ, **fake.environment, "FAKE_SECONDS": "0.6", "COLUMNS": "300"}
    process = subprocess.Popen(
        [sys.executable, "-c", LOAD, str(fake.description)], stderr=theirs, env=environment
    )
    os.close(theirs)
    text = b""
    try:
        while chunk := os.read(ours, 4096):
            text += chunk
    except OSError:
        pass  # the other end is closed
    finally:
        os.close(ours)
        process.wait(60)
    shown = text.decode().partition("Traceback")[0].split("\r\x1b[2K")[1:]
    assert all("\n" not in line for line in shown[:-1])
    assert any("] compiling runtime_" in line for line in shown)
    assert re.search(r": done after \d+ s\r\n$", shown[-1])
