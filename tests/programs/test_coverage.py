"""``opsmith coverage``: of a backend, of programs, modules and exported graphs, and what to write next."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch

from command import run_opsmith
from opsmith.description import read_backend
from opsmith.errors import FileMissing, ProgramInvalid, ResultsInvalid
from opsmith.observe.explain.advice import HostCalls, kernels_to_write
from opsmith.observe.programs.coverage import (
    backend_coverage,
    entries_coverage,
    program_coverage,
    read_coverage,
)
from opsmith.observe.programs.module import ModuleProgram, made_by_factory, read_exported
from opsmith.plan import Route, resolve
from opsmith.runtime import LoadedBackend
from opsmith.runtime.records.calls import Calls, record_calls
from opsmith.schema import Catalogue
from refusal import refusal

NO_KERNEL = Path(__file__).parents[1] / "runtime" / "fallback_backend" / "zero_copy.yaml"


coverage = partial(run_opsmith, "coverage")


def last_json(done: subprocess.CompletedProcess[str]) -> Any:
    return json.loads(done.stdout.splitlines()[-1])


# ---- of a backend


def test_a_backend_is_covered_as_its_plan_says(sim: LoadedBackend, catalogue: Catalogue) -> None:
    aten, core = backend_coverage(sim.plan, catalogue)
    counts = Counter(entry.route for entry in sim.plan.entries if "::" not in entry.name)
    assert aten.routes == {route.value: counts[route] for route in Route}
    assert aten.total == sum(counts.values()) == len(catalogue.operators)
    tagged = [name for name, operator in catalogue.operators.items() if "core" in operator.tags]
    assert core.total == len(tagged) == sum(core.routes.values())
    assert core.routes["fallback"] <= core.on_cpu
    assert (aten.refused, core.refused) == (1, 0)  # _reshape_from_tensor would lose its gradient
    # sim's kernels are the host's; of the others, views and what allocates are the device's.
    assert core.places["on the host, in place"] > 150 > core.places["on the device"] > 10
    assert sum(core.places.values()) + core.refused <= core.total


def test_an_operator_with_a_part_on_the_host_is_the_hosts(
    describe: Callable[..., Path], catalogue: Catalogue
) -> None:
    kernels = """
        - {op: mul.out, kernel_name: chip::mul_out}
        - {op: addmm.out, kernel_name: chip::addmm_out, execution: host}
    """
    path = describe(kernels, driver="{sources: [driver.c], host_window: off}")
    plan = resolve(read_backend(path, catalogue), catalogue)
    entries = {
        "mul": ["mul.Tensor"],
        "linear": ["mul.Tensor", "addmm"],
        "sin": ["sin.out"],
        "view": ["as_strided"],
    }
    found = entries_coverage("entries", entries, plan)
    assert found.places == {
        "on the device": 2,
        "on the host, in place": 0,
        "on the host, on copies": 2,
    }
    (advice,) = kernels_to_write([HostCalls("addmm", 3, 1.0, 64)], plan, catalogue)
    assert advice.remedy == (
        "  - op: addmm.out\n    kernel_name: chip::addmm_out\n    structured: true"
    )


def test_the_route_of_an_entry_is_the_least_preferred_in_it(sim: LoadedBackend) -> None:
    entries = {
        "add": ["add.Tensor"],
        "mvlgamma": ["mvlgamma", "mul.Tensor", "lgamma_"],
        "linear": ["linear", "addmm", "as_strided"],
        "zeros": ["zeros"],
        "nothing": [],
    }
    found = entries_coverage("entries", entries, sim.plan)
    assert (found.name, found.total, found.on_cpu, found.refused) == ("entries", 5, 1, 0)
    assert {route: count for route, count in found.routes.items() if count} == {
        "derived": 2,
        "composite": 2,
        "fallback": 1,
    }


def test_what_is_decomposed_into_a_fallback_comes_to_the_cpu(
    sim: LoadedBackend, catalogue: Catalogue
) -> None:
    names = ("add.Tensor", "mvlgamma", "sinc")  # mvlgamma is made of lgamma_ and others
    small = replace(sim.plan, entries=tuple(sim.plan.by_name[name] for name in names))
    (aten, _) = backend_coverage(small, catalogue)
    assert (aten.total, aten.routes["fallback"], aten.on_cpu) == (3, 1, 2)


def test_the_command_shows_a_backend(catalogue: Catalogue) -> None:
    done = coverage("--json", "--no-opinfo")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].strip() == "how sim serves PyTorch's operators"
    report = last_json(done)
    assert [each["name"] for each in report["coverage"]] == ["ATen", "core ATen"]
    assert report["coverage"][0]["total"] == len(catalogue.operators)


# ---- of a program

PROGRAM = """
import sys

