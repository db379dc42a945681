"""``opsmith bench``: figures, goals, what changed, and benchmarks that do not run to their end."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

import pytest

from command import run_opsmith
from fork_server import obey_interrupts
from opsmith.base.cache_folder import cache_root
from opsmith.errors import BenchmarkUnknown, FileMissing
from opsmith.observe.benchmarks.measurements import Figure, Measurement, measured
from opsmith.observe.benchmarks.runs import (
    BenchmarkResult,
    BenchRun,
    Change,
    changes,
    choose,
    find_benchmarks,
    read_run,
)
from opsmith.plan import plan_backend
from refusal import refusal

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

ADDING = '''
"""Adding, beside subtracting.

More of it.
"""
from opsmith.observe.benchmarks.measurements import measured, report

report(
    "adding; peer: subtracting",
    [
        measured("fast", "µs", [1.0, 2.0, 3.0], [4.0], 0.6, operator="add.Tensor"),
        measured("slow", "s", [2000.0], goal=5),
    ],
)
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "benchmarks"
    folder.mkdir()
    (folder / "adding.py").write_text(ADDING.lstrip())
    (folder / "_shared.py").write_text("raise AssertionError('no benchmark')")
    return folder


def bench(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    return run_opsmith("bench", *arguments, **options)


# ---- figures


def test_a_figure_is_the_median_and_half_of_the_interquartile_range() -> None:
    assert Figure.of([4.0, 1.0, 2.0, 3.0, 5.0]) == Figure(3.0, pytest.approx(1 / 3), 5)
    assert Figure.of([7.0]) == Figure(7.0, 0.0, 1)
    assert str(Figure.of([4.0, 1.0, 2.0, 3.0, 5.0])) == "3 ±33%"
    assert str(Figure.of([12345.6])) == "12,346"


def test_a_goal_is_for_the_ratio_or_for_the_figure_itself() -> None:
    of_ratio = measured("a", "s", [2.0], [4.0], 0.6)
    assert (of_ratio.ratio, of_ratio.value, of_ratio.verdict) == (0.5, 0.5, "ok")
    of_time = measured("a", "s", [2.0], [4.0], 1.5, is_absolute=True)
    assert (of_time.ratio, of_time.value, of_time.verdict) == (0.5, 2.0, "missed")
    alone = measured("a", "s", [2.0])
    assert (alone.ratio, alone.value, alone.verdict) == (None, 2.0, "")


def run_of(*measurements: Measurement) -> BenchRun:
    result = BenchmarkResult("bench", "title", 1.0, measurements)
    return BenchRun("2.13.0", "a machine", "2026-01-01T00:00:00+00:00", (result,))


def test_a_change_is_certain_when_it_is_more_than_both_spreads() -> None:
    before = run_of(
        measured("steady", "s", [1.0], [2.0]),
        measured("noisy", "s", [1.0, 2.0, 3.0]),
        measured("slower", "s", [1.0], [2.0]),
        measured("gone", "s", [1.0]),
    )
    now = run_of(
        measured("steady", "s", [1.005], [2.0]),
        measured("noisy", "s", [1.2, 2.4, 3.6]),
        measured("slower", "s", [3.0], [4.0]),
        measured("new", "s", [1.0]),
    )
    assert changes(before, now) == (
        Change("bench", "slower", 0.5, 0.75, pytest.approx(0.5), True),
        Change("bench", "noisy", 2.0, 2.4, pytest.approx(0.2), False),
        Change("bench", "steady", 0.5, 0.5025, pytest.approx(0.005), False),
    )


# ---- the command


def test_what_there_is(folder: Path) -> None:
    done = bench("--list", cwd=folder.parent)
    assert (done.returncode, done.stdout) == (0, "adding: Adding, beside subtracting.\n")
    assert [each.name for each in find_benchmarks(folder)] == ["adding"]
    assert refusal(BenchmarkUnknown, lambda: choose(find_benchmarks(folder), ["ading"])) == (
        "there is no benchmark `ading` (did you mean adding?)\n  remedy: name some of: adding"
    )
    assert refusal(FileMissing, lambda: find_benchmarks(folder / "none")) == (
        f"there are no benchmarks in `{folder}/none`\n  remedy: name the folder of your scripts with "
        "--folder; opsmith's own are in its repository"
    )


def test_a_run_is_shown_kept_and_compared(folder: Path) -> None:
    done = bench("adding", "--json", "-o", "run.json", cwd=folder.parent)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].strip() == "adding: adding; peer: subtracting"
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if "│" in line]
    assert cells == [
        ["fast", "2 ±25%", "4", "µs", "0.500", "≤ 0.6", "ok"],
        ["slow", "2,000", "", "s", "", "≤ 5 s", "missed"],
    ]
    run = json.loads(lines[-1])["run"]
    assert run["results"][0]["measurements"][0]["operator"] == "add.Tensor"
    kept = read_run(folder.parent / "run.json")
    assert [each.name for each in kept.of_operator("add.Tensor")] == ["fast"]
    assert bench("--strict", cwd=folder.parent).returncode == 1  # a goal is missed

    script = folder / "adding.py"
    script.write_text(script.read_text().replace("[2000.0]", "[4000.0]"))
    done = bench("--against", "run.json", cwd=folder.parent)
    assert done.returncode == 0, done.stderr
    assert f"1 change of 2 measurements since {kept.started}" in done.stdout
    assert "│ adding: slow │   2000 │ 4000 │ +100.0% │" in done.stdout


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("print('half')\nraise SystemExit(3)", "failed: broken: it ended with status 3\nhalf\n"),
        ("print('no report')", "failed: broken: it did not end with a report\nno report\n"),
        ("", "failed: broken: it did not end with a report\n"),
    ],
)
def test_one_that_fails_is_named_and_the_others_run(
    folder: Path, script: str, message: str
) -> None:
    (folder / "broken.py").write_text(script)
    done = bench("broken", "adding", "--json", cwd=folder.parent)
    assert done.returncode == 1
    assert done.stderr == message
    results: list[Any] = json.loads(done.stdout.splitlines()[-1])["run"]["results"]
    assert [(each["name"], len(each["measurements"])) for each in results] == [
        ("broken", 0),
        ("adding", 2),
    ]


def test_an_interrupt_keeps_what_is_done(folder: Path) -> None:
    (folder / "endless.py").write_text(
        dedent(
            """
            import pathlib, time
            pathlib.Path("started").touch()
            time.sleep(60)
            """
        )
    )
    process = subprocess.Popen(
        [Path(sys.executable).with_name("opsmith"), "bench", "-o", "run.json", "adding", "endless"],
        cwd=folder.parent,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=obey_interrupts,
    )
    for _ in range(600):
        if (folder.parent / "started").exists():
            break
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.splitlines()[-1].strip() == "interrupted; what was measured so far is kept"
    kept = read_run(folder.parent / "run.json")
    assert [result.name for result in kept.results] == ["adding"]


# ---- the benchmark of starts


@pytest.fixture
def startup(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("startup")


def test_opsmiths_own_benchmarks_say_what_they_measure() -> None:
    found = {each.name: each.summary for each in find_benchmarks(BENCHMARKS)}
    assert "startup" in found
    assert [name for name, summary in found.items() if not summary] == []


def test_a_start_counts_what_it_compiled_and_the_time_of_its_children(
    startup: ModuleType, tmp_path: Path
) -> None:
    (tmp_path / "old.o").touch()
    os.utime(tmp_path / "old.o", (0, 0))
    (tmp_path / "kept.o").touch()
    script = """
