"""`intercept`: which composites are, why others are not, what is registered, and that it is right."""

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
from opsmith.errors import InterceptionRejected, SyntaxInvalid
from opsmith.plan import Plan, Route, resolve
from opsmith.schema import Catalogue, Composite, read_parts

Describe = Callable[..., Path]
REPOSITORY = Path(__file__).parents[2]


def planned(path: Path, catalogue: Catalogue) -> Plan:
    return resolve(read_backend(path, catalogue), catalogue)


def intercepted(plan: Plan) -> set[str]:
    return {entry.name for entry in plan.entries if entry.interception}


def shown(plan: Plan, path: Path, name: str) -> str:
    entry = plan.entry(name)
    text = f"{entry.route.value} | {entry.source} | {entry.why}"
    return text.replace(str(path.parent), "DIR")


# ---- the plan


def test_without_the_key_nothing_is_intercepted(describe: Describe, catalogue: Catalogue) -> None:
    assert intercepted(planned(describe(), catalogue)) == set()


def test_auto_intercepts_what_would_fall_back_more_than_once(
    describe: Describe, catalogue: Catalogue
) -> None:
    path = describe(fallback="{intercept: auto}")
    plan = planned(path, catalogue)
    assert shown(plan, path, "linalg_multi_dot") == (
        "fallback | DIR/backend.yaml:4:12 | intercepted (DIR/backend.yaml:4:12): one call on the CPU, in "
        "the place of `mm` (more than once), which falls back"
    )
    assert shown(plan, path, "gru.input") == (
        "fallback | DIR/backend.yaml:4:12 | intercepted (DIR/backend.yaml:4:12): one call on the CPU, in "
        "the place of `cat` (more than once), `matmul` (more than once) and `stack` (more than once), which "
        "fall back, and 1 more that need not"
    )
    assert {"_foreach_add_.List", "cosine_similarity", "einsum", "quantile"} <= intercepted(plan)
    # One call of one kernel, a view, and something that is no composite.
    for name in ("linear", "cdist", "reshape", "add.Tensor", "add.out"):
        assert plan.entry(name).interception is None
    assert all(
        plan.entry(name).route is Route.FALLBACK and plan.entry(name).kernel is None
        for name in intercepted(plan)
    )


def test_a_kernel_for_a_part_decides(describe: Describe, catalogue: Catalogue) -> None:
    mm = "- {op: mm.out, kernel_name: chip::mm}"
    plan = planned(describe(mm, fallback="{intercept: auto}"), catalogue)
    assert plan.entry("linalg_multi_dot").route is Route.COMPOSITE
    # cat and stack still fall back, but what the device multiplies is not taken from it.
    assert plan.entry("gru.input").route is Route.COMPOSITE
    assert plan.entry("cosine_similarity").interception is not None
    bare = planned(describe(fallback="{intercept: auto}"), catalogue)
    assert intercepted(plan) < intercepted(bare)


def test_foreach_is_intercepted_until_its_parts_have_a_kernel(
    describe: Describe, catalogue: Catalogue
) -> None:
    add = "- {op: add.out, kernel_name: chip::add, structured: true}"
    plan = planned(describe(add, fallback="{intercept: auto}"), catalogue)
    assert plan.entry("_foreach_add_.List").route is Route.COMPOSITE
    assert plan.entry("_foreach_mul_.List").interception is not None


def test_a_name_stands_for_its_group_and_needs_no_gain(
    describe: Describe, catalogue: Catalogue
) -> None:
    path = describe(fallback="{intercept: [linalg_matrix_power, cdist]}")
    plan = planned(path, catalogue)
    assert intercepted(plan) == {"linalg_matrix_power", "linalg_matrix_power.out", "cdist"}
    assert shown(plan, path, "cdist") == (
        "fallback | DIR/backend.yaml:4:45 | intercepted (DIR/backend.yaml:4:45): one call on the CPU, in "
        "the place of `_cdist_forward`, which falls back"
    )
    assert shown(plan, path, "linalg_matrix_power.out").startswith(
        "fallback | DIR/backend.yaml:4:24 | intercepted (DIR/backend.yaml:4:24)"
    )


def test_auto_stands_beside_names(describe: Describe, catalogue: Catalogue) -> None:
    plan = planned(describe(fallback="{intercept: [auto, cdist]}"), catalogue)
    auto = planned(describe(fallback="{intercept: auto}"), catalogue)
    assert intercepted(plan) == intercepted(auto) | {"cdist"}


def test_what_becomes_of_gradients_and_dropout(describe: Describe, catalogue: Catalogue) -> None:
    plan = planned(describe(fallback="{intercept: auto}"), catalogue)
    whys = {}
    for name in ("linalg_multi_dot", "_foreach_add_.List", "scaled_dot_product_attention"):
        interception = plan.entry(name).interception
        assert interception is not None
        whys[name] = interception.why
    assert whys == {
        "linalg_multi_dot": "its gradient comes from its parts: PyTorch decomposes it where one is needed",
        "_foreach_add_.List": "PyTorch's own formula for the gradient stands above it",
        "scaled_dot_product_attention": "its gradient comes from its parts: PyTorch decomposes it where one "
        "is needed; so it does with dropout",
    }


