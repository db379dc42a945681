"""Accounting for fallbacks: the counts, ``opsmith fallbacks``, and the pytest fixture ``no_fallback``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from textwrap import dedent

import pytest
import torch

import fork_server
import opsmith
from command import run_opsmith
from fork_server import obey_interrupts
from host_window import HAS_HOST_WINDOW
from opsmith.errors import BudgetInvalid, FileMissing, LoadError, OperatorUnknown
from opsmith.observe.programs.fallbacks import added, first_kernel, read_gate
from opsmith.runtime import LoadedBackend
from opsmith.runtime.records.fallbacks import FallbackCount, Fallbacks, ranked
from opsmith.schema import Catalogue
from refusal import refusal

pytest_plugins = ["pytester"]


@pytest.fixture
def x(sim: LoadedBackend) -> torch.Tensor:
    return torch.arange(6.0, device="sim").reshape(2, 3)


# ---- counts


def test_calls_time_bytes_and_reason(x: torch.Tensor) -> None:
    before = opsmith.fallbacks()
    start = time.perf_counter()
    for _ in range(3):
        x.lgamma()
    elapsed = time.perf_counter() - start
    found = opsmith.fallbacks(since=before)
    (count,) = found.counts
    moved = 0 if HAS_HOST_WINDOW else 3 * 2 * x.nbytes
    assert (count.operator, count.calls, count.bytes_moved) == ("lgamma", 3, moved)
    assert 0 < count.seconds < 2 * elapsed  # two clocks
    assert found.seconds == count.seconds
    assert count.reason == (
        "no kernel in optimized, random, portable, runtime; the fallback runs it on the CPU "
        "(opsmith/drivers/sim/backend.yaml:2:1); as one call, where PyTorch's composite kernel would check "
        "and shape before the CPU does"
    )
    assert count.callers == {}  # nobody asked
    assert found["digamma"].calls == 0
    assert str(found).splitlines()[0].split() == [
        "operator",
        "calls",
        "ms",
        "MB",
        "moved",
        "reason",
    ]
    assert str(found).splitlines()[1].split()[:2] == ["lgamma", "3"]
    assert str(opsmith.fallbacks(since=opsmith.fallbacks())) == "no operator ran on the CPU"


def test_calls_that_raise_count_too(x: torch.Tensor) -> None:
    with opsmith.count_fallbacks() as block:
        with pytest.raises(IndexError):
            x.logcumsumexp(7)
        with opsmith.fallback("deny"), pytest.raises(NotImplementedError):
            x.logcumsumexp(0)
    count = block.fallbacks["_logcumsumexp"]
    assert (count.calls, count.denied, block.fallbacks.denied) == (1, 1, 1)


def test_callers_are_lines_of_ones_own(x: torch.Tensor) -> None:
    def here() -> str:
        return f"{__file__}:{sys._getframe(1).f_lineno}"

    lines: list[str] = []
    leaf = x.clone().requires_grad_()
    with opsmith.count_fallbacks() as block, torch.autograd.set_multithreading_enabled(False):
        x.erfinv(), lines.append(here())
        for _ in range(2):
            torch.nn.functional.mish(x)  # not PyTorch's own line
        result, _ = leaf.erfinv().sum(), lines.append(here())
        result.backward(retain_graph=True), lines.append(here())
        # On a thread without Python there is no line.
        with torch.autograd.set_multithreading_enabled(True):
            result.backward()
    callers = block.fallbacks["erfinv"].callers
    assert callers == dict.fromkeys([*lines, "backward of ErfinvBackward0"], 1)
    (inside,) = block.fallbacks["mish"].callers
    assert inside.startswith(f"{__file__}:")
    assert block.fallbacks["mish"].callers[inside] == 2
    with opsmith.count_fallbacks(callers=False) as block:
        x.erfinv()
    assert block.fallbacks["erfinv"].callers == {}


def test_a_caller_in_compiled_code_is_the_programs_line(tmp_path: Path, sim: LoadedBackend) -> None:
    """Inductor, which is slow to import, is asked where its code is running only."""
    program = tmp_path / "program.py"
    program.write_text(
        dedent("""
        import sys, opsmith
        opsmith.load("sim")
        import torch

        def values(x):
            return torch.linalg.svdvals(x * 2) + 1

        x = torch.ones(3, 4, device="sim")
        for is_compiled in (False, True):
            called = torch.compile(values) if is_compiled else values
            with opsmith.count_fallbacks() as block:
                called(x)
            print(*block.fallbacks["_linalg_svd"].callers.items(), "torch._inductor" in sys.modules)
        """)
    )
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor")}
    done = fork_server.run([sys.executable, program], env=environment, check=True)
    assert done.stdout.splitlines() == [
        f"('{program}:7', 1) False",
        f"('{program}:7', 1) True",
    ]


def test_threads_count_together_and_after_their_end(x: torch.Tensor) -> None:
    def work() -> None:
        for _ in range(50):
            x.lgamma()

    before = opsmith.fallbacks()
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert opsmith.fallbacks(since=before)["lgamma"].calls == 200


def test_an_operator_at_the_address_of_another(sim: LoadedBackend) -> None:
    for name in ("first", "second", "third"):
        library = torch.library.Library("countstest", "DEF")
        library.define(f"{name}(Tensor x) -> Tensor")
        library.impl(name, lambda x: x + 1, "CPU")
        with opsmith.count_fallbacks() as block:
            getattr(torch.ops.countstest, name)(torch.ones(1, device="sim"))
        (count,) = block.fallbacks.counts
        assert (count.operator, count.calls) == (f"countstest::{name}", 1)
        assert count.reason == "the plan does not list it: another library's operator"
        library._destroy()


def test_dtypes_that_a_kernel_lacks(sim: LoadedBackend) -> None:
    x = torch.ones(2, device="sim", dtype=torch.complex64)
    with opsmith.count_fallbacks() as block:
        x + x
    (count,) = block.fallbacks.counts
    assert "other dtypes: the fallback runs it on the CPU" in count.reason


def test_bytes_moved_without_a_window(tmp_path: Path) -> None:
    backend = tmp_path / "backend.yaml"
    backend.write_text("backend: chip\ndriver: {name: sim, host_window: off}\nfallback: cpu\n")
    program = f"""
        import opsmith, torch
        opsmith.load({str(backend)!r})
        x = torch.ones(1000).to("chip")
        with opsmith.count_fallbacks() as block:
            x.cumsum_(0)      # there and back
        assert block.fallbacks["cumsum_"].bytes_moved == 8000, block.fallbacks
        with opsmith.count_fallbacks() as block:
            x.equal(x)        # there, once
        assert block.fallbacks["equal"].bytes_moved == 4000, block.fallbacks
        with opsmith.count_fallbacks() as block, opsmith.fallback("deny"):
            x.double().clone().cpu()  # only the first computes
        (count,) = block.fallbacks.counts
        assert (count.operator, count.calls, count.bytes_moved) == ("_copy_from", 1, 12000), count
        assert count.reason == (
            "the kernel refused 1 call: the driver copies runs of bytes, and this copy casts or changes the "
            "layout"
        )
    """
    done = fork_server.run([sys.executable, "-c", dedent(program)])
    assert done.returncode == 0, done.stderr


def test_without_a_backend() -> None:
    program = "import opsmith; opsmith.fallbacks()"
    done = fork_server.run([sys.executable, "-c", program])
    assert done.stderr.endswith(
        "LoadError: no backend is loaded, so nothing can have fallen back\n"
        '  remedy: call opsmith.load("sim"), or another backend, first\n'
    )


# ---- the command


PROGRAM = """\
import sys, torch, opsmith
opsmith.load("sim")
x = torch.ones(6, device="sim")
for _ in range(int(sys.argv[1])):
    x.lgamma()
