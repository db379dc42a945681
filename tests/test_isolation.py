"""Isolated test files, as whoever runs pytest sees them: names, outcomes, selection, and what dies."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from xml.etree import ElementTree

import pytest

import fork_server

Pytest = Callable[..., subprocess.CompletedProcess[str]]

CONFTEST = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import isolation

def pytest_configure(config):
    config.pluginmanager.register(isolation.Plugin(config), "isolation")
"""

INI = """
[pytest]
addopts = -p no:opsmith --strict-markers -rs
xfail_strict = true
markers =
    isolated: runs in a process of its own
    compiles: everything here
    nightly: not by day
"""

IMPORTS = "import os, signal, time\nfrom pathlib import Path\nimport pytest\n"

OUTCOMES = """
    pytestmark = pytest.mark.isolated

    def test_passes():
        with open("ran", "a") as file:
            file.write("passes ")

    def test_fails():
        print("printed before")
        assert 1 + 1 == 3

    def test_skips():
        pytest.skip("no such thing here")

    @pytest.mark.xfail(reason="a known gap")
    def test_fails_as_declared():
        assert False

    @pytest.mark.xfail(reason="a gap that was closed")
    def test_passes_unexpectedly():
        pass

    @pytest.fixture
    def broken():
        yield
        raise OSError("in the teardown")

    def test_ends_badly(broken):
        pass

    @pytest.mark.parametrize("number", [1, 2, 3])
    def test_is_odd(number):
        with open("ran", "a") as file:
            file.write(f"odd-{number} ")
        assert number % 2
"""

PROCESSES = """
    pytestmark = pytest.mark.isolated(OPSMITH_TEST_MODE=("", "b", "c"), nightly=("c",))

    def test_mode():
        with open("ran", "a") as file:
            file.write(f"{os.environ['OPSMITH_TEST_MODE']}:{os.getpid()} ")

    @pytest.mark.parametrize("number", [1, 2])
    def test_number(number):
        test_mode()
"""


