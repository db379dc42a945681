"""Failures in ``.ci/run``: those that do not happen again are flaky, all others stop it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

import fork_server
import reruns

Pytest = Callable[..., subprocess.CompletedProcess[str]]

CONFTEST = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import isolation, reruns

def pytest_configure(config):
    config.pluginmanager.register(isolation.Plugin(config), "isolation")
    reruns.register(config)
"""

IMPORTS = """
import os, signal, time
from pathlib import Path
import pytest

def first_time(name):
    with open("ran", "a") as file:
        file.write(f"{name} ")
    return Path("ran").read_text().split().count(name) == 1
"""

FLAKY = """
    def test_flaky():
        print("printed the first time")
        assert not first_time("flaky")
"""
BROKEN = """
    def test_broken():
        assert first_time("broken") is None
"""
PASSING = """
    def test_passes():
        first_time("passing")
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pytest:
    """Runs pytest as ``.ci/run`` does, on a file with these tests, in so many processes."""
    monkeypatch.setenv(reruns.VARIABLE, "1")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\naddopts = -p no:opsmith\nmarkers =\n    isolated: alone\n    nightly: not by day\n"
    )

    def run(*tests: str, processes: int = 1) -> subprocess.CompletedProcess[str]:
        (tmp_path / "test_it.py").write_text("".join([IMPORTS, *map(dedent, tests)]))
        (tmp_path / "ran").write_text("")
        workers = ["-n", str(processes)] if processes > 1 else []
        return fork_server.run([sys.executable, "-m", "pytest", "-q", *workers], cwd=tmp_path)

    return run


def closing(done: subprocess.CompletedProcess[str]) -> str:
    """The last line, without the time, and without the warnings of plugins about being forked."""
    counts, _, _ = done.stdout.splitlines()[-1].partition(" in ")
    return ", ".join(each for each in counts.split(", ") if "warning" not in each)


def ran(folder: Path) -> list[str]:
    return sorted((folder / "ran").read_text().split())


@pytest.mark.parametrize("processes", [1, 2])
def test_what_passes_alone_is_flaky_and_stops_nothing(
    run: Pytest, tmp_path: Path, processes: int
) -> None:
    done = run(FLAKY, PASSING, processes=processes)
    assert (done.returncode, closing(done)) == (0, "1 passed, 1 flaky"), done.stdout + done.stderr
    assert ran(tmp_path) == ["flaky", "flaky", "passing"]
    _, told = done.stdout.split(" flaky: passed alone; add to tests/flaky.md ")
    assert "test_it.py::test_flaky" in told
    assert "E       AssertionError: assert not True" in told
    assert "printed the first time" in told


@pytest.mark.parametrize("processes", [1, 2])
def test_what_fails_twice_stops_it(run: Pytest, tmp_path: Path, processes: int) -> None:
    done = run(FLAKY, BROKEN, PASSING, processes=processes)
    assert (done.returncode, closing(done)) == (1, "1 failed, 1 passed, 1 flaky")
    assert ran(tmp_path) == ["broken", "broken", "flaky", "flaky", "passing"]
    assert "FAILED test_it.py::test_broken" in done.stdout
    assert "FAILED test_it.py::test_flaky" not in done.stdout


def test_cases_setups_and_isolated_files(run: Pytest, tmp_path: Path) -> None:
    cases = """
        @pytest.fixture
        def ends_badly():
            yield
            assert not first_time("teardown")

        @pytest.mark.parametrize("text", ["a b", "c::d[e]"])
        def test_case(text, ends_badly):
            assert not first_time(text.replace(" ", "_"))
    """
    done = run(cases)
    # One of them fails in its call and after it too.
    assert (done.returncode, closing(done)) == (0, "2 flaky"), done.stdout
    isolated = """
        pytestmark = pytest.mark.isolated(OPSMITH_TEST_MODE=("", "b"))

        @pytest.mark.parametrize("number", [1, 2])
        def test_number(number):
            assert number == 1 or not first_time(os.environ["OPSMITH_TEST_MODE"] + "mode")
    """
    done = run(isolated)
    assert (done.returncode, closing(done)) == (0, "2 flaky"), done.stdout
    assert ran(tmp_path) == ["bmode", "bmode", "mode", "mode"]
    assert "test_it.py::test_number[b]" in done.stdout


def test_a_worker_that_dies(run: Pytest) -> None:
    dies = """
        def test_dies():
            if first_time("dies"):
                os.kill(os.getpid(), signal.SIGKILL)
    """
    done = run(dies, PASSING, processes=2)
    assert (done.returncode, closing(done)) == (0, "1 passed, 1 flaky"), done.stdout
    assert "crashed while running 'test_it.py::test_dies'" in done.stdout


def test_what_is_skipped_the_second_time_has_failed(run: Pytest) -> None:
    done = run("""
        def test_skips():
            if first_time("skips"):
                assert False
            pytest.skip("not now")
    """)
    assert (done.returncode, closing(done)) == (1, "1 failed")


def test_many_failures_are_not_run_again(run: Pytest, tmp_path: Path) -> None:
    done = run(f"""
        @pytest.mark.parametrize("number", range({reruns.MOST + 1}))
        def test_each(number):
            assert not first_time(str(number))
    """)
    assert (done.returncode, closing(done)) == (1, f"{reruns.MOST + 1} failed")
    assert len(ran(tmp_path)) == reruns.MOST + 1


@pytest.mark.parametrize("processes", [1, 2])
def test_a_file_that_cannot_be_collected(run: Pytest, processes: int) -> None:
    done = run("raise OSError('no file')\n", FLAKY, processes=processes)
    assert done.returncode != 0
    assert closing(done) == {1: "1 error", 2: "2 errors"}[processes]  # each process has its own


def test_an_interrupted_run_is_not_continued(run: Pytest, tmp_path: Path) -> None:
    interrupted = """
        def test_interrupted():
            raise KeyboardInterrupt
    """
    done = run(FLAKY, interrupted)
    assert (done.returncode, closing(done)) == (2, "1 failed")
    assert ran(tmp_path) == ["flaky"]


def test_nothing_is_run_again_unasked(
    run: Pytest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(reruns.VARIABLE)
    done = run(FLAKY)
    assert (done.returncode, closing(done)) == (1, "1 failed")
    assert ran(tmp_path) == ["flaky"]