import opsmith
import torch

opsmith.load("sim")
x = torch.rand(300, 300, device="sim", requires_grad=True)
for _ in range(3):
    y = torch.lgamma(x + 1)
y.sum().backward()
torch.ones(2).add(1)
{end}
"""


def program(folder: Path, end: str = "") -> Path:
    path = folder / "program.py"
    path.write_text(PROGRAM.format(end=dedent(end)))
    return path


def test_a_program_is_covered_by_calls_time_and_route(tmp_path: Path) -> None:
    done = coverage("--json", "-o", tmp_path / "out.json", program(tmp_path))
    assert done.returncode == 0, done.stderr
    report = last_json(done)
    used = {each["name"]: each for each in report["operators"]}
    assert {
        name: (used[name]["route"], used[name]["calls"], used[name]["fell_back"])
        for name in ("add.Tensor", "lgamma", "sum", "digamma")
    } == {
        "add.Tensor": ("derived", 3, 0),
        "lgamma": ("fallback", 3, 3),
        "sum": ("derived", 1, 0),
        "digamma": ("fallback", 1, 1),  # in the backward
    }
    seconds = [each["seconds"] for each in report["operators"]]
    assert seconds == sorted(seconds, reverse=True)
    routes = {each["route"]: each for each in report["routes"]}
    assert {each["place"] for each in report["routes"]} <= {
        "on the device", "on the host, in place", "",
    }  # fmt: skip
    fallen = [each for each in report["operators"] if each["fell_back"]]
    assert routes["fallback"]["calls"] == sum(each["fell_back"] for each in fallen)
    assert routes["fallback"]["operators"] == len(fallen)
    assert sum(each["calls"] for each in report["routes"]) == sum(
        each["calls"] for each in report["operators"]
    )
    assert sum(each["seconds"] for each in report["routes"]) == pytest.approx(sum(seconds))
    assert report["elsewhere"] >= 2  # ones() and add() on the CPU
    kernels = {tuple(each["operators"]): each["remedy"] for each in report["kernels"]}
    assert kernels["lgamma",] == (
        "  - op: lgamma.out\n    kernel_name: sim::lgamma_out\n    structured: true"
    )
    assert read_coverage(tmp_path / "out.json").calls == sum(used[name]["calls"] for name in used)


@pytest.mark.parametrize(
    ("end", "status", "error"),
    [
        ("sys.exit(3)", 3, ""),
        ("raise ValueError('mine')", 1, "ValueError: mine"),
        ("import os; sys.stdout.flush(); os.kill(os.getpid(), 9)", 137, ""),
    ],
)
def test_a_program_that_ends_badly_keeps_its_status(
    tmp_path: Path, end: str, status: int, error: str
) -> None:
    done = coverage("--json", program(tmp_path, end))
    assert done.returncode == status
    assert error in done.stderr
    if status == 137:  # nothing can be written then
        assert "ended with status 137 and left no record" in done.stderr
    else:
        assert last_json(done)["status"] == status
        assert {each["name"] for each in last_json(done)["operators"]} >= {"lgamma", "digamma"}


def test_threads_and_processes_are_added_up(tmp_path: Path) -> None:
    path = tmp_path / "several.py"
    path.write_text(
        dedent(
            """
            import subprocess, sys, threading
            import opsmith
            import torch

            opsmith.load("sim")
            x = torch.rand(4, device="sim")
            threads = [threading.Thread(target=x.lgamma) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            if len(sys.argv) == 1:
                subprocess.run([sys.executable, __file__, "child"], check=True)
            """
        )
    )
    (use,) = [
        each
        for each in last_json(coverage("--json", path))["operators"]
        if each["name"] == "lgamma"
    ]
    assert (use["calls"], use["fell_back"]) == (4, 4)


def test_what_is_no_program_is_refused(tmp_path: Path) -> None:
    done = coverage("nowhere.py", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (
        1,
        "error: there is no program `nowhere.py`\n  remedy: name a Python file, or a module after -m; "
        "options of opsmith stand before it\n",
    )
    (tmp_path / "plain.py").touch()
    done = coverage("plain.py", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (
        1,
        "error: `plain.py` loaded no backend, so nothing was counted\n"
        '  remedy: call opsmith.load("sim") in it, or have one loaded for it: opsmith coverage '
        "--backend sim plain.py\n",
    )
    (tmp_path / "backend.yaml").touch()
    assert coverage("plain.py", cwd=tmp_path).stderr.endswith(
        'opsmith.load("backend.yaml") in it, or have one loaded for it: opsmith coverage --backend '
        "backend.yaml plain.py\n"
    )


def test_an_output_that_cannot_be_written_is_refused(models: Path) -> None:
    done = coverage("-o", "no/such/folder.json", "--module", "models:pair", cwd=models)
    assert (done.returncode, done.stderr) == (
        1,
        "error: `no/such/folder.json` cannot be written: No such file or directory\n"
        "  remedy: name a file in a folder of yours\n",
    )


# ---- of modules and graphs


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder with a module of factories."""
    (tmp_path / "models.py").write_text(
        dedent(
            """
            import torch
            from torch import nn
            from torch.nn import Linear


            class Config:
                hidden = 8


            class Small(nn.Module):
                config_class = Config

                def __init__(self, config):
                    super().__init__()
                    self.embedding = nn.Embedding(10, config.hidden)
                    self.linear = nn.Linear(config.hidden, 4)

                @property
                def dummy_inputs(self):
                    return {"ids": torch.tensor([[1, 2, 3]])}

                def forward(self, ids):
                    return {"last": self.linear(self.embedding(ids)).lgamma()}


            def pair():
                return nn.Linear(3, 2), (torch.ones(4, 3),)


            def bare():
                return nn.Linear(3, 2)
            """
        )
    )
    return tmp_path


@pytest.mark.parametrize(
    ("spec", "inputs", "message"),
    [
        (
            "nowhere:model",
            [],
            "`nowhere` cannot be imported: No module named 'nowhere'\n"
            "  remedy: install it, or run the command in the folder that it lies in",
        ),
        (
            "models.py:small",
            [],
            "`models.py` cannot be imported: No module named 'models.py'; 'models' is not a package\n"
            "  remedy: name the module rather than its file: `models:small`",
        ),
        (
            "models",
            [],
            "`models` does not name a factory\n"
            "  remedy: write MODULE:NAME, such as mymodels.resnet:small or transformers:BertModel",
        ),
        (
            "models:Smal",
            [],
            "`models` has no `Smal` (did you mean Small?)\n"
            "  remedy: write MODULE:NAME, such as mymodels.resnet:small or transformers:BertModel",
        ),
        (
            "models:Config",
            [],
            "`models:Config` gives no torch.nn.Module, but Config\n"
            "  remedy: let it return a module, or (module, example_inputs)",
        ),
        (
            "models:Linear",
            [],
            "`models:Linear` cannot be called without arguments: Linear.__init__() missing 2 required "
            "positional arguments: 'in_features' and 'out_features'\n"
            "  remedy: write a function without arguments that returns (module, example_inputs)",
        ),
        (
            "models:bare",
            [],
            "nothing says what to call the module of `models:bare` with\n"
            "  remedy: name an input for each argument, such as --input 1x3x32x32 or --input 1x16:int64, "
            "or let the factory return (module, example_inputs)",
        ),
        (
            "models:bare",
            ["4y3"],
            "`4y3` is not the shape of an input\n  remedy: write its sizes with x between them, and its "
            "dtype if it is not float32: 1x16:int64",
        ),
        (
            "models:bare",
            ["4x3:flot32"],
            "torch has no dtype `flot32` (did you mean float32, float, cfloat?)\n"
            "  remedy: write SIZES:DTYPE, such as 1x16:int64",
        ),
    ],
)
def test_what_is_no_factory_is_refused(
    models: Path, monkeypatch: pytest.MonkeyPatch, spec: str, inputs: list[str], message: str
) -> None:
    monkeypatch.chdir(models)
    monkeypatch.syspath_prepend(models)
    monkeypatch.delitem(sys.modules, "models", raising=False)
    assert refusal(ProgramInvalid, made_by_factory, spec, inputs, train=False) == message


def test_what_is_no_graph_is_refused(tmp_path: Path) -> None:
    assert refusal(FileMissing, lambda: read_exported(tmp_path / "graph.pt2", [])) == (
        f"there is no exported graph `{tmp_path}/graph.pt2`\n  remedy: write one with torch.export.save"
    )
    (tmp_path / "graph.pt2").write_text("graph")
    assert refusal(ProgramInvalid, lambda: read_exported(tmp_path / "graph.pt2", [])) == (
        f"`{tmp_path}/graph.pt2` holds no exported graph: it is not a zip archive\n"
        "  remedy: write it with torch.export.save, with the installed torch"
    )


def test_what_has_no_gradient_has_no_backward(sim: LoadedBackend) -> None:
    argmax = ModuleProgram("models:argmax", lambda _: torch.argmax, (torch.ones(4),))  # type: ignore[return-value]
    assert refusal(ProgramInvalid, argmax.record, "sim", train=True) == (
        "`models:argmax` returns no Tensor that requires a gradient, so it has no backward\n"
        "  remedy: leave out --train"
    )


def used(report: Any) -> dict[str, int]:
    return {each["name"]: each["calls"] for each in report["operators"]}


def test_a_class_with_a_configuration_runs_on_its_dummy_inputs(models: Path) -> None:
    done = coverage("--json", "--module", "models:Small", cwd=models)
    assert done.returncode == 0, done.stderr
    calls = used(last_json(done))
    assert (calls["embedding"], calls["lgamma"]) == (1, 1)
    assert "embedding_dense_backward" not in calls
    trained = used(last_json(coverage("--json", "--train", "--module", "models:Small", cwd=models)))
    assert (trained["embedding"], trained["embedding_dense_backward"]) == (1, 1)


def test_a_function_may_give_the_inputs_or_the_command_line(models: Path) -> None:
    given = last_json(coverage("--json", "--module", "models:pair", cwd=models))
    named = last_json(coverage("--json", "--input", "4x3", "--module", "models:bare", cwd=models))
    assert used(given) == used(named)
    assert used(given)["addmm"] == 1
    assert given["kernels"] == []


def test_an_exported_graph_runs_with_its_example_inputs(tmp_path: Path) -> None:
    exported = torch.export.export(torch.nn.Linear(3, 2), (torch.ones(4, 3),))
    torch.export.save(exported, tmp_path / "graph.pt2")
    done = coverage("--json", "graph.pt2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert used(last_json(done))["addmm"] == 1


# ---- what to write next


def test_one_kernel_serves_a_group_and_the_most_profitable_stands_first(
    sim: LoadedBackend, catalogue: Catalogue
) -> None:
    fallen = [
        HostCalls("lgamma", 10, 1.0, 0),
        HostCalls("lgamma.out", 1, 0.5, 0),
        HostCalls("frac", 3, 4.0, 0),
        HostCalls("kthvalue", 1, 0.1, 0),
    ]
    advice = kernels_to_write(fallen, sim.plan, catalogue)
    assert [(each.operators, each.calls, each.seconds) for each in advice] == [
        (("frac",), 3, 4.0),
        (("lgamma", "lgamma.out"), 11, 1.5),
        (("kthvalue",), 1, 0.1),
    ]
    # 98 % of the time is in the first two.
    assert kernels_to_write(fallen, sim.plan, catalogue, share=0.95) == advice[:2]
    assert kernels_to_write([], sim.plan, catalogue) == ()


def test_a_stub_that_serves_several_groups_makes_the_list_shorter(catalogue: Catalogue) -> None:
    plan = resolve(read_backend(NO_KERNEL, catalogue), catalogue)
    fallen = [HostCalls("std.correction", 2, 1.0, 0), HostCalls("var.correction", 2, 1.0, 0)]
    (advice,) = kernels_to_write(fallen, plan, catalogue)
    assert advice.operators == ("std.correction", "var.correction")
    assert advice.remedy == "  - stub: std_var_stub\n    kernel_name: sim::std_var"
    (alone,) = kernels_to_write(fallen[:1], plan, catalogue)
    assert alone.remedy.startswith("  - op: std.correction_out\n")


def test_a_composite_may_have_a_kernel_in_the_place_of_its_parts(
    sim: LoadedBackend, catalogue: Catalogue
) -> None:
    within = frozenset({"mvlgamma"})
    fallen = [
        HostCalls("lgamma_", 1, 1.0, 0, within),
        HostCalls("arange.start_out", 1, 1.0, 0, within),
    ]
    (advice,) = kernels_to_write(fallen, sim.plan, catalogue)
    assert advice.remedy == "  - op: mvlgamma\n    kernel_name: sim::mvlgamma"
    # Called from elsewhere too, the parts save more.
    fallen.append(HostCalls("lgamma_", 1, 3.0, 0))
    assert [each.operators for each in kernels_to_write(fallen, sim.plan, catalogue)] == [
        ("lgamma_",),
        ("arange.start_out",),
    ]


def test_a_kernel_that_refuses_a_dtype_is_to_take_it(
    sim: LoadedBackend, catalogue: Catalogue
) -> None:
    x = torch.ones(4, dtype=torch.complex64, device="sim")
    with record_calls() as recorded:
        torch.add(x, x)
    found = program_coverage("here", 0, recorded.calls, sim.plan, catalogue, 1.0)
    fallen = [use for use in found.operators if use.fell_back]
    assert [use.name for use in fallen] == ["add.Tensor"]
    assert fallen[0].route == "derived"
    assert [use.calls for use in found.routes if use.route == "fallback"] == [1]
    (kernel,) = found.kernels
    assert re.fullmatch(
        r"let the kernel `opsmith::optimized::native::add_out` "
        r"\(opsmith/kernels/optimized/kernels.yaml:\d+:\d+\) take "
        "these calls too",
        kernel.remedy,
    )


# ---- the file


def test_a_file_of_another_kind_or_version_is_refused(tmp_path: Path, catalogue: Catalogue) -> None:
    path = tmp_path / "coverage.json"
    assert refusal(FileMissing, read_coverage, path) == (
        f"coverage of a program cannot be read from `{path}`: No such file or directory\n"
        "  remedy: write it with `opsmith coverage --output FILE PROGRAM`"
    )
    path.write_text('{"format": 99}')
    assert refusal(ResultsInvalid, read_coverage, path) == (
        f"`{path}` has format 99, and this opsmith reads coverage of a program up to format 1\n"
        "  remedy: update opsmith: pip install --upgrade opsmith"
    )
    path.write_text('{"format": 1, "program": 3}')
    with pytest.raises(ResultsInvalid, match="does not hold coverage of a program"):
        read_coverage(path)


def test_nothing_recorded_is_nothing_covered(sim: LoadedBackend, catalogue: Catalogue) -> None:
    found = program_coverage("nothing", 0, Calls(), sim.plan, catalogue, 1.0)
    assert (found.calls, found.seconds, found.kernels, found.elsewhere) == (0, 0, (), 0)
