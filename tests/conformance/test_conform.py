"""``opsmith conform``: what it finds, how it says so, and what survives crashes, hangs and Ctrl-C."""

from __future__ import annotations

import copy
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from command import run_opsmith
from fork_server import obey_interrupts
from opsmith import conformance
from opsmith.base.cache_folder import cache_root
from opsmith.cli.earlier import current_arguments
from opsmith.conformance.database import EntryFacts, known_entries
from opsmith.conformance.expected_failures import (
    everything,
    read_expected_failures,
    with_expected_failures,
    with_unexpected_passes,
)
from opsmith.conformance.junit import write_junit
from opsmith.conformance.ledger import read_ledger
from opsmith.conformance.results import (
    Check,
    Results,
    Status,
    Verdict,
    latest_path,
    read_results,
    write_results,
)
from opsmith.conformance.selection import select
from opsmith.description import find_backend, read_backend
from opsmith.errors import ExpectedFailureInvalid, Location, OpsmithError
from opsmith.plan import resolve
from opsmith.runtime import LoadedBackend
from opsmith.schema import Catalogue, torch_release
from opsmith.schema.recorded import shown

FAULTS = Path(__file__).with_name("faults.py")


def conform(*arguments: str, status: int = 0) -> tuple[dict[str, Any], str]:
    return called("conform", *arguments, status=status)


def called(*arguments: str, status: int = 0) -> tuple[dict[str, Any], str]:
    """Runs a command; the last line's JSON, where it prints some, and all that it printed."""
    done = run_opsmith(*arguments)
    assert done.returncode == status, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1] if done.stdout else ""
    return json.loads(last) if last.startswith("{") else {}, done.stdout + done.stderr


@pytest.fixture(autouse=True, scope="module")
def own_results_are_kept() -> Iterator[None]:
    """The latest results of sim are the developer's: what is planted here must not stay among them."""
    latest = latest_path(find_backend("sim"))
    before = latest.read_bytes() if latest.exists() else None
    yield
    if before is not None:
        latest.write_bytes(before)
    else:
        latest.unlink(missing_ok=True)


@pytest.fixture(scope="session")
def known(sim: LoadedBackend) -> tuple[EntryFacts, ...]:
    return known_entries(cache_root())


# ---- what it finds


@pytest.mark.usefixtures("sim")
def test_planted_faults_are_found_and_named(tmp_path: Path) -> None:
    output, junit = tmp_path / "results.json", tmp_path / "junit.xml"
    operators = ["sinh", "atan", "erfinv", "expm1", "cosh", "index_select"]
    summary, printed = conform(
        *(part for name in operators for part in ("--op", name)),
        *("--dtype", "float64", "--check", "forward", "--check", "mixed-dtypes"),
        *("--samples", "3", "--timeout", "10"),
        *("--kernels", str(FAULTS), "-o", str(output), "--junit", str(junit), "--json"),
        status=1,
    )
    found = {failure["entry"]: failure for failure in summary["failures"]}
    assert {name: found[name]["status"] for name in found} == {
        "sinh": "failed",
        "atan": "failed",
        "erfinv": "timed out",
        "expm1": "crashed",
        "index_select": "failed",
    }
    assert found["sinh"]["message"].startswith("sample 0, (float64[20, 20]): result 0 differs by ")
    assert "RuntimeError('this unit has no doubles')" in found["atan"]["message"]
    assert found["erfinv"]["message"] == "no end after 10 s, in sample 0"
    assert found["expm1"]["message"] == "the process was ended by SIGSEGV, in sample 0"
    assert found["index_select"]["message"].startswith(
        "sample 2, (float64[5, 5], -1, int32[5]): result 0 differs by "
    )
    assert summary["totals"]["passed"] == 2
    assert summary["scores"] == [
        {"check": "forward", "dtype": "float64", "passed": 2, "total": 6},
        {"check": "mixed-dtypes", "dtype": "float64", "passed": 0, "total": 1},
    ]
    assert "timed out: erfinv float64 forward: no end after 10 s, in sample 0" in printed

    results = conformance.read_results(output)
    assert results.complete and results.is_bad and results.samples == 3
    assert {verdict.entry for verdict in results.verdicts} == set(operators)
    assert "cosh" in results.operators["cosh"]
    assert {verdict.entry for verdict in results.of_operator("cosh")} == {"cosh"}

    suite = next(iter(ElementTree.parse(junit).getroot()))
    assert dict(suite.items()) | {"time": ""} == {
        "name": "forward", "tests": "6", "failures": "2", "errors": "2", "skipped": "0", "time": "",
    }  # fmt: skip
    crashed = suite.find("testcase[@classname='forward.expm1']/error")
    assert crashed is not None
    assert crashed.get("message", "").startswith("crashed: the process was ended by SIGSEGV")