x.aminmax(dim=0)
print("done")
sys.exit(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
"""


@pytest.fixture
def program(tmp_path: Path, sim: LoadedBackend) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


opsmith_fallbacks = partial(run_opsmith, "fallbacks")


def test_the_command_shows_what_fell_back(program: Path) -> None:
    done = opsmith_fallbacks("--json", program.name, 5, cwd=program.parent)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "done"
    assert lines[1].strip() == "6 calls of 2 operators ran on the CPU"
    rows = {line.split()[1]: line for line in lines if line.startswith("│")}
    assert rows["lgamma"].split()[3] == "5"
    assert rows["lgamma"].endswith("│ program.py:5 ×5 │")
    assert "program.py:6 " in rows["aminmax"]
    first, last = (
        next(i for i, line in enumerate(lines) if line.startswith(start))
        for start in ("why: ", "write this kernel first: it would take ")
    )
    assert " ".join(line.strip() for line in lines[first : last - 1]) == (
        "why: no kernel in optimized, random, portable, runtime; the fallback runs it on "
        "the CPU (opsmith/drivers/sim/backend.yaml:2:1); as one call, where PyTorch's composite kernel "
        "would check and shape before the CPU does"
    )
    assert set(lines[last - 1].strip().split(", ")) == {"lgamma", "aminmax"}
    report = json.loads(lines[-1])
    assert (report["status"], report["calls"]) == (0, 6)
    assert report["bytes_moved"] == (0 if HAS_HOST_WINDOW else 272)
    assert {each["operator"]: each["calls"] for each in report["operators"]} == {
        "lgamma": 5,
        "aminmax": 1,
    }
    seconds = [each["seconds"] for each in report["operators"]]
    assert seconds == sorted(seconds, reverse=True)
    assert report["first_kernel"]["remedy"] in done.stdout


def test_the_programs_own_status_comes_first(program: Path) -> None:
    assert opsmith_fallbacks(program, 1, 7).returncode == 7
    assert opsmith_fallbacks("--budget", 0, program, 1, 7).returncode == 7
    program.write_text(PROGRAM.replace("sys.exit", "import os, signal\nos.kill(os.getpid(), 9)#"))
    done = opsmith_fallbacks(program, 1)
    assert done.returncode == 128 + signal.SIGKILL
    assert done.stderr == (
        f"{program} ended with status 137 and left no counts: it loaded no backend, or could not write "
        "them\n"
    )


def test_an_interrupted_program_is_reported(program: Path) -> None:
    lines = PROGRAM.splitlines()[:-1]  # all but its end
    waiting = ["import time", "print('waits', flush=True)", "time.sleep(60)"]
    program.write_text("\n".join([*lines, *waiting]))
    with subprocess.Popen(
        [Path(sys.executable).with_name("opsmith"), "fallbacks", program, "3"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=obey_interrupts,
    ) as running:
        assert running.stdout is not None
        while "waits" not in running.stdout.readline():
            assert running.poll() is None
        os.killpg(running.pid, signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "4 calls of 2 operators ran on the CPU" in out
    assert "KeyboardInterrupt" in err and "opsmith/" not in err  # the program's own traceback


def test_a_budget(program: Path) -> None:
    assert opsmith_fallbacks("--budget", 6, program, 5).returncode == 0
    done = opsmith_fallbacks("--budget", 5, program, 5)
    assert done.returncode == 1
    (failed,) = [line for line in done.stderr.splitlines() if line.startswith("failed")]
    assert failed.startswith("failed: 6 calls ran on the CPU, and 5 may: `")
    assert "`lgamma` 5" in failed


def test_allowing_and_forbidding(program: Path) -> None:
    allow = program.with_name("allowed.txt")
    allow.write_text("# known\nlgamma    # its whole group\n")
    done = opsmith_fallbacks("--allow", allow, program, 5)
    assert done.returncode == 1
    assert "1 call ran on the CPU, and 0 may beside those of --allow: `aminmax` 1" in done.stderr
    allow.write_text("lgamma\naten::aminmax\n")
    assert opsmith_fallbacks("--allow", allow, program, 5).returncode == 0
    done = opsmith_fallbacks("--fail-on", "topk", "--fail-on", "lgamma", program, 5)
    assert done.returncode == 1
    assert "failed: `lgamma` ran on the CPU in 5 calls, and --fail-on forbids it" in done.stderr
    assert opsmith_fallbacks("--fail-on", "topk", program, 5).returncode == 0


def test_a_program_that_loads_nothing(tmp_path: Path, sim: LoadedBackend) -> None:
    path = tmp_path / "plain.py"
    path.write_text("import torch\nprint(torch.ones(3, device='sim').erfinv().tolist())\n")
    done = opsmith_fallbacks("--backend", "sim", path)
    assert done.stdout.startswith("[inf, inf, inf]\n")
    assert "1 call of 1 operator ran on the CPU" in done.stdout
    path.write_text("")
    done = opsmith_fallbacks(path)
    assert done.returncode == 1
    assert done.stderr == (
        f"error: `{path}` loaded no backend, so nothing was counted\n"
        '  remedy: call opsmith.load("sim") in it, or have one loaded for it: opsmith fallbacks '
        f"--backend sim {path}\n"
    )
    done = opsmith_fallbacks("nowhere.py")
    assert done.stderr == (
        "error: there is no program `nowhere.py`\n"
        "  remedy: name a Python file, or a module after -m; options of opsmith stand before it\n"
    )
    assert opsmith_fallbacks("-m", "no_such_module").returncode == 1


def test_modules_and_child_processes_are_counted(program: Path) -> None:
    parent = program.with_name("parent.py")
    parent.write_text(
        "import multiprocessing, opsmith, torch\n"
        "def work(n):\n"
        "    opsmith.load('sim')\n"
        "    for _ in range(n): torch.ones(2, device='sim').lgamma()\n"
        "if __name__ == '__main__':\n"
        "    spawn = multiprocessing.get_context('spawn')\n"
        "    children = [spawn.Process(target=work, args=(n,)) for n in (2, 3)]\n"
        "    [child.start() for child in children], [child.join() for child in children]\n"
        "    work(1)\n"
    )
    done = opsmith_fallbacks("--json", "--no-callers", "-m", "parent", cwd=program.parent)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["calls"] == 6


def test_reports_add_up() -> None:
    one = Fallbacks((FallbackCount("a", 1, 1.0, 10, "r", {"f:1": 1}),))
    two = Fallbacks(
        (
            FallbackCount("b", 4, 9.0, 0, "r"),
            FallbackCount("a", 2, 2.0, 5, "s", {"f:1": 1, "g:2": 1}),
        )
    )
    assert added([one, two]).counts == (
        FallbackCount("b", 4, 9.0, 0, "r"),
        FallbackCount("a", 3, 3.0, 15, "r; s", {"f:1": 2, "g:2": 1}),
    )


def test_the_first_kernel_serves_a_whole_group(sim: LoadedBackend, catalogue: Catalogue) -> None:
    counts = [
        FallbackCount("lgamma.out", 1, 2.0, 0, ""),
        FallbackCount("lgamma_", 1, 2.0, 0, ""),
        FallbackCount("topk.values", 1, 3.0, 0, ""),
        FallbackCount("convolution_overrideable", 1, 1.0, 0, ""),
    ]
    advice = first_kernel(ranked(iter(counts)), sim.plan, catalogue)
    assert advice is not None
    assert (advice.operators, advice.seconds, advice.calls) == (("lgamma.out", "lgamma_"), 4.0, 2)
    assert advice.remedy == (
        "  - op: lgamma.out\n    kernel_name: sim::lgamma_out\n    structured: true"
    )
    # PyTorch has generated its out variant: a kernel is for the functional one.
    convolution = first_kernel(ranked(iter(counts[3:])), sim.plan, catalogue)
    assert convolution is not None
    assert convolution.remedy == (
        "  - op: convolution_overrideable\n    kernel_name: sim::convolution_overrideable"
    )
    served = first_kernel(
        Fallbacks((FallbackCount("add.out", 1, 1.0, 0, ""),)), sim.plan, catalogue
    )
    assert served is not None
    assert served.remedy.startswith("let the kernel `") and served.remedy.endswith(
        "take these calls too"
    )
    assert first_kernel(Fallbacks(()), sim.plan, catalogue) is None


def test_what_is_allowed_must_be_known(tmp_path: Path, catalogue: Catalogue) -> None:
    path = tmp_path / "allowed.txt"
    path.write_text("lgamma\n  srot # misspelt\n")
    assert refusal(OperatorUnknown, read_gate, catalogue, None, path, []) == (
        f"{path}:2:3: `{path}` names `srot`, and torch {catalogue.torch} has no such operator (did you "
        "mean sqrt, sort, sqrt_?)\n"
        "  remedy: name the overload too, as the table of `opsmith fallbacks` does"
    )
    path.write_text("torchvision::nms\ntopk\n")
    assert refusal(BudgetInvalid, read_gate, catalogue, None, path, ["topk"]) == (
        f"`topk` is allowed by {path} and forbidden by --fail-on\n"
        "  remedy: take it out of one of the two"
    )
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BudgetInvalid, match="is no text"):
        read_gate(catalogue, None, path, [])
    with pytest.raises(FileMissing, match="No such file or directory"):
        read_gate(catalogue, None, tmp_path / "nothing.txt", [])


# ---- the fixture


@pytest.fixture
def inner(
    pytester: pytest.Pytester, sim: LoadedBackend, monkeypatch: pytest.MonkeyPatch
) -> pytest.Pytester:
    """Runs pytest as a process, which has another home but the same built backends."""
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(sim.built.cache))
    return pytester


def test_no_fallback(inner: pytest.Pytester) -> None:
    inner.makepyfile(
        """
        import opsmith, pytest, torch

        @pytest.fixture(scope="session", autouse=True)
        def sim():
            return opsmith.load("sim")

        def test_kernels(no_fallback):
            torch.ones(2, device="sim") + 1

        def test_falls_back(no_fallback):
            torch.ones(2, device="sim").lgamma()

        def test_swallows(no_fallback):
            try:
                torch.ones(2, device="sim").digamma()
            except NotImplementedError:
                pass

        def test_excepts(no_fallback):
            with opsmith.fallback("cpu", only=["lgamma"]):
                torch.ones(2, device="sim").lgamma()

        def test_unconcerned():
            torch.ones(2, device="sim").lgamma()
        """
    )
    result = inner.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=3, failed=2)
    result.stdout.fnmatch_lines(
        [
            "E * aten::lgamma is not available on sim: it would fall back to the CPU, which *",
            "the test passed, but caught the exceptions that kept these operators from running on the "
            "CPU (calls): digamma (1)",
        ]
    )
    inner.makeini("[pytest]\nopsmith_allowed_fallbacks =\n    lgamma\n    digamma\n")
    inner.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=5)


def test_no_fallback_before_a_backend_is_loaded(inner: pytest.Pytester) -> None:
    inner.makepyfile(
        """
        import opsmith, torch

        def test_loads_late(no_fallback):
            opsmith.load("sim")
            torch.ones(2, device="sim").lgamma()
        """
    )
    result = inner.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E * aten::lgamma is not available on sim: *"])


def test_the_plugin_costs_nothing_unused() -> None:
    program = "import sys, opsmith.runtime.pytest_plugin; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_loading_is_asked_for(sim: LoadedBackend) -> None:
    from opsmith.runtime.loaded import loaded_backend

    assert loaded_backend() is sim
    assert issubclass(LoadError, opsmith.OpsmithError)
