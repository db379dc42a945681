"""A process's own policy for the fallback: ``opsmith.fallback()`` and ``OPSMITH_FALLBACK``.

The tests call operators that no shipped library has a kernel for.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest
import torch

import fork_server
import opsmith
from opsmith.description import read_backend
from opsmith.errors import OperatorUnknown, PolicyInvalid
from opsmith.plan import Route, resolve
from opsmith.runtime import LoadedBackend
from opsmith.schema import Catalogue, torch_version

DRIVER = Path(opsmith.__file__).parent / "drivers" / "sim"


def message(error: pytest.ExceptionInfo[BaseException]) -> str:
    return str(error.value)


@pytest.fixture
def x(sim: LoadedBackend) -> torch.Tensor:
    return torch.arange(6.0, device="sim").reshape(2, 3)


# ---- the context manager


def test_deny(x: torch.Tensor) -> None:
    with opsmith.fallback("deny"), pytest.raises(NotImplementedError) as error:
        x.lgamma()
    assert message(error) == (
        "aten::lgamma is not available on sim: it would fall back to the CPU, which "
        '`opsmith.fallback("deny")` denies; `opsmith explain lgamma` says why. It was called with '
        "self float32[2, 3] on sim:0. Add a kernel for it to one of the backend's libraries:\n"
        "  - op: lgamma\n"
        "    kernel_name: sim::lgamma\n"
        "or leave the `with` block that denies it."
    )
    assert torch.equal(x.lgamma().cpu(), x.cpu().lgamma())


def test_deny_leaves_kernels_alone(x: torch.Tensor) -> None:
    with opsmith.fallback("deny"):
        assert torch.equal((x + x).relu().cpu(), x.cpu() * 2)


def test_deny_only(x: torch.Tensor) -> None:
    with opsmith.fallback("deny", only=["digamma"]):
        x.lgamma()
        for call in (lambda: x.digamma(), lambda: x.clone().digamma_()):  # the whole group
            with pytest.raises(NotImplementedError, match=r"only=\['digamma'\]"):
                call()


@pytest.mark.parametrize("mode", ["cpu", "warn"])
def test_allow_only(x: torch.Tensor, mode: str) -> None:
    with opsmith.fallback(mode, only="aten::lgamma"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x.lgamma()
        with pytest.raises(NotImplementedError, match="is not available on sim"):
            x.digamma()


def test_warn(x: torch.Tensor) -> None:
    with opsmith.fallback("warn"), pytest.warns(UserWarning) as warned:
        result = x.lgamma()
    assert torch.equal(result.cpu(), x.cpu().lgamma())
    assert str(warned[0].message).startswith(
        "aten::lgamma runs on the CPU, because sim has no kernel for this call; "
        "`opsmith explain lgamma` says why"
    )
    assert warned[0].filename == __file__


def test_the_block_entered_last_holds(x: torch.Tensor) -> None:
    with opsmith.fallback("deny"):
        with opsmith.fallback("cpu"):
            x.lgamma()
        with pytest.raises(NotImplementedError):
            x.lgamma()
    with pytest.raises(ValueError, match="my own"), opsmith.fallback("deny"):
        raise ValueError("my own")
    x.lgamma()


def test_it_holds_for_all_threads_and_for_backward(x: torch.Tensor) -> None:
    leaf = x.clone().requires_grad_()
    result = leaf.lgamma().sum()
    raised: list[BaseException] = []

    def work() -> None:
        try:
            x.lgamma()
        except NotImplementedError as error:
            raised.append(error)

    with opsmith.fallback("deny"):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert len(raised) == 1
        with pytest.raises(NotImplementedError, match="is not available on sim"):
            result.backward()


def test_no_policy(x: torch.Tensor) -> None:
    with pytest.raises(PolicyInvalid) as error, opsmith.fallback("denied"):
        pass
    assert message(error) == (
        '`opsmith.fallback("denied")` is no fallback policy (did you mean deny?)\n'
        "  remedy: write `deny`, `warn` or `cpu`; for named operators only, "
        '`OPSMITH_FALLBACK=deny:topk,sort` or `opsmith.fallback("deny", only=["topk", "sort"])`'
    )
    with pytest.raises(OperatorUnknown, match=r"has no operator `cumsun` \(did you mean cumsum"):  # noqa: SIM117
        with opsmith.fallback("deny", only=["cumsun"]):
            pass
    x.lgamma()


def test_another_librarys_operator_may_be_named(sim: LoadedBackend) -> None:
    library = torch.library.Library("policytest", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CPU")
    x = torch.ones(2, device="sim")
    assert torch.ops.policytest.twice(x).tolist() == [2, 2]
    with opsmith.fallback("deny", only=["policytest::twice"]):  # noqa: SIM117
        with pytest.raises(NotImplementedError, match="policytest::twice is not available on sim"):
            torch.ops.policytest.twice(x)


# ---- the environment, and a description that denies


def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return fork_server.run(
        [sys.executable, "-c", dedent(program)], env={**os.environ, **environment}
    )


PROGRAM = """
    import opsmith, torch
    opsmith.load("sim")
    x = torch.ones(3, device="sim")
    x.lgamma()
    print("lgamma")
    x.digamma()
    print("digamma")