@pytest.fixture
def run(tmp_path: Path) -> Pytest:
    """Runs pytest with arguments on the files that are given by name, which are written first."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text(INI)

    def run(*arguments: str, **files: str) -> subprocess.CompletedProcess[str]:
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(IMPORTS + dedent(text))
        (tmp_path / "ran").write_text("")
        return fork_server.run([sys.executable, "-m", "pytest", *arguments], cwd=tmp_path)

    return run


def ran(folder: Path) -> list[str]:
    """The names that the tests wrote as they ran."""
    return (folder / "ran").read_text().split()


def summary(done: subprocess.CompletedProcess[str]) -> str:
    """The last line, without the time, and without the warnings of plugins about being forked."""
    return re.sub(r"(, \d+ warnings?)? in .*", "", done.stdout.splitlines()[-1]).strip("= ")


def test_outcomes_are_those_of_the_process(run: Pytest) -> None:
    done = run("-v", test_it=OUTCOMES)
    assert summary(done) == "4 failed, 1 passed, 1 skipped, 1 xfailed"
    outcomes = dict(re.findall(r"^test_it\.py::(\w+) ([A-Z]+)", done.stdout, re.MULTILINE))
    assert outcomes == {
        "test_passes": "PASSED",
        "test_fails": "FAILED",
        "test_skips": "SKIPPED",
        "test_fails_as_declared": "XFAIL",
        "test_passes_unexpectedly": "FAILED",
        "test_ends_badly": "FAILED",
        "test_is_odd": "FAILED",
    }
    for text in (
        "E       assert (1 + 1) == 3",
        "printed before",
        "SKIPPED [1] test_it.py:16: no such thing here",
        "OSError: in the teardown",
        "1 of 3 cases failed:\ntest_it.py::test_is_odd[2]\n",
        "isolated tests: 9 cases",
    ):
        assert text in done.stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-k", "odd"], ["odd-1", "odd-2", "odd-3"]),
        (["test_it.py::test_passes"], ["passes"]),
        (["test_it.py::test_is_odd[3]"], ["odd-3"]),
        (["test_it.py::test_is_odd[3]", "test_it.py::test_passes"], ["odd-3", "passes"]),
    ],
)
def test_only_what_is_selected_runs(
    run: Pytest, tmp_path: Path, arguments: list[str], expected: list[str]
) -> None:
    run(*arguments, test_it=OUTCOMES)
    assert sorted(ran(tmp_path)) == sorted(expected)


def test_a_case_that_does_not_exist(run: Pytest) -> None:
    done = run("test_it.py::test_is_odd[7]", test_it=OUTCOMES)
    assert summary(done) == "1 failed"
    assert "test_it.py::test_is_odd has no case [7]; it has [1], [2], [3]" in done.stdout


def test_the_last_failed_cases_run_again(run: Pytest, tmp_path: Path) -> None:
    run("-k", "passes or odd", test_it=OUTCOMES)
    assert summary(run("--lf", "-k", "odd")) == "1 failed, 1 deselected"
    assert ran(tmp_path) == ["odd-2"]
    done = run("--lf", "-k", "odd", test_it=OUTCOMES.replace("[1, 2, 3]", "[1, 3]"))
    assert "test_it.py::test_is_odd has no case [2]; it has [1], [3]" in done.stdout
    run("--lf", "-k", "odd")
    assert ran(tmp_path) == ["odd-1", "odd-3"]


def test_durations_and_junit_are_of_each_test(run: Pytest, tmp_path: Path) -> None:
    slow = "pytestmark = pytest.mark.isolated\ndef test_fast(): pass\ndef test_slow(): time.sleep(0.3)\n"
    done = run("--durations=1", "--junit-xml=report.xml", test_it=slow)
    assert re.search(r"0\.3\ds call +test_it.py::test_slow", done.stdout)
    cases = ElementTree.parse(tmp_path / "report.xml").getroot().iter("testcase")
    assert [case.get("name") for case in cases] == ["test_fast", "test_slow"]


def test_each_value_has_a_process_which_files_of_a_folder_share(
    run: Pytest, tmp_path: Path
) -> None:
    done = run("-v", "-m", "not nightly", test_it=PROCESSES, test_too=PROCESSES)
    assert summary(done) == "8 passed, 4 deselected"
    assert "test_it.py::test_mode[default] PASSED" in done.stdout
    assert "test_too.py::test_number[b] PASSED" in done.stdout
    modes = [test.split(":")[0] for test in ran(tmp_path)]
    assert sorted(modes) == [""] * 6 + ["b"] * 6
    assert len(set(ran(tmp_path))) == 2
    run("test_too.py::test_number[b-2]")
    assert len(ran(tmp_path)) == 1


def test_workers_get_whole_processes(run: Pytest, tmp_path: Path) -> None:
    tests = Path(__file__).parent
    found = f"import sys\nsys.path.insert(0, {str(tests)!r})\nimport device_memory\n"
    text = (tests / "conftest.py").read_text().replace("import device_memory\n", found)
    (tmp_path / "conftest.py").write_text(text)
    done = run("-n", "2", test_it=PROCESSES, test_too=PROCESSES)
    assert summary(done) == "12 passed", done.stdout + done.stderr
    assert len(set(ran(tmp_path))) == 3


def test_a_process_that_dies(run: Pytest) -> None:
    died = """
        pytestmark = pytest.mark.isolated

        def test_before(): pass

        @pytest.mark.parametrize("number", [1, 2])
        def test_dies(number):
            if number == 2:
                os.write(2, b"last words")
                os.kill(os.getpid(), signal.SIGSEGV)

        def test_after(): pass
    """
    done = run("--capture=no", test_it=died)
    assert summary(done) == "2 failed, 1 passed"
    ended = "the process ended with SIGSEGV while it ran test_it.py::test_dies[2]"
    assert f"\n{ended}\n" in done.stdout
    assert f"\nnot run because {ended}\n" in done.stdout


def test_a_process_that_dies_after_its_tests(run: Pytest) -> None:
    dies = """
        pytestmark = pytest.mark.isolated

        import atexit
        atexit.register(os.abort)

        def test_one(): pass
        def test_two(): pass
    """
    done = run(test_it=dies)
    assert summary(done) == "1 failed, 1 passed"
    assert "all tests ran, and then the process ended with SIGABRT" in done.stdout


def test_a_process_that_does_not_end(run: Pytest) -> None:
    hangs = "pytestmark = pytest.mark.isolated(timeout=15)\ndef test_hangs(): time.sleep(600)\n"
    done = run(test_it=hangs)
    assert "the process did not end within 15 s while it ran test_it.py::test_hangs" in done.stdout


def test_a_file_that_cannot_be_imported(run: Pytest) -> None:
    broken = """
        pytestmark = pytest.mark.isolated
        raise OSError("no backend")
        def test_one(): pass
        def test_two(): pass
    """
    done = run(test_it=broken, test_too="pytestmark = pytest.mark.isolated\ndef test_too(): pass\n")
    assert summary(done) == "3 failed"
    assert done.stdout.count("OSError: no backend") >= 2
    ended = "not run because the process ended with status 2: see test_it.py::test_one"
    assert f"\n{ended}\n" in done.stdout


def test_a_mark_that_cannot_be_read(run: Pytest) -> None:
    done = run(test_it="pytestmark = [pytest.mark.isolated]\ndef test_one(): pass\n")
    assert re.search(r"test_it\.py:4: the file is not imported to read the mark", done.stdout)


def test_a_file_that_skips_itself(run: Pytest) -> None:
    skips = """
        pytestmark = pytest.mark.isolated
        pytest.skip("not on this machine", allow_module_level=True)
        def test_one(): pass
    """
    depends = """
        pytestmark = pytest.mark.isolated(OPSMITH_TEST_MODE=("a", "b"))

        if os.environ["OPSMITH_TEST_MODE"] == "b":
            def test_of_b(): pass
    """
    done = run(test_it=skips, test_too=depends)
    assert summary(done) == "1 passed, 2 skipped"
    assert "SKIPPED [1] test_it.py:7: not on this machine" in done.stdout
    assert "SKIPPED [1] test_too.py:8: the file has no such test for a" in done.stdout
