"""``opsmith ops`` and ``opsmith keys``: what is known of operators and of a Tensor's dispatch keys."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

import fork_server
from opsmith.conformance.results import Check, Results, Status, Verdict
from opsmith.errors import ExpressionInvalid, FilterInvalid, OperatorUnknown
from opsmith.observe.explain.explanation import TableRow, dispatch_table
from opsmith.observe.explain.keys import keys_of
from opsmith.observe.explain.operators import OperatorFacts, OperatorFilter, dispatch_path, gather
from opsmith.observe.explain.verdicts import OperatorVerdicts, verdicts_of
from opsmith.plan import open_backend
from opsmith.runtime import LoadedBackend
from opsmith.schema import Catalogue, Differentiable, differentiable


@pytest.fixture(scope="session")
def operators() -> tuple[OperatorFacts, ...]:
    return gather(open_backend("sim"))


def command(*arguments: str, status: int = 0) -> str:
    """Runs ``opsmith``; its standard output, or its standard error where it is to fail."""
    done = fork_server.run([sys.executable, "-m", "opsmith", *arguments])
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout if status == 0 else done.stderr


def as_json(*arguments: str) -> dict[str, Any]:
    value = json.loads(command(*arguments, "--json").splitlines()[-1])
    assert isinstance(value, dict)
    return value


# ---- differentiability


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("add.Tensor", Differentiable.FORMULA),
        ("add_.Tensor", Differentiable.FORMULA),  # the functional one's
        ("add.out", Differentiable.NO),
        ("eq.Tensor", Differentiable.DISCRETE),
        ("argmax", Differentiable.DISCRETE),
        ("linear", Differentiable.PARTS),
        ("matmul", Differentiable.PARTS),
        ("_foreach_sin", Differentiable.FORMULA),  # sin's, for each Tensor
        ("_foreach_add_.List", Differentiable.FORMULA),
        ("diagonal_copy", Differentiable.FORMULA),  # the view's
        ("native_layer_norm", Differentiable.FORMULA),
        ("_linalg_check_errors", Differentiable.NO),
    ],
)
def test_where_the_gradient_comes_from(
    name: str, expected: Differentiable, catalogue: Catalogue
) -> None:
    assert differentiable(catalogue.operators[name], catalogue) is expected


def test_what_has_a_formula_does_record_one(catalogue: Catalogue, sim: LoadedBackend) -> None:
    import torch

    x = torch.rand(3, 3, device="sim", requires_grad=True)
    calls = {
        "sin": lambda: x.sin(),
        "cumsum": lambda: x.cumsum(0),
        "eq.Scalar": lambda: x == 1,
        "argmax": lambda: x.argmax(),
        "matmul": lambda: x @ x,
    }
    for name, call in calls.items():
        found = differentiable(catalogue.operators[name], catalogue)
        assert call().requires_grad == (found is not Differentiable.DISCRETE), name


# ---- facts and filters


def test_every_operator_has_its_facts(operators: tuple[OperatorFacts, ...]) -> None:
    assert len(operators) > 3000
    add = next(facts for facts in operators if facts.name == "add_.Tensor")
    assert add.schema == (
        "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)"
    )
    assert (add.route, add.library, add.variant) == ("derived", "optimized", "in-place")
    assert add.variants == ("add.Tensor", "add.out")
    assert add.structured and add.composite == "CompositeExplicitAutogradNonFunctional"
    assert "Float" in add.dtypes and "ComplexFloat" not in add.dtypes
    assert add.kernels == ()  # it is derived from add.out's
    out = next(facts for facts in operators if facts.name == "add.out")
    first, second = out.kernels
    assert first.startswith(
        "optimized: opsmith::optimized::native::add_out (opsmith/kernels/optimized/"
    )
    assert second.startswith(
        "portable: opsmith::portable::native::add_out (opsmith/kernels/portable/"
    )
    view = next(facts for facts in operators if facts.name == "transpose.int")
    assert "view" in view.tags


def names(found: tuple[OperatorFacts, ...]) -> list[str]:
    return [facts.name for facts in found]


def test_filters(operators: tuple[OperatorFacts, ...]) -> None:
    assert names(OperatorFilter(search="aten::Add_.Ten").choose(operators)) == [
        "add_.Tensor",
        "_foreach_add_.Tensor",
    ]
    found = names(OperatorFilter(search="relu").choose(operators))
    assert found[:2] == ["relu", "relu.out"]  # itself, what begins so, then the others
    assert found.index("relu_") < found.index("leaky_relu")
    assert names(OperatorFilter(search="laier_norm").choose(operators))[0] == "layer_norm"
    assert OperatorFilter(search="no such thing at all").choose(operators) == ()
    core = OperatorFilter(tag="core", variant="functional", route="derived").choose(operators)
    assert core and all("core" in facts.tags and facts.route == "derived" for facts in core)
    halves = OperatorFilter(dtype="Half", library="optimized").choose(operators)
    assert halves and all(not facts.dtypes or "Half" in facts.dtypes for facts in halves)
    structured = OperatorFilter(structured=True).choose(operators)
    assert len(structured) + len(OperatorFilter(structured=False).choose(operators)) == len(
        operators
    )
    parts = OperatorFilter(differentiable="parts").choose(operators)
    assert {facts.composite for facts in parts} == {"CompositeImplicitAutograd"}
    assert OperatorFilter(route="missing").choose(operators) == ()  # a route, if nothing takes it


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (OperatorFilter(route="kernl"), "no operator has the route `kernl` (did you mean kernel?)"),
        (
            OperatorFilter(tag="pointwize"),
            "no operator has the tag `pointwize` (did you mean pointwise?)",
        ),
        (
            OperatorFilter(library="optimised"),
            "no operator has the library `optimised` (did you mean optimized?)",
        ),
    ],
)
def test_filters_that_nothing_can_pass(
    chosen: OperatorFilter, message: str, operators: tuple[OperatorFacts, ...]
) -> None:
    with pytest.raises(FilterInvalid) as error:
        chosen.choose(operators)
    assert error.value.message == message


# ---- the path through the dispatcher


def test_the_road_of_a_call(sim: LoadedBackend) -> None:
    stops = {stop.key: stop for stop in dispatch_path(dispatch_table("aten::lgamma"))}
    assert stops["AutogradPrivateUse1"].what == (
        "runs first, unless under torch.inference_mode(), and passes on: the alias Autograd"
    )
    assert stops["ADInplaceOrView"].what == ("passes through: the key's fallback for all operators")
    assert stops["PrivateUse1"].what == "wins: a kernel for this very key"
    assert stops["PrivateUse1"].location.startswith("RegisterSimFallback.cpp:")
    keys = list(stops)
    assert (
        keys.index("AutogradPrivateUse1")
        < keys.index("ADInplaceOrView")
        < keys.index("PrivateUse1")
    )
    assert "CPU" not in stops
    assert dispatch_path([TableRow("CPU", "registered at x.cpp:1", "kernel")]) == ()


def test_a_composite_is_decomposed_above_the_device(sim: LoadedBackend) -> None:
    stops = {stop.key: stop.what for stop in dispatch_path(dispatch_table("aten::layer_norm"))}
    decomposes = "the alias CompositeImplicitAutograd, which decomposes it"
    assert stops["AutogradPrivateUse1"] == (
        f"wins, unless under torch.inference_mode(): {decomposes}"
    )
    assert stops["PrivateUse1"] == f"wins under torch.inference_mode(): {decomposes}"
    explicit = {stop.key: stop.what for stop in dispatch_path(dispatch_table("aten::mvlgamma"))}
    assert explicit["PrivateUse1"] == (
        "wins: the alias CompositeExplicitAutograd, which decomposes it"
    )


# ---- what the tests say


def test_the_verdicts_of_the_entries_that_are_about_an_operator(sim: LoadedBackend) -> None:
    bad = Verdict("cumsum", Check.OUT, "float32", Status.FAILED, 2, 0.1, "result differs")
    results = Results(
        backend="sim",
        torch="2.13.0",
        description="backend.yaml",
        started="",
        updated="",
        complete=True,
        verdicts=(
            Verdict("cumsum", Check.FORWARD, "float32", Status.PASSED),
            bad,
            Verdict("cumsum", Check.EMPTY, "float32", Status.SKIPPED),
            Verdict("masked.cumsum", Check.FORWARD, "float32", Status.PASSED),
        ),
        operators={"cumsum": ("cumsum",), "masked.cumsum": ("cumsum", "where.self")},
    )
    about = verdicts_of("cumsum.out", results, sim.plan)
    assert about == OperatorVerdicts(("cumsum",), {"passed": 1, "failed": 1, "skipped": 1}, (bad,))
    assert verdicts_of("where.self", results, sim.plan) == OperatorVerdicts((), {}, ())


# ---- keys


def test_the_keys_of_a_tensor(sim: LoadedBackend, catalogue: Catalogue) -> None:
    expression = "torch.ones(2, device='sim', requires_grad=True)"
    rows = keys_of(expression, "aten::add.Tensor", catalogue)
    assert [(row.key, row.origin, row.active) for row in rows] == [
        ("AutocastPrivateUse1", "the Tensor", False),
        ("AutogradPrivateUse1", "the Tensor", True),
        ("ADInplaceOrView", "the Tensor", True),
        ("BackendSelect", "this thread", True),
        ("PrivateUse1", "the Tensor", True),
    ]
    assert rows[1].kernel.startswith("torch/csrc/autograd/generated/VariableType_")
    assert rows[-1].kernel.startswith("RegisterSim_")
    conjugate = keys_of("torch.ones(2, dtype=torch.complex64, device='sim').conj()", "", catalogue)
    assert ("Conjugate", "lazily conjugated") in [(row.key, row.meaning) for row in conjugate]
    assert {row.kernel for row in conjugate} == {""}


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("torch.oness(2)", "`torch.oness(2)` raises AttributeError: module 'torch' has no attribute 'oness'"),
        ("3", "`3` gives no Tensor, but int"),
    ],
)  # fmt: skip
def test_what_gives_no_tensor(expression: str, message: str, catalogue: Catalogue) -> None:
    with pytest.raises(ExpressionInvalid) as error:
        keys_of(expression, "", catalogue)
    assert error.value.message == message


def test_keys_of_an_unknown_operator(sim: LoadedBackend, catalogue: Catalogue) -> None:
    with pytest.raises(OperatorUnknown, match=r"has no operator `cumsun` \(did you mean cumsum"):
        keys_of("torch.ones(1)", "cumsun", catalogue)


# ---- as people and programs run them


@pytest.mark.usefixtures("sim")
def test_the_commands() -> None:
    listed = as_json("ops", "--search", "add_.Tensor", "--structured")
    assert [facts["name"] for facts in listed["operators"]] == ["add_.Tensor"]
    assert list(listed["operators"][0]) == [
        "name", "schema", "route", "place", "why", "library", "variant", "variants", "structured",
        "composite", "differentiable", "stubs", "dtypes", "tags", "kernels",
    ]  # fmt: skip
    assert command("ops", "--search", "add_.Tensor", "--structured").split()[:2] == [
        "1",
        "operator",
    ]
    shown = as_json("ops", "show", "aten::add_.Tensor", "--build")
    assert shown["operator"] == listed["operators"][0]
    assert [stop["key"] for stop in shown["dispatch_path"]][-1] == "PrivateUse1"
    assert "tests" in shown
    text = command("ops", "show", "add.out", "--build")
    assert (
        "optimized: opsmith::optimized::native::add_out" in text
        and "wins: a kernel for this" in text
    )
    keys = as_json("keys", "torch.ones(1, device='sim')", "--operator", "neg")
    assert keys["keys"][-1]["key"] == "PrivateUse1"
    assert command("ops", "--tag", "cor", status=1).startswith(
        "error: no operator has the tag `cor` (did you mean core?)\n  remedy: name one of: core, "
    )
    assert "has no operator `addd`" in command("ops", "show", "addd", status=1)