import pathlib, subprocess, sys
pathlib.Path("objects").mkdir()
for name in ("objects/new.o", "old.o", "new.so"):
    pathlib.Path(name).touch()
busy = "import time; all(iter(lambda: time.process_time() < 0.3, False))"
subprocess.run([sys.executable, "-c", busy], check=True)
print("before")
print("last")
"""
    start = startup.started([sys.executable, "-c", script], tmp_path)
    assert (start.compilations, start.printed) == (2, "last")
    assert start.processors >= 0.3
    assert start.seconds > 0


def test_an_edit_that_was_not_built_ends_the_benchmark(startup: ModuleType, tmp_path: Path) -> None:
    source = tmp_path / "kernels.cpp"
    source.write_text("constexpr int kAdded = 0;\n")
    # In the place of a build: the sum is what the source says.
    read = "import sys; print(2 + int(open(sys.argv[1]).read().split()[-1].strip(';')))"
    side = startup.Side(tmp_path, read, source, source)
    side.edit()
    side.edit()
    assert side.start().printed == "4"
    source.write_text("constexpr int kAdded = 1;\n")
    with pytest.raises(ValueError, match="the sum is 3: the edit was not built"):
        side.start()


def test_a_first_backend_has_ten_structured_kernels_of_its_own(startup: ModuleType) -> None:
    plan = plan_backend(str(startup.SOURCES / "first" / "backend.yaml"), cache_root())
    own = [entry for entry in plan.entries if entry.library == "own" and entry.kernel]
    operators = {entry.kernel.operator for entry in own if entry.kernel.structured}
    assert len(operators) == 10, sorted(operators)
    assert "portable" in {entry.library for entry in plan.entries}


@pytest.mark.parametrize("text", ["", "constexpr int kAdded = 0;\n" * 2])
def test_a_source_that_cannot_be_edited_ends_the_benchmark(
    startup: ModuleType, tmp_path: Path, text: str
) -> None:
    source = tmp_path / "kernels.cpp"
    source.write_text(text)
    with pytest.raises(
        ValueError, match=r"kernels.cpp does not say `constexpr int kAdded = 0;` once"
    ):
        startup.Side(tmp_path, "", source, source)