# ---- the policy


@pytest.mark.parametrize(
    ("fallback", "is_intercepted"),
    [
        ("{deny: [linalg_multi_dot], intercept: auto}", False),
        ("{deny: [linalg_multi_dot.out], intercept: auto}", False),
        ("{deny: [mm], intercept: auto}", False),  # it would run on the CPU unseen
        ("{deny: [mm], intercept: [linalg_multi_dot]}", True),
        ("{only: [mm], intercept: auto}", False),
        ("{only: [mm, linalg_multi_dot], intercept: auto}", True),
        ("{only: [linalg_multi_dot], intercept: [linalg_multi_dot]}", True),
        ("{default: none, intercept: auto}", False),
    ],
)
def test_the_policy_on_the_operator_comes_first(
    fallback: str, is_intercepted: bool, describe: Describe, catalogue: Catalogue
) -> None:
    plan = planned(describe(fallback=fallback), catalogue)
    assert (plan.entry("linalg_multi_dot").interception is not None) is is_intercepted


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
def test_a_name_that_cannot_be_intercepted(
    name: str, describe: Describe, catalogue: Catalogue
) -> None:
    path = describe(
        "- {op: relu, kernel_name: chip::relu}", fallback=f"{{intercept: [cdist, {name}]}}"
    )
    with pytest.raises(InterceptionRejected) as error:
        planned(path, catalogue)
    assert str(error.value).replace(str(path.parent), "DIR") == (
        f"DIR/backend.yaml:4:31: `{name}` cannot be intercepted: {REFUSED[name]}\n"
        f"  remedy: take `{name}` out of `intercept`"
    )


def test_an_operator_that_the_description_differentiates(
    describe: Describe, catalogue: Catalogue
) -> None:
    kernels = "- {op: linalg_multi_dot, autograd: chip::multi_dot}"
    path = describe(kernels, fallback="{intercept: [linalg_multi_dot]}")
    with pytest.raises(InterceptionRejected, match="the description says how it is differentiated"):
        planned(path, catalogue)


def test_the_old_name_of_the_key(describe: Describe, catalogue: Catalogue) -> None:
    path = describe(fallback="{whole: [cdist, auto]}")
    with pytest.warns(FutureWarning) as warned:
        plan = planned(path, catalogue)
    assert [(Path(each.filename), each.lineno, str(each.message)) for each in warned] == [
        (
            path,
            4,
            "`whole` is called `intercept` now, and the next version of opsmith no longer reads `whole`; "
            "write `intercept` in its place",
        )
    ]
    assert plan.entry("cdist").source == f"{path}:4:20"
    assert intercepted(planned(describe(fallback="{intercept: [cdist, auto]}"), catalogue)) == (
        intercepted(plan)
    )


def test_both_names_of_the_key(describe: Describe, catalogue: Catalogue) -> None:
    path = describe(fallback="{intercept: auto, whole: [cdist]}")
    with pytest.raises(SyntaxInvalid) as error:
        planned(path, catalogue)
    assert str(error.value).replace(str(path.parent), "DIR") == (
        "DIR/backend.yaml:4:29: `whole` is called `intercept` now, and both stand here\n"
        "  remedy: move what `whole` says into `intercept`, and remove `whole`"
    )


def test_opsmith_plan_says_how_many_are_intercepted(describe: Describe) -> None:
    path = describe(fallback="{intercept: [cdist, linalg_multi_dot]}")
    run = fork_server.run([sys.executable, "-m", "opsmith", "plan", path], check=True)
    assert "\n3 of the route fallback are composites that are intercepted\n" in run.stdout


# ---- generated code


def test_what_is_registered(describe: Describe, catalogue: Catalogue) -> None:
    names = "linalg_multi_dot, _foreach_add_.List, scaled_dot_product_attention"
    plan = planned(describe(fallback=f"{{intercept: [{names}]}}"), catalogue)
    text = next(file.text for file in emit(plan) if file.name == "RegisterChipFallback.cpp")
    assert "#include <opsmith/fallback/interception.h>" in text
    registered: dict[str, list[str]] = {}
    _, _, composites = text.partition("// Composites that are intercepted")
    for key, block in re.findall(
        r"TORCH_LIBRARY_IMPL\(aten, (\w+), m\) \{(.*?)\n\}", composites, re.DOTALL
    ):
        kernels = re.findall(r'm.impl\(\s*"([^"]*)",\s*(.*?)\);', block, re.DOTALL)
        registered[key] = [f"{name}: {''.join(kernel.split())}" for name, kernel in kernels]
    boxed = (
        "torch::CppFunction::makeFromBoxedFunction<&opsmith::intercept{}<c10::DispatchKey::{}>>()"
    )
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