"""


@pytest.mark.usefixtures("sim")
def test_the_environment_denies() -> None:
    done = run(PROGRAM, OPSMITH_FALLBACK="deny")
    assert (done.stdout, done.returncode) == ("", 1)
    assert "fall back to the CPU, which `OPSMITH_FALLBACK=deny` denies; " in done.stderr
    assert done.stderr.endswith("or run without OPSMITH_FALLBACK, or with another value.\n")
    done = run(PROGRAM, OPSMITH_FALLBACK="deny:digamma, kthvalue")
    assert (done.stdout, done.returncode) == ("lgamma\n", 1)
    done = run(PROGRAM, OPSMITH_FALLBACK="cpu:lgamma")
    assert (done.stdout, done.returncode) == ("lgamma\n", 1)
    done = run(PROGRAM, OPSMITH_FALLBACK="")
    assert (done.stdout, done.returncode) == ("lgamma\ndigamma\n", 0)


@pytest.mark.usefixtures("sim")
def test_a_block_in_the_program_wins_over_the_environment() -> None:
    program = """
        import opsmith, torch
        with opsmith.fallback("cpu"):
            opsmith.load("sim")
            torch.ones(3, device="sim").lgamma()
        torch.ones(3, device="sim").lgamma()
    """
    done = run(program, OPSMITH_FALLBACK="deny")
    assert done.returncode == 1
    assert "line 6" in done.stderr


@pytest.mark.usefixtures("sim")
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("dney", "`OPSMITH_FALLBACK=dney` is no fallback policy (did you mean deny?)"),
        ("deny:topkk", f"torch {torch_version()} has no operator `topkk` (did you mean topk?)"),
    ],
)
def test_the_environment_says_no_policy(value: str, text: str) -> None:
    done = run(PROGRAM, OPSMITH_FALLBACK=value)
    assert (done.stdout, done.returncode) == ("", 1)
    assert text in done.stderr
    again = """
        import opsmith
        for _ in range(2):
            try:
                opsmith.load("sim")
            except opsmith.OpsmithError as error:
                print(error.message)
        with opsmith.fallback("deny", only=["sort"]):
            pass
    """
    done = run(again, OPSMITH_FALLBACK=value)
    assert done.stdout.count(text) == 2  # nothing was loaded half-way
    assert done.returncode == 0, done.stderr


def test_the_process_may_allow_what_the_description_denies(tmp_path: Path) -> None:
    backend = tmp_path / "backend.yaml"
    backend.write_text("backend: chip\ndriver: sim\nfallback: none\n")
    program = f"""
        import opsmith, torch, pytest
        opsmith.load({str(backend)!r})
        x = torch.ones(1, 1, 3).to("chip")
        with pytest.raises(NotImplementedError, match="the backend has no fallback"):
            x.cumsum(0)
        with pytest.raises(NotImplementedError) as error:
            torch.nn.functional.conv1d(x, x)
        assert "convolution_overrideable is not available on chip" in str(error.value), error.value
        assert "has the CPU compute it; the backend has no fallback" in str(error.value), error.value
        with opsmith.count_fallbacks() as block, opsmith.fallback("cpu"):
            assert x.cumsum(2).tolist() == [[[1, 2, 3]]]
            assert torch.nn.functional.conv1d(x, x).tolist() == [[[3]]]
        assert {{count.operator for count in block.fallbacks.counts}} == {{
            "cumsum.out", "convolution_overrideable"
        }}
    """
    done = run(program)
    assert done.returncode == 0, done.stderr


def test_convolutions_follow_the_policy(
    describe: Callable[..., Path], catalogue: Catalogue
) -> None:
    for fallback, route in (("cpu", Route.FALLBACK), ("none", Route.MISSING)):
        path = describe(fallback=fallback)
        plan = resolve(read_backend(path, catalogue), catalogue)
        assert plan.entry("convolution_overrideable").route is route
        assert plan.entry("convolution_backward_overrideable").route is route