@pytest.mark.usefixtures("sim")
@pytest.mark.parametrize(
    ("host_window", "samples"),
    [("on", 0), ("off", 1), pytest.param("off", 0, marks=pytest.mark.nightly)],
)
def test_sim_conforms_in_float32(
    host_window: str, samples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The promise of docs/observe/conformance.md: no bad verdict, and at most five expected failures."""
    monkeypatch.setenv("OPSMITH_HOST_WINDOW", host_window)
    outcome = conformance.run("sim", dtypes=["float32"], checks=["forward"], samples=samples)
    results = outcome.results
    assert [verdict for verdict in results.verdicts if verdict.status.is_bad] == []
    passed, total = conformance.scores(results.verdicts)[Check.FORWARD, "float32"]
    assert total > 710 and total - passed <= 5
    assert sum(verdict.samples for verdict in results.verdicts) > (700 if samples else 18_000)
    assert "linear" in results.operators["nn.functional.linear"]


# ---- what is chosen


def names(known: tuple[EntryFacts, ...], *operators: str) -> list[str]:
    chosen = select(known, operators, (), (), called={}, aten=())
    return [facts.name for facts in chosen.entries]


def test_operators_by_entry_pattern_and_aten_name(known: tuple[EntryFacts, ...]) -> None:
    assert len(names(known)) > 740
    assert names(known, "div") == [
        "div.no_rounding_mode",
        "div.trunc_rounding",
        "div.floor_rounding",
    ]
    assert names(known, "div.floor_rounding") == ["div.floor_rounding"]
    assert set(names(known, "linalg.l*")) > {"linalg.lu", "linalg.lstsq", "linalg.ldl_solve"}
    assert names(known, "aten::cumsum.out") == ["cumsum"]
    assert names(known, "softplus") == ["nn.functional.softplus"]
    called = select(known, ["mm.out"], (), (), called={"matmul": ["mm", "mm.out"]}, aten=())
    assert {facts.name for facts in called.entries} == {"mm", "matmul"}


def test_a_check_is_made_where_an_entry_has_it(known: tuple[EntryFacts, ...]) -> None:
    chosen = select(known, ["cumsum"], ["int64", "float32"], (), called={}, aten=())
    checks = {unit.dtype: [check.value for check in unit.checks] for unit in chosen.units()}
    everywhere = [
        "forward",
        "out",
        "in-place",
        "non-contiguous",
        "empty",
        "dtypes",
        "mixed-dtypes",
        "determinism",
    ]
    assert checks["int64"] == [*everywhere, "meta", "boundary"]
    assert checks["float32"] == ["forward", "backward", *everywhere[1:], "meta", "boundary"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"operators": ["cumsun"]}, "there is no operator `cumsun` (did you mean cumsum, "),
        ({"dtypes": ["float23"]}, "there is no dtype `float23` (did you mean float32, "),
        ({"checks": ["foward"]}, "there is no check `foward` (did you mean forward"),
        ({"operators": ["_cudnn_rnn"]}, "OpInfo has no entry about `_cudnn_rnn`, and none called it"),
        ({"kernels": Path("no.py")}, "there is no file `no.py`"),
        ({"expected_failures": Path("no.yaml")}, "there is no file no.yaml"),
        ({"backend": "simm"}, "there is no backend `simm` (did you mean sim?)"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("sim")
def test_what_cannot_be_meant(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OpsmithError) as error:
        conformance.run(**options)
    assert error.value.message.startswith(message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["conform", "--check", "backwards"], "there is no check `backwards` (did you mean backward?)\n  "
         "remedy: name one of forward, backward, out, in-place, non-contiguous, empty, dtypes, mixed-dtypes"),
        (["fuzz", "-o", "no/such/r.json"], "`no/such/r.json` cannot be written: No such file or directory"),
        (["upstream", "torchcts"], "TorchCTS is not installed, or psutil, which it needs, is not\n  remedy: "
         "pip install --no-deps torchcts, and pip install psutil pytest expecttest numpy"),
        (["upstream", "/nowhere"], "`/nowhere` is no source checkout of PyTorch: it has no test/test_*.py\n"
         f"  remedy: git clone --depth 1 --branch v{shown(torch_release())}.0 https://github.com/"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("known")
def test_commands_that_cannot_be_meant(arguments: list[str], message: str) -> None:
    assert called(*arguments, status=1)[1].startswith(f"error: {message}")


@pytest.mark.parametrize(
    ("earlier", "now", "name"),
    [
        ("conform sim --gaps g.yaml", "conform sim --expected-failures g.yaml", "--expected-failures"),
        ("conform sim --fuzz 9 -j 1", "fuzz --programs 9 sim -j 1", "`opsmith fuzz --programs`"),
        ("conform sim --upstream=p --file t", "upstream p sim --file t", "`opsmith upstream`"),
        ("conform --torchcts --file t", "upstream torchcts --file t", "`opsmith upstream torchcts`"),
        ("conform sim --op add", "conform sim --op add", ""),
        ("import conform --fuzz", "import conform --fuzz", ""),
    ],
)  # fmt: skip
def test_calls_of_earlier_versions(
    earlier: str, now: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert current_arguments(earlier.split()) == now.split()
    warned = (
        f" is called {name} now, and the next version of opsmith no longer takes the old form\n"
    )
    assert capsys.readouterr().err.endswith(warned if name else "")


@pytest.mark.usefixtures("sim")
def test_kernels_that_cannot_be_registered_stop_the_run(tmp_path: Path) -> None:
    kernels = tmp_path / "kernels.py"
    kernels.write_text("import nothing_of_that_name\n")
    _, printed = conform("--op", "cosh", "--kernels", str(kernels), status=1)
    assert f"error: `{kernels}` raises\n" in printed
    assert "No module named 'nothing_of_that_name'" in printed


class _Nobody:
    def at(self, sample: int, *, on_device: bool) -> None:
        pass


@pytest.mark.usefixtures("sim")
def test_what_the_description_refuses_is_not_claimed(
    describe: Callable[..., Path], catalogue: Catalogue
) -> None:
    import torch

    from opsmith.conformance.database import entries
    from opsmith.conformance.subject import Subject

    kernels = """
        - {op: add.out, kernel_name: chip::add, dtypes: [Float, Int]}
        - {op: cumsum.out, kernel_name: chip::cumsum, dtypes: {self: [Double]}}
    """
    plan = resolve(read_backend(describe(kernels, fallback="none"), catalogue), catalogue)

    def refused(dtype: torch.dtype, *operators: str) -> str:
        subject = Subject("add", entries()["add"], dtype, "chip", plan, 0, 0, _Nobody())
        return subject.refused(frozenset(operators)) or subject.declared(frozenset(operators))

    assert refused(torch.float32, "add.out").startswith("`chip::add` (")
    assert refused(torch.float32, "add.out").endswith(") declares Float")
    assert refused(torch.float64, "add.out").startswith(
        "the description refuses `add.out` in Double: "
    )
    assert refused(torch.float64, "cumsum.out").endswith(") declares Double")
    assert refused(torch.float64, "erfinv.out").startswith("the description refuses `erfinv.out`: ")


@pytest.mark.parametrize(
    ("is_right", "status", "message"),
    [
        (True, Status.PASSED, ""),
        (
            False,
            Status.FAILED,
            "sample 0, (bfloat16[5], float32[5]), which the CPU refuses (RuntimeError('dot : expected both "
            "vectors to have same dtype, but found BFloat16 and Float')): result 0 differs by ",
        ),
    ],
)  # fmt: skip
def test_a_device_may_compute_what_the_cpu_refuses(
    is_right: bool, status: Status, message: str, sim: LoadedBackend
) -> None:
    import torch

    from opsmith.conformance.checks import examine
    from opsmith.conformance.database import entries
    from opsmith.conformance.subject import Subject

    def dot(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        if one.device.type == "cpu":
            return one.dot(other)
        return one.float().dot(other.float()) * is_right

    info = copy.copy(entries()["dot"])
    info.op = dot
    subject = Subject("dot", info, torch.float32, sim.name, sim.plan, 1, 0, _Nobody())
    finding = examine(subject, Check.MIXED_DTYPES)
    assert (finding.status, finding.message[: len(message)]) == (status, message)


# ---- interrupted, and gone on with


@pytest.mark.usefixtures("sim")
def test_an_interrupted_run_is_kept_and_continued(
    sim: LoadedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["--op", "nn.functional.*", "--dtype", "float32", "--check", "forward", "--json"]
    latest = latest_path(find_backend("sim"))
    process = subprocess.Popen(
        [sys.executable, "-m", "opsmith", "conform", *arguments, "--seed", "7", "-j", "1"],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=obey_interrupts,
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        results = conformance.read_results(latest) if latest.exists() else None
        if results is not None and results.seed == 7 and results.verdicts:
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    summary = json.loads(printed.splitlines()[-1])
    assert not summary["complete"]
    first = conformance.read_results(latest)
    assert not first.complete and first.verdicts
    marked = replace(first.verdicts[0], message="made by the first run")
    latest.write_bytes(msgspec.json.encode(replace(first, verdicts=(marked, *first.verdicts[1:]))))

    summary, _ = conform(*arguments, "--seed", "7", "--resume")
    assert summary["complete"]
    resumed = {verdict.key: verdict for verdict in conformance.read_results(latest).verdicts}
    assert resumed[marked.key].message == "made by the first run"
    assert sum(summary["totals"].values()) > len(first.verdicts)

    _, printed = conform(*arguments, "--seed", "8", "--resume", status=1)
    assert printed == (
        "error: there is nothing to resume for `sim`: the latest run had --samples 0 --seed 7\n"
        "  remedy: run it without --resume\n"
    )


# ---- expected failures


def declared(text: str, tmp_path: Path) -> Path:
    path = tmp_path / "expected_failures.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "expected_failures:\n  - operators: [cumsun]\n    reason: x\n",
            "{path}:2:17: there is no operator `cumsun` (did you mean cumsum, ",
        ),
        (
            "expected_failures:\n  - {operators: [cumsum], checks: [foward], reason: x}\n",
            "{path}:2:36: there is no check `foward` (did you mean forward",
        ),
        (
            "expected_failures:\n  - {operators: [cumsum], dtypes: [Float], reason: x}\n",
            "{path}:2:36: there is no dtype `Float` (did you mean float",
        ),
        (
            "expected_failures:\n  - operators: [cumsum]\n",
            "{path}:2:5: the key `reason` is missing",
        ),
        (
            "expected_failures:\n  - operators: [cumsum]\n    reason: ''\n",
            "{path}:3:5: the reason of this expected failure is empty",
        ),
    ],
)  # fmt: skip
def test_expected_failures_that_cannot_be_meant(
    text: str, message: str, known: tuple[EntryFacts, ...], tmp_path: Path
) -> None:
    path = declared(text, tmp_path)
    with pytest.raises(OpsmithError) as error:
        read_expected_failures(path.with_name("backend.yaml"), known)
    assert str(error.value).startswith(message.format(path=path))
    assert isinstance(error.value, ExpectedFailureInvalid) or "missing" in message


def test_the_old_names_of_expected_failures(known: tuple[EntryFacts, ...], tmp_path: Path) -> None:
    path = tmp_path / "gaps.yaml"
    path.write_text("# known\ngaps:\n  - {operators: [cumsum], reason: so}\n")
    with pytest.warns(FutureWarning) as warned:
        (failure,) = read_expected_failures(tmp_path / "backend.yaml", known)
    assert failure.location == Location(path, 3, 5)
    assert [
        (each.filename, each.lineno, str(each.message).partition(",")[0]) for each in warned
    ] == [
        (str(path), 1, "`gaps.yaml` is called `expected_failures.yaml` now"),
        (str(path), 2, "`gaps` is called `expected_failures` now"),
    ]


def test_results_of_the_first_format(tmp_path: Path) -> None:
    verdicts = tuple(
        Verdict("cumsum", check, "float32", status, message="so")
        for check, status in (
            (Check.FORWARD, Status.EXPECTED_FAILURE),
            (Check.OUT, Status.UNEXPECTED_PASS),
            (Check.META, Status.PASSED),
        )
    )
    results = Results("chip", "2.13.0", "backend.yaml", "", "", complete=True, verdicts=verdicts)
    path = tmp_path / "results.json"
    write_results(results, path)
    text = path.read_text().replace('"expected failure"', '"gap"')
    text = text.replace('"unexpected pass"', '"gap passes"').replace('"format":2', '"format":1')
    path.write_text(text)
    assert read_results(path).verdicts == verdicts


def judged(
    text: str, failing: set[str], known: tuple[EntryFacts, ...], tmp_path: Path
) -> dict[str, Status]:
    """How forward runs of ``cumsum`` and ``cumprod`` in two dtypes are judged, by entry and dtype."""
    expected = read_expected_failures(declared(text, tmp_path).with_name("backend.yaml"), known)
    entries = tuple(facts for facts in known if facts.name in {"cumsum", "cumprod"})
    small = tuple(replace(facts, dtypes=("float32", "int64")) for facts in entries)
    could_run = [
        key for key in everything(small) if key[2] is Check.FORWARD and key[1] in small[0].dtypes
    ]
    verdicts = [
        Verdict(
            entry, check, dtype, Status.FAILED if f"{entry} {dtype}" in failing else Status.PASSED
        )
        for entry, dtype, check in could_run
    ]
    made = with_unexpected_passes(
        [*with_expected_failures(verdicts, expected)], expected, could_run
    )
    return {f"{verdict.entry} {verdict.dtype}": verdict.status for verdict in made}


def test_an_expected_failure_fails_no_run_and_one_that_passes_does(
    known: tuple[EntryFacts, ...], tmp_path: Path
) -> None:
    judge: Callable[[str, set[str]], dict[str, Status]] = lambda text, failing: judged(  # noqa: E731
        f"expected_failures:\n  - {{{text}, reason: so}}\n", failing, known, tmp_path
    )
    one = {"cumsum float32"}
    assert judge("operators: [cumsum]", one) == {
        "cumprod float32": Status.PASSED, "cumprod int64": Status.PASSED,
        "cumsum float32": Status.EXPECTED_FAILURE, "cumsum int64": Status.PASSED,
    }  # fmt: skip
    # Every word must be true: neither a dtype nor a pattern may be declared beside one that fails.
    passes = judge("operators: [cumsum], dtypes: [float32, int64]", one)
    assert (
        passes["cumsum int64"] is Status.UNEXPECTED_PASS
        and passes["cumsum float32"] is Status.EXPECTED_FAILURE
    )
    passes = judge("operators: [cumsum, cumprod]", one)
    assert passes["cumprod int64"] is Status.UNEXPECTED_PASS
    assert judge("operators: [cumprod]", one)["cumsum float32"] is Status.FAILED
    # A run that leaves something out cannot tell that nothing fails.
    expected = read_expected_failures(tmp_path / "backend.yaml", known)
    some = [Verdict("cumprod", Check.FORWARD, "float32", Status.PASSED)]
    assert with_unexpected_passes(some, expected, everything(known)) == some


@pytest.mark.usefixtures("sim")
def test_a_wrong_claim_and_an_unexpected_pass_fail_the_run(tmp_path: Path) -> None:
    expected = declared(
        "expected_failures:\n  - {operators: [cosh], checks: [dtypes], reason: so}\n", tmp_path
    )
    summary, _ = conform(
        *(
            "--op",
            "atan",
            "--op",
            "cosh",
            "--check",
            "dtypes",
            "--expected-failures",
            str(expected),
            "-j",
            "1",
        ),
        *("--kernels", str(FAULTS), "--json"),
        status=1,
    )
    (claim,) = [failure for failure in summary["failures"] if failure["status"] == "failed"]
    assert (claim["entry"], claim["dtype"]) == ("atan", "float64")
    assert claim["message"] == (
        f"OpInfo claims forward in float64 and `faults.wrong_claim` ({FAULTS}:21) declares Double, but "
        "sample 0, (float64[20, 20]) raises RuntimeError('this unit has no doubles')"
    )
    passing = [failure for failure in summary["failures"] if failure["status"] == "unexpected pass"]
    assert {failure["entry"] for failure in passing} == {"cosh"} and len(passing) > 10
    assert {failure["message"] for failure in passing} == {
        f"{expected}:2:5 declares that `cosh` fails, and it does not: take it out"
    }


# Elsewhere than on the CPU and on CUDA, PyTorch sums up in the input's dtype.
AS_ON_THE_CPU = """
import torch
from torch.nn.modules.linear_cross_entropy_options import LinearCrossEntropyOptions

adjust = LinearCrossEntropyOptions._adjust
LinearCrossEntropyOptions._adjust = lambda self, device, **call: adjust(
    self, device=torch.device("cpu"), **call
)
"""


@pytest.mark.usefixtures("sim")
def test_the_expected_failure_of_linear_cross_entropy_is_the_dtype_that_pytorch_sums_up_in(
    tmp_path: Path,
) -> None:
    chosen = tmp_path / "as_on_the_cpu.py"
    chosen.write_text(AS_ON_THE_CPU)
    expected = declared("expected_failures: []\n", tmp_path)
    summary, _ = conform(
        *("--op", "nn.functional.linear_cross_entropy.chunked*", "--dtype", "float16"),
        *(
            "--check",
            "forward",
            "--check",
            "backward",
            "--expected-failures",
            str(expected),
            "--json",
        ),
        *("--kernels", str(chosen)),
    )
    totals = summary["totals"]
    assert (totals["passed"], sum(totals.values())) == (4, 4)


# ---- PyTorch's own tests

VIEWS = """
import os, time
import pytest
import torch
from torch.testing._internal.common_utils import TestCase, run_tests
from torch.testing._internal.common_device_type import dtypes, instantiate_device_type_tests, onlyCUDA

class TestViews(TestCase):
    @dtypes(torch.float32, torch.complex64)
    def test_shares(self, device, dtype):
        base = torch.ones(4, 3, device=device, dtype=dtype)
        base.view(3, 4)[0, 0] = 5
        self.assertEqual(base[0, 0].item(), 5)

    def test_wrong(self, device):
        self.assertEqual(torch.ones(2, device=device), torch.zeros(2, device=device))

    def test_wrong_everywhere(self, device):
        self.assertEqual(device, "cuda")

    def test_known_to_fail(self, device):
        if device == "cpu":
            pytest.xfail("there, too")
        self.assertEqual(device, "cuda")

    def test_differs(self, device):
        self.assertEqual(device, "cpu")

    def test_subtest_fails_after_a_skipped_one(self, device):
        with self.subTest("skipped"):
            self.skipTest("not on this machine")
        with self.subTest("fails"):
            self.assertTrue(device == "cpu", "the second")

    def test_subtest_passes_after_a_skipped_one(self, device):
        with self.subTest("skipped"):
            self.skipTest("not on this machine")
        with self.subTest("passes"):
            self.assertEqual(torch.ones(2, device=device).sum().item(), 2)

    def test_ends_the_process(self, device):
        if not device.startswith("cpu"):
            os._exit(3)

    def test_hangs(self, device):
        time.sleep(0 if device == "cpu" else 1000)

    @onlyCUDA
    def test_of_cuda(self, device):
        raise AssertionError("never run")

class TestPlain(TestCase):
    def test_of_no_device(self):
        raise AssertionError("never run")

instantiate_device_type_tests(TestViews, globals())
if __name__ == "__main__":
    run_tests()
"""


@pytest.mark.usefixtures("sim")
def test_upstream_tests_run_on_the_device(tmp_path: Path) -> None:
    checkout = tmp_path / "pytorch"
    (checkout / "test").mkdir(parents=True)
    (checkout / "version.txt").write_text("2.8.0\n")
    (checkout / "test" / "test_view_ops.py").write_text(VIEWS)
    expected = declared(
        "expected_failures:\n  - operators: ['test_view_ops::*::test_wrong_sim']\n    reason: it is wrong\n",
        tmp_path,
    )
    ledger = tmp_path / "upstream_ledger.yaml"
    differs = "test_view_ops::TestViewsPRIVATEUSE1::test_differs_*"
    ledger.write_text(f"failing:\n  - tests: ['{differs}']\n    reason: it is of the CPU\n")
    arguments = [
        "upstream",
        str(checkout),
        "-j",
        "1",
        "--timeout",
        "10",
        "--expected-failures",
        str(expected),
        "--ledger",
        str(ledger),
    ]
    summary, printed = called(*arguments, "--json", status=1)
    installed = f"torch {shown(torch_release())}"
    assert f"warning: {checkout.resolve()} is a checkout of 2.8.0, and {installed}" in printed
    assert summary["totals"] == {
        "passed": 3, "failed": 1, "timed out": 1, "crashed": 1, "expected failure": 2,
        "unexpected pass": 0, "skipped": 3,
    }  # fmt: skip
    assert "2 skipped: the same test fails on the CPU" in printed
    of = "test_view_ops::TestViewsPRIVATEUSE1::"
    assert {failure["entry"]: failure["message"] for failure in summary["failures"]} == {
        f"{of}test_ends_the_process_sim": "the process ended itself with status 3",
        f"{of}test_hangs_sim": "no end after 10 s",
        f"{of}test_subtest_fails_after_a_skipped_one_sim": "AssertionError: False is not true : the second",
    }
    assert {failure["message"].partition(";")[0] for failure in summary["expected_failures"]} == {
        "it is wrong", "it is of the CPU",
    }  # fmt: skip
    scored = {(score["check"], score["dtype"]): score["passed"] for score in summary["scores"]}
    assert scored == {
        ("upstream", "float32"): 1, ("upstream", "complex64"): 1, ("upstream", ""): 1,
    }  # fmt: skip
    _, printed = called(*arguments, "--file", "test_view_op", status=1)
    assert "has no file `test_view_op.py` (did you mean test_view_ops.py?)" in printed


# The files of TorchCTS, with two of its tests.
TORCHCTS = {
    "psutil.py": "",
    "torchcts/__init__.py": "",
    "torchcts/conftest.py": """
        from pathlib import Path
        from runpy import run_path

        import pytest

        def pytest_sessionfinish(session):
            results = Path(session.config.getoption("--results-dir"))
            results.mkdir(exist_ok=True)
            (results / "chip_latest.json").touch()

        def pytest_addoption(parser):
            for option in ("level", "results-dir", "adaptive-isolation", "known-segfault-policy", "device"):
                parser.addoption(f"--{option}")

        @pytest.fixture
        def manifest():
            return run_path("manifest.py")["manifest"]
        """,
    "torchcts/core/__init__.py": "",
    "torchcts/core/result_artifacts.py": """
        def load_result_artifact(path):
            detail = "requires capabilities: named_tensor"
            skipped = ("::test_names[dtype0]", "torchcts/opinfo/test_forward.py::test_add")
            return {"skips": {test: {"detail": detail} for test in skipped}}
        """,
    "torchcts/operators/test_add.py": """
        import os

        import pytest
        import torch

        def test_add(manifest):
            assert manifest["capabilities"]["sparse"] and not manifest["capabilities"]["named_tensor"]
            device = manifest["device_name"]
            assert (torch.ones(2, device=device) + 1).tolist() == [2, 2]

        def test_count(manifest):
            assert manifest["device_count"] == 3

        def test_crash():
            os.abort()

        def test_behind_the_crash():
            pass

        @pytest.mark.parametrize("value", [0, 1])
        def test_less(value):
            assert value < 0

        def test_endless():
            while True:
                pass
        """,
}

LEDGER = """\
failing:
  - tests: [operators/test_add::test_count]
    reason: it can count to two
  - tests: [operators/test_add::test_behind_the_crash, "operators/test_add::test_less[*]"]
    reason: it is told less
left_out:
  - tests: [operators/test_add::test_endless]
    reason: it does not end
"""


def write_torchcts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in TORCHCTS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(dedent(text))
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)


@pytest.mark.usefixtures("sim")
def test_torchcts_runs_on_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_torchcts(tmp_path, monkeypatch)
    ledger = tmp_path / "ledger.yaml"
    ledger.write_text(LEDGER)
    call = ["upstream", "torchcts", "--file", "operators", "-j", "1"]
    summary, printed = called(*call, "--ledger", str(ledger), "--json", status=1)
    assert summary["totals"] == {
        "passed": 1, "failed": 0, "timed out": 0, "crashed": 1, "expected failure": 3,
        "unexpected pass": 1, "skipped": 2,
    }  # fmt: skip
    of = "torchcts/operators/test_add::"
    assert {failure["entry"]: failure["message"] for failure in summary["failures"]} == {
        f"{of}test_crash": "the process was ended by SIGABRT",
        f"{of}test_behind_the_crash": f"{ledger}:4:5 declares that `{of}test_behind_the_crash` "
        "fails, and it does not: take it out",
    }
    assert {failure["entry"]: failure["message"] for failure in summary["expected_failures"]} == {
        f"{of}test_count": "it can count to two; assert 2 == 3",
        f"{of}test_less[0]": "it is told less; assert 0 < 0",
        f"{of}test_less[1]": "it is told less; assert 1 < 0",
    }
    for line in (
        "2 expected failure: it is told less",
        "1 expected failure: it can count to two",
        "1 skipped: it does not end",
    ):
        assert line in printed
    skipped = {
        verdict["entry"]: verdict["message"]
        for verdict in json.loads(Path(summary["results"]).read_text())["verdicts"]
        if verdict["status"] == "skipped" and verdict["entry"].startswith(of)
    }
    assert skipped == {
        f"{of}test_endless": "it does not end",
        f"{of}test_names[dtype0]": "TorchCTS: requires capabilities: named_tensor",
    }
    _, printed = called("upstream", "torchcts", "--file", "operators/test_ad", status=1)
    assert (
        "TorchCTS has no file `operators/test_ad.py` (did you mean operators/test_add.py?)"
        in printed
    )


@pytest.mark.parametrize(
    ("ledger", "message"),
    [
        (
            "failing:\n  - {tests: [test_add], reason: why}",
            "{path}:2:14: `test_add` names no test\n  remedy: name it with its file: "
            "operators/test_add::test_binary[add-dtype0]",
        ),
        (
            "left_out:\n  - {tests: ['operators/test_add::*'], reason: why}",
            "{path}:2:14: `operators/test_add::*` names many tests",
        ),
        (
            "failing:\n  - {tests: ['operators/test_add::test_add'], reason: ' '}",
            "{path}:2:47: the reason of this entry is empty\n  remedy: say why",
        ),
    ],
)
def test_ledger_is_checked(ledger: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "torchcts_ledger.yaml"
    path.write_text(ledger)
    with pytest.raises(ExpectedFailureInvalid) as raised:
        read_ledger(path, prefix="torchcts/")
    assert str(raised.value).startswith(message.replace("{path}", str(path)))


def test_the_ledger_of_sim_can_be_read() -> None:
    ledger = read_ledger(find_backend("sim").with_name("torchcts_ledger.yaml"), prefix="torchcts/")
    assert ledger.failing
    assert all(entry.startswith("torchcts/") for entry in ledger.left_out)


# ---- files


def test_junit_holds_what_xml_cannot(tmp_path: Path) -> None:
    verdict = Verdict("add", Check.OUT, "int8", Status.FAILED, 1, 0.5, "\x00 < \ud800 & ä")
    results = Results("chip", "2.13", "b.yaml", "", "", True, (verdict,))
    path = tmp_path / "junit.xml"
    write_junit(results, path)
    failure = ElementTree.parse(path).getroot().find("testsuite/testcase/failure")
    assert failure is not None and failure.get("message") == "failed: ? < ? & ä"
