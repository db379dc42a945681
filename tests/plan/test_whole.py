"""`whole`: which composites are caught, why others are not, what is registered, and that it is right."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import fork_server
from opsmith.description import read_backend
from opsmith.emit import emit
from opsmith.errors import WholeRefused
from opsmith.plan import Plan, Route, resolve
from opsmith.schema import Catalogue, Composite, read_parts
from refusal import refusal

Describe = Callable[..., Path]
REPOSITORY = Path(__file__).parents[2]


def planned(path: Path, catalogue: Catalogue) -> Plan:
    return resolve(read_backend(path, catalogue), catalogue)


def caught(plan: Plan) -> set[str]:
    return {entry.name for entry in plan.entries if entry.whole}


def shown(plan: Plan, path: Path, name: str) -> str:
    entry = plan.entry(name)
    text = f"{entry.route.value} | {entry.source} | {entry.why}"
    return text.replace(str(path.parent), "DIR")


# ---- the plan


def test_without_the_key_nothing_is_caught(describe: Describe, catalogue: Catalogue) -> None:
    assert caught(planned(describe(), catalogue)) == set()


def test_auto_catches_what_would_fall_back_more_than_once(
    describe: Describe, catalogue: Catalogue
) -> None:
    path = describe(fallback="{whole: auto}")
    plan = planned(path, catalogue)
    assert shown(plan, path, "linalg_multi_dot") == (
        "fallback | DIR/backend.yaml:4:12 | caught whole (DIR/backend.yaml:4:12): one call on the CPU, in "
        "the place of `mm` (more than once), which falls back"
    )
    assert shown(plan, path, "gru.input") == (
        "fallback | DIR/backend.yaml:4:12 | caught whole (DIR/backend.yaml:4:12): one call on the CPU, in "
        "the place of `cat` (more than once), `matmul` (more than once) and `stack` (more than once), which "
        "fall back, and 1 more that need not"
    )
    assert {"_foreach_add_.List", "cosine_similarity", "einsum", "quantile"} <= caught(plan)
    # One call of one kernel, a view, and something that is no composite.
    for name in ("linear", "cdist", "reshape", "add.Tensor", "add.out"):
        assert plan.entry(name).whole is None
    assert all(
        plan.entry(name).route is Route.FALLBACK and plan.entry(name).kernel is None
        for name in caught(plan)
    )


def test_a_kernel_for_a_part_decides(describe: Describe, catalogue: Catalogue) -> None:
    mm = "- {op: mm.out, kernel_name: chip::mm}"
    plan = planned(describe(mm, fallback="{whole: auto}"), catalogue)
    assert plan.entry("linalg_multi_dot").route is Route.COMPOSITE
    # cat and stack still fall back, but what the device multiplies is not taken from it.
    assert plan.entry("gru.input").route is Route.COMPOSITE
    assert plan.entry("cosine_similarity").whole is not None
    bare = planned(describe(fallback="{whole: auto}"), catalogue)
    assert caught(plan) < caught(bare)


def test_foreach_is_caught_until_its_parts_have_a_kernel(
    describe: Describe, catalogue: Catalogue
) -> None:
    add = "- {op: add.out, kernel_name: chip::add, structured: true}"
    plan = planned(describe(add, fallback="{whole: auto}"), catalogue)
    assert plan.entry("_foreach_add_.List").route is Route.COMPOSITE
    assert plan.entry("_foreach_mul_.List").whole is not None


def test_a_name_stands_for_its_group_and_needs_no_gain(
    describe: Describe, catalogue: Catalogue
) -> None:
    path = describe(fallback="{whole: [linalg_matrix_power, cdist]}")
    plan = planned(path, catalogue)
    assert caught(plan) == {"linalg_matrix_power", "linalg_matrix_power.out", "cdist"}
    assert shown(plan, path, "cdist") == (
        "fallback | DIR/backend.yaml:4:41 | caught whole (DIR/backend.yaml:4:41): one call on the CPU, in "
        "the place of `_cdist_forward`, which falls back"
    )
    assert shown(plan, path, "linalg_matrix_power.out").startswith(
        "fallback | DIR/backend.yaml:4:20 | caught whole (DIR/backend.yaml:4:20)"
    )


def test_auto_stands_beside_names(describe: Describe, catalogue: Catalogue) -> None:
    plan = planned(describe(fallback="{whole: [auto, cdist]}"), catalogue)
    auto = planned(describe(fallback="{whole: auto}"), catalogue)
    assert caught(plan) == caught(auto) | {"cdist"}


def test_what_becomes_of_gradients_and_dropout(describe: Describe, catalogue: Catalogue) -> None:
    plan = planned(describe(fallback="{whole: auto}"), catalogue)
    whys = {}
    for name in ("linalg_multi_dot", "_foreach_add_.List", "scaled_dot_product_attention"):
        whole = plan.entry(name).whole
        assert whole is not None
        whys[name] = whole.why
    assert whys == {
        "linalg_multi_dot": "its gradient comes from its parts: PyTorch decomposes it where one is needed",
        "_foreach_add_.List": "PyTorch's own formula for the gradient stands above it",
        "scaled_dot_product_attention": "its gradient comes from its parts: PyTorch decomposes it where one "
        "is needed; so it does with dropout",
    }


# ---- the policy


@pytest.mark.parametrize(
    ("fallback", "is_caught"),
    [
        ("{deny: [linalg_multi_dot], whole: auto}", False),
        ("{deny: [linalg_multi_dot.out], whole: auto}", False),
        ("{deny: [mm], whole: auto}", False),  # it would run on the CPU unseen
        ("{deny: [mm], whole: [linalg_multi_dot]}", True),
        ("{only: [mm], whole: auto}", False),
        ("{only: [mm, linalg_multi_dot], whole: auto}", True),
        ("{only: [linalg_multi_dot], whole: [linalg_multi_dot]}", True),
        ("{default: none, whole: auto}", False),
    ],
)
def test_the_policy_on_the_operator_comes_first(
    fallback: str, is_caught: bool, describe: Describe, catalogue: Catalogue
) -> None:
    plan = planned(describe(fallback=fallback), catalogue)
    assert (plan.entry("linalg_multi_dot").whole is not None) is is_caught


REFUSED = {
    "topk.values": "PyTorch does not decompose it, so that the fallback runs it as one call already",
    "reshape": "its result can be a view of its argument, and autograd has to see a view being made",
    "unsafe_chunk": "PyTorch is not known to decompose it into operators that a device can lack",
    "is_nonzero": "it returns something else than Tensors",
    "ones_like": "it can be asked for another device or layout",
    "dropout": "it draws random numbers and takes no Generator: they would be the CPU's, not the device's",
    "instance_norm": "it writes to arguments that its schema does not mark as written",
    "relu": "it would not be decomposed: its route is `kernel`, `chip::relu` (DIR/kernels.yaml:5:6)",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_name_that_cannot_be_caught(name: str, describe: Describe, catalogue: Catalogue) -> None:
    path = describe("- {op: relu, kernel_name: chip::relu}", fallback=f"{{whole: [cdist, {name}]}}")
    assert refusal(WholeRefused, planned, path, catalogue).replace(str(path.parent), "DIR") == (
        f"DIR/backend.yaml:4:27: `{name}` cannot be caught whole: {REFUSED[name]}\n"
        f"  remedy: take `{name}` out of `whole`"
    )


def test_an_operator_that_the_description_differentiates(
    describe: Describe, catalogue: Catalogue
) -> None:
    kernels = "- {op: linalg_multi_dot, autograd: chip::multi_dot}"
    path = describe(kernels, fallback="{whole: [linalg_multi_dot]}")
    with pytest.raises(WholeRefused, match="the description says how it is differentiated"):
        planned(path, catalogue)


def test_opsmith_plan_says_how_many_are_caught(describe: Describe) -> None:
    path = describe(fallback="{whole: [cdist, linalg_multi_dot]}")
    run = fork_server.run([sys.executable, "-m", "opsmith", "plan", path], check=True)
    assert "\n3 of the route fallback are composites that are caught whole\n" in run.stdout


# ---- generated code


def test_what_is_registered(describe: Describe, catalogue: Catalogue) -> None:
    names = "linalg_multi_dot, _foreach_add_.List, scaled_dot_product_attention"
    plan = planned(describe(fallback=f"{{whole: [{names}]}}"), catalogue)
    text = next(file.text for file in emit(plan) if file.name == "RegisterChipFallback.cpp")
    assert "#include <opsmith/fallback/whole.h>" in text
    registered: dict[str, list[str]] = {}
    for key, block in re.findall(
        r"TORCH_LIBRARY_IMPL\(aten, (\w+), m\) \{(.*?)\n\}", text, re.DOTALL
    ):
        kernels = re.findall(r'm.impl\(\s*"([^"]*)",\s*(.*?)\);', block, re.DOTALL)
        registered[key] = [f"{name}: {''.join(kernel.split())}" for name, kernel in kernels]
    boxed = "torch::CppFunction::makeFromBoxedFunction<&opsmith::whole{}<c10::DispatchKey::{}>>()"
    explicit = boxed.format("", "CompositeExplicitAutograd")
    implicit = boxed.format("", "CompositeImplicitAutograd")
    above = [
        f"linalg_multi_dot: {implicit}",
        f"linalg_multi_dot.out: {implicit}",
        "scaled_dot_product_attention: "
        + boxed.format("_without_dropout", "CompositeImplicitAutograd"),
    ]
    assert registered == {
        "PrivateUse1": [
            f"_foreach_add.List: {explicit}",
            f"_foreach_add_.List: {explicit}",
            *above,
        ],
        "AutogradPrivateUse1": above,
    }


# ---- the record of what PyTorch does


def test_the_record_holds_composites_and_their_parts(catalogue: Catalogue) -> None:
    record = read_parts()
    assert len(record.parts) > 700
    for name, ways in record.parts.items():
        assert catalogue.operators[name].composite is not Composite.NONE
        assert all(part in catalogue.operators for way in ways for part in way)
        assert all(times in (1, 2) for way in ways for times in way.values())
    assert record.unfit.keys() <= record.parts.keys()


@pytest.mark.nightly
@pytest.mark.compiles
def test_the_record_is_what_pytorch_does() -> None:
    entries = [
        "linalg.multi_dot",
        "cov",
        "nn.functional.cosine_similarity",
        "_foreach_add",
        "logsumexp",
    ]
    run = fork_server.run(
        [sys.executable, REPOSITORY / "tools" / "find_parts", *entries], timeout=900
    )
    assert run.returncode == 0, run.stderr
    found = yaml.safe_load(run.stdout)["parts"]
    assert {"linalg_multi_dot", "linalg_multi_dot.out", "cov", "cosine_similarity"} <= found.keys()
    record = read_parts().parts
    for name in ("linalg_multi_dot", "linalg_multi_dot.out", "cov", "cosine_similarity"):
        assert tuple(found[name]) == record[name]
    # Other entries call these too, in other ways.
    for name, ways in found.items():
        assert all(way in record[name] for way in ways)


# ---- on the device
