"""The plan: golden routes and reasons, the policy, refusals, and the facts that its tables state."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from itertools import permutations
from pathlib import Path

import pytest
import torch
from torchgen.model import BaseTy, BaseType

from opsmith.description import Abi, Kernel, read_backend
from opsmith.description.dtypes import INTEGRAL
from opsmith.emit import emit
from opsmith.errors import Location, OperatorUnknown, SettingInvalid
from opsmith.plan import Elementwise, Place, Plan, Route, plan_backend, resolve
from opsmith.plan import kept_plans as cache_room
from opsmith.plan.conditions import HasDtype, conditions
from opsmith.plan.derivation import Derived, Obstacle, derive, elementwise_result
from opsmith.schema import Catalogue, Composite, Variant, torch_release
from opsmith.schema.catalogue import native_function

Describe = Callable[..., Path]

KERNELS = """
    - {op: add.out, kernel_name: chip::add, structured: true, dtypes: [Float]}
    - {op: relu, kernel_name: chip::relu}
    - {op: fill_.Tensor, kernel_name: chip::fill_}
    - {op: mul.out, kernel_name: chip::mul_out}
    - {op: addmm.out, kernel_name: chip::addmm_out}
    - {op: where.self_out, kernel_name: chip::where_out}
    - {op: topk.values, kernel_name: chip::topk}
"""


def planned(path: Path, catalogue: Catalogue) -> Plan:
    return resolve(read_backend(path, catalogue), catalogue)


def shown(plan: Plan, path: Path, *names: str) -> str:
    """The plan's lines for ``names``: the description's folder is ``DIR``, opsmith's table has no lines."""
    entries = [plan.entry(name) for name in names]
    lines = [f"{e.name} | {e.route.value} | {e.source} | {e.library} | {e.why}" for e in entries]
    text = "\n".join(lines).replace(str(path.parent), "DIR")
    return re.sub(r"(meta_functions\.yaml):\d+:\d+", r"\1", text)


def test_the_plan_as_text(describe: Describe, catalogue: Catalogue) -> None:
    path = describe(KERNELS)
    plan = planned(path, catalogue)
    assert shown(
        plan,
        path,
        "add.Tensor",
        "relu",
        "relu.out",
        "relu_",
        "fill.Tensor",
        "fill.Tensor_out",
        "mul.Tensor",
        "mul_.Tensor",
        "addmm_",
        "where.self",
        "sin",
        "sin.out",
        "linear",
        "cumsum_",
    ).splitlines() == [
        "add.Tensor | structured | DIR/kernels.yaml:5:6 | chiplib | written around the structured kernel "
        "`chip::add` (DIR/kernels.yaml:5:6); PyTorch's meta function checks and shapes it; for Float, "
        "other dtypes: the fallback runs it on the CPU (DIR/backend.yaml:4:1)",
        "relu | kernel | DIR/kernels.yaml:6:6 | chiplib | `chip::relu` (DIR/kernels.yaml:6:6)",
        "relu.out | derived | relu | chiplib | from the kernel of `relu`: runs `chip::relu` "
        "(DIR/kernels.yaml:6:6), resizes out and copies the result into it",
        "relu_ | derived | relu | chiplib | from the kernel of `relu`: runs `chip::relu` "
        "(DIR/kernels.yaml:6:6) and copies the result back into self",
        "fill.Tensor | derived | fill_.Tensor | chiplib | from the kernel of `fill_.Tensor`: copies self "
        "into a new result and runs `chip::fill_` (DIR/kernels.yaml:7:6) on it; shape and dtype from "
        "`opsmith::meta_functions::fill_tensor` (opsmith/plan/meta_functions.yaml)",
        "fill.Tensor_out | derived | fill_.Tensor | chiplib | from the kernel of `fill_.Tensor`: copies "
        "self into out and runs `chip::fill_` (DIR/kernels.yaml:7:6) on it; shape and dtype from "
        "`opsmith::meta_functions::fill_tensor` (opsmith/plan/meta_functions.yaml)",
        "mul.Tensor | derived | mul.out | chiplib | from the kernel of `mul.out`: allocates the result and "
        "runs `chip::mul_out` (DIR/kernels.yaml:8:6) into it; shape and dtype from PyTorch's structured "
        "meta function",
        "mul_.Tensor | derived | mul.out | chiplib | from the kernel of `mul.out`: runs `chip::mul_out` "
        "(DIR/kernels.yaml:8:6) with out=self, which is safe for a pointwise operator; shape and dtype "
        "from PyTorch's structured meta function",
        "addmm_ | derived | addmm.out | chiplib | from the kernel of `addmm.out`: runs `chip::addmm_out` "
        "(DIR/kernels.yaml:9:6) into a temporary and copies it back into self; shape and dtype from "
        "PyTorch's structured meta function",
        "where.self | derived | where.self_out | chiplib | from the kernel of `where.self_out`: allocates "
        "the result and runs `chip::where_out` (DIR/kernels.yaml:10:6) into it; shape and dtype from "
        "`opsmith::meta_functions::where` (opsmith/plan/meta_functions.yaml)",
        "sin | fallback | DIR/backend.yaml:4:1 |  | no kernel in chiplib, runtime; the fallback runs it on "
        "the CPU (DIR/backend.yaml:4:1); as one call, where PyTorch's composite kernel would check and "
        "shape before the CPU does",
        "sin.out | fallback | DIR/backend.yaml:4:1 |  | no kernel in chiplib, runtime; the fallback runs "
        "it on the CPU (DIR/backend.yaml:4:1)",
        "linear | composite | CompositeImplicitAutograd |  | PyTorch's composite kernel decomposes it into "
        "other operators",
        "cumsum_ | fallback | DIR/backend.yaml:4:1 |  | no kernel in chiplib, runtime; the fallback runs "
        "it on the CPU (DIR/backend.yaml:4:1); as one call, where PyTorch's composite kernel would check "
        "and shape before the CPU does",
    ]


def test_every_operator_has_one_route(describe: Describe, catalogue: Catalogue) -> None:
    plan = planned(describe(KERNELS), catalogue)
    assert [entry.name for entry in plan.entries] == sorted(catalogue.operators)
    counts = plan.counts()
    assert sum(counts.values()) == len(catalogue.operators)
    assert list(counts) == list(Route)
    # Two of them are of the fill that every device has.
    assert (counts[Route.STRUCTURED], counts[Route.DERIVED]) == (3, 12)


def test_an_explicit_kernel_wins_over_a_derived_one(
    describe: Describe, catalogue: Catalogue
) -> None:
    path = describe(
        """
        - {op: add.out, kernel_name: chip::add, structured: true}
        - {op: add_.Tensor, kernel_name: chip::add_}
        """
    )
    entry = planned(path, catalogue).entry("add_.Tensor")
    assert entry.route is Route.KERNEL
    assert entry.kernel is not None and entry.kernel.symbol == "chip::add_"


def test_the_first_library_wins(describe: Describe, catalogue: Catalogue) -> None:
    path = describe("- {op: relu, kernel_name: chip::relu}")
    (path.parent / "second.yaml").write_text(
        "library: second\nkernels: [{op: relu, kernel_name: b::relu}, {op: neg.out, kernel_name: b::neg}]\n"
    )
    path.write_text(path.read_text().replace("[kernels.yaml]", "[kernels.yaml, second.yaml]"))
    plan = planned(path, catalogue)
    assert plan.entry("relu").library == "chiplib"
    assert plan.entry("neg.out").library == "second"


def test_unknown_operator_is_named_with_the_nearest(
    describe: Describe, catalogue: Catalogue
) -> None:
    with pytest.raises(OperatorUnknown) as caught:
        planned(describe(), catalogue).entry("aten::add_.Tensr")
    assert str(caught.value) == (
        f"torch {catalogue.torch} has no operator `add_.Tensr` (did you mean add_.Tensor, add_.Scalar?)\n"
        "  remedy: `opsmith plan chip` lists every operator"
    )


# ---- the fallback policy


def test_deny_stands_for_the_whole_group(describe: Describe, catalogue: Catalogue) -> None:
    path = describe(fallback="{deny: [topk]}")
    plan = planned(path, catalogue)
    assert plan.entry("topk").route is Route.COMPOSITE
    assert shown(plan, path, "topk.values") == (
        "topk.values | denied | DIR/backend.yaml:4:1 |  | no kernel in chiplib, runtime; the fallback is "
        "denied to it (DIR/backend.yaml:4:19)"
    )
    assert plan.unlisted is Route.FALLBACK


def test_only_denies_all_others(describe: Describe, catalogue: Catalogue) -> None:
    path = describe(fallback="{only: [topk]}")
    plan = planned(path, catalogue)
    assert plan.entry("topk.values").route is Route.FALLBACK
    assert plan.entry("sin.out").route is Route.DENIED
    assert "`only` does not allow it the fallback (" in plan.entry("sin.out").why
    assert plan.unlisted is Route.DENIED


def test_no_fallback(describe: Describe, catalogue: Catalogue) -> None:
    path = describe(fallback="none")
    plan = planned(path, catalogue)
    assert plan.counts()[Route.FALLBACK] == 0
    assert shown(plan, path, "sin.out") == (
        "sin.out | missing | DIR/backend.yaml:4:1 |  | no kernel in chiplib, runtime; the backend has no "
        "fallback (DIR/backend.yaml:4:1)"
    )


@pytest.mark.parametrize(
    ("fallback", "route"), [("cpu", Route.FALLBACK), ("none", Route.COMPOSITE)]
)
def test_a_composite_that_refuses_channels_last_runs_on_the_cpu_where_it_may(
    describe: Describe, catalogue: Catalogue, fallback: str, route: Route
) -> None:
    entry = planned(describe(fallback=fallback), catalogue).entry("native_group_norm")
    assert entry.route is route
    assert ("refuses channels-last" in entry.why) == (route is Route.FALLBACK)


@pytest.mark.parametrize(("fallback", "route"), [("cpu", Route.FALLBACK), ("none", Route.MISSING)])
def test_a_composite_that_reads_host_memory_never_runs_on_a_device(
    describe: Describe, catalogue: Catalogue, fallback: str, route: Route
) -> None:
    plan = planned(describe(fallback=fallback), catalogue)
    entry = plan.entry("_grid_sampler_2d_cpu_fallback")
    assert (entry.route, entry.by_name) == (route, True)
    assert entry.why.endswith("; PyTorch's composite kernel reads its arguments as host memory")
    assert plan.entry("_reshape_from_tensor").route is Route.DENIED


def test_host_kernels_get_copies_without_a_host_window(
    describe: Describe, catalogue: Catalogue
) -> None:
    path = describe(
        "- {op: add.out, kernel_name: chip::add, structured: true}",
        header="execution: host",
        driver="{sources: [driver.c], host_window: off}",
    )
    plan = planned(path, catalogue)
    assert plan.entry("add.out").route is Route.STRUCTURED
    assert shown(plan, path, "add.out").endswith(
        "; on copies in host memory: there is no host window (DIR/backend.yaml:2:1)"
    )


def test_each_operator_has_a_place(describe: Describe, catalogue: Catalogue) -> None:
    kernels = """
        - {op: mul.out, kernel_name: chip::mul_out, dtypes: [Float], execution: device}
        - {op: add.out, kernel_name: chip::add, structured: true}
        - {stub: abs_stub, kernel_name: chip::abs}
    """
    names = ("mul_.Tensor", "add.Tensor", "abs", "sin.out", "linear", "as_strided")
    for window, host in (("on", Place.HOST), ("off", Place.COPIES)):
        driver = f"{{sources: [driver.c], host_window: {window}}}"
        path = describe(kernels, "{deny: [cos]}", "execution: host", driver)
        plan = planned(path, catalogue)
        assert [plan.entry(name).place for name in names] == [
            Place.DEVICE, host, host, host, None, Place.DEVICE,
        ]  # fmt: skip
        assert plan.entry("cos.out").place is None
        assert plan.places()[host] == sum(entry.place is host for entry in plan.entries) > 100


def test_kernels_on_the_host_can_be_denied(describe: Describe, catalogue: Catalogue) -> None:
    kernels = """
        - {op: mul.out, kernel_name: chip::mul_out}
        - {op: add.out, kernel_name: chip::add_out}
        - {op: neg.out, kernel_name: chip::neg_out, execution: device}
        - {stub: abs_stub, kernel_name: chip::abs}
    """
    path = describe(kernels, header="execution: host")
    text = path.read_text()
    path.write_text(f"{text}host_kernels: {{deny: [add_.Tensor]}}\n")
    plan = planned(path, catalogue)
    assert shown(plan, path, "add.out") == (
        "add.out | denied | DIR/backend.yaml:4:1 |  | no kernel in chiplib, runtime; `host_kernels` denies "
        "it kernels that run on the host (DIR/backend.yaml:5:23); the kernel `chip::add_out` "
        "(DIR/kernels.yaml:6:6) runs on the host, which `host_kernels` denies (DIR/backend.yaml:5:23)"
    )
    routes = {name: plan.entry(name).route for name in ("mul.out", "neg.out", "abs.out", "sin.out")}
    assert list(routes.values()) == [Route.KERNEL, Route.KERNEL, Route.STUB, Route.FALLBACK]
    path.write_text(f"{text}host_kernels: deny\n")
    plan = planned(path, catalogue)
    routes = {name: plan.entry(name).route for name in routes}
    assert list(routes.values()) == [Route.DENIED, Route.KERNEL, Route.DENIED, Route.FALLBACK]
    path.write_text(f"{text}host_kernels: {{deny: [ad]}}\n")
    with pytest.raises(OperatorUnknown, match="ad"):
        planned(path, catalogue)


def test_the_environment_hides_host_windows(
    describe: Describe, catalogue: Catalogue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = "- {op: add.out, kernel_name: chip::add, structured: true}"
    path = describe(kernel, header="execution: host")

    def why() -> str:  # plans are kept on disk
        return shown(plan_backend(str(path), tmp_path / "cache"), path, "add.out")

    seen = why()
    monkeypatch.setenv("OPSMITH_HOST_WINDOW", "off")
    assert why() == (
        f"{seen}; on copies in host memory: there is no host window (OPSMITH_HOST_WINDOW=off)"
    )
    monkeypatch.setenv("OPSMITH_HOST_WINDOW", "on")
    assert why() == seen
    monkeypatch.setenv("OPSMITH_HOST_WINDOW", "no")
    with pytest.raises(
        SettingInvalid, match="OPSMITH_HOST_WINDOW is `no`, which is neither on nor"
    ):
        read_backend(path, catalogue)


def test_structured_with_its_own_meta_and_casts(describe: Describe, catalogue: Catalogue) -> None:
    path = describe(
        "- {op: add.out, kernel_name: chip::add, structured: true, structured_meta: override, casts: true}"
    )
    assert shown(planned(path, catalogue), path, "add.Tensor") == (
        "add.Tensor | structured | DIR/kernels.yaml:5:6 | chiplib | written around the structured kernel "
        "`chip::add` (DIR/kernels.yaml:5:6); `chip::add_meta` checks and shapes it; it casts by itself"
    )


# ---- what can be derived from what

# Of each pair (have, want) of variants of one group, on torch 2.13: how it is derived, or why it is not.
# Every reason is one of Obstacle, or the refusal of a kernel for a CompositeImplicitAutograd operator.
PAIRS = {
    "FUNCTIONAL_FROM_OUT": 766,
    "FUNCTIONAL_FROM_INPLACE": 258,
    "OUT_FROM_FUNCTIONAL": 868,
    "OUT_FROM_INPLACE": 260,
    "INPLACE_FROM_OUT": 202,
    "INPLACE_FROM_OUT_TEMPORARY": 57,
    "INPLACE_FROM_FUNCTIONAL": 258,
    "BETWEEN_DEVICES": 4,
    "DECOMPOSED": 17,
    "VIEW": 32,
    "RESHAPES_SELF": 8,
    "OTHER_LAYOUT": 166,
    "DYNAMIC_SHAPE": 13,
    "NO_META": 88,
    "kernel refused": 465,
}


def test_every_pair_of_variants_derives_or_says_why(catalogue: Catalogue) -> None:
    counted: Counter[str] = Counter()
    for group in catalogue.groups:
        for (have, kernel), (want, wanted) in permutations(group.members(), 2):
            if catalogue.operators[kernel].composite is Composite.IMPLICIT:
                counted["kernel refused"] += 1
                continue
            kernels = {have: Kernel(kernel, "f", "lib", Location(Path("kernels.yaml")))}
            operator = catalogue.operators[wanted]
            decomposed = operator.composite is Composite.IMPLICIT
            derived = derive(operator, group, kernels, catalogue, differentiable=not decomposed)
            if isinstance(derived, Derived):
                assert derived.derivation.name.startswith(f"{want.name}_FROM_{have.name}")
                counted[derived.derivation.name] += 1
            else:
                (obstacle,) = [o for o in Obstacle if _says(o, derived)]
                counted[obstacle.name] += 1
    if torch_release() == (2, 13):
        assert counted == PAIRS
    else:
        assert counted.keys() <= PAIRS.keys() and counted.total() > 3000


def test_out_of_a_factory_derives_from_a_kernel_in_cpp_alone(catalogue: Catalogue) -> None:
    (group,) = (group for group in catalogue.groups if group.functional == "eye")
    wanted = catalogue.operators["eye.out"]
    derived = {}
    for abi in (Abi.ATEN, Abi.PYTHON):
        kernel = Kernel("eye", "f", "lib", Location(Path("kernels.yaml")), abi=abi)
        kernels = {Variant.FUNCTIONAL: kernel}
        derived[abi] = derive(wanted, group, kernels, catalogue, differentiable=True)
    assert isinstance(derived[Abi.ATEN], Derived)
    assert derived[Abi.PYTHON] == (
        "`eye` takes its result's dtype and device as arguments, which a call of a Python kernel does not "
        "fill from `out`"
    )


def _says(obstacle: Obstacle, reason: str) -> bool:
    pattern = re.sub(r"\\\{\w+\\\}", "[^`]+", re.escape(obstacle.value))
    return re.fullmatch(pattern, reason) is not None


# ---- the cache


def test_a_cached_plan_is_the_same(
    describe: Describe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its manifests are compared with those of the plan, but not read."""
    path = describe(KERNELS)
    fresh = plan_backend(str(path), tmp_path / "cache")
    (record,) = (tmp_path / "cache" / "plans").iterdir()
    written = record.stat().st_mtime_ns
    monkeypatch.setattr(cache_room, "_known", {})
    monkeypatch.delattr("opsmith.description.backend.read_library")
    assert plan_backend(str(path), tmp_path / "cache") == fresh
    assert record.stat().st_mtime_ns == written


def test_a_changed_manifest_is_planned_anew(describe: Describe, tmp_path: Path) -> None:
    path = describe(KERNELS)
    plan_backend(str(path), tmp_path / "cache")
    manifest = path.parent / "kernels.yaml"
    manifest.write_text(manifest.read_text().replace("op: relu,", "op: abs,"))
    plan = plan_backend(str(path), tmp_path / "cache")
    assert plan.entry("relu").route is Route.FALLBACK
    assert plan.entry("abs").route is Route.KERNEL


def test_a_damaged_cache_is_planned_anew(describe: Describe, tmp_path: Path) -> None:
    path = describe(KERNELS)
    fresh = plan_backend(str(path), tmp_path / "cache")
    (record,) = (tmp_path / "cache" / "plans").iterdir()
    record.write_bytes(record.read_bytes()[:1000])
    assert plan_backend(str(path), tmp_path / "cache") == fresh


@pytest.mark.parametrize("place", ["schema", "plan", "plan/executorch", "description/formats"])
def test_plans_depend_on_all_code_that_makes_them(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "opsmith"
    monkeypatch.setattr(cache_room, "_PACKAGE", package)
    for room in ("schema", "plan/executorch", "description/formats"):
        (package / room).mkdir(parents=True)
    before = cache_room.planning_code_digest()
    (package / place / "new.py").write_text("RULE = 1\n")
    assert cache_room.planning_code_digest() != before


# ---- facts that the plan's tables state


@pytest.mark.parametrize(
    ("others", "least"),
    [((2, 3), 890), ((3,), 890), ((2, 1), 890), ((), 890), (2.5, 500), (2, 500)],
)
def test_elementwise_results_are_those_of_the_meta_functions(
    others: tuple[int, ...] | float, least: int, catalogue: Catalogue
) -> None:
    """Every operator that skips its meta function for like operands: the meta agrees with the table."""
    wrong = {}
    checked = 0
    for group in catalogue.groups:
        rule = elementwise_result(group, catalogue)
        if rule is None or group.functional is None:
            continue
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
            result = _on_meta(group.functional, dtype, others)
            if result is None:
                continue
            expected = torch.bool if rule is Elementwise.BOOL else dtype
            if (result.dtype, result.shape) != (expected, (2, 3)) or not result.is_contiguous():
                wrong[group.functional, dtype] = result
            checked += 1
    assert wrong == {}
    assert checked > least


def _on_meta(name: str, dtype: torch.dtype, others: tuple[int, ...] | float) -> torch.Tensor | None:
    """The operator's result of a Tensor of 2 x 3 and ``others``, with 2 for numbers without default."""
    base, _, overload = name.partition(".")
    packet = getattr(torch.ops.aten, base)
    arguments: list[object] = []
    for argument in native_function(name).func.arguments.flat_positional:
        if argument.type.is_tensor_like():
            is_first = not any(isinstance(given, torch.Tensor) for given in arguments)
            value = (2, 3) if is_first else others
            arguments.append(
                torch.empty(value, device="meta", dtype=dtype)
                if isinstance(value, tuple)
                else value
            )
        elif argument.default is None:
            number = argument.type in (BaseType(BaseTy.Scalar), BaseType(BaseTy.int))
            arguments.append(2 if number else 2.0)
    try:
        result = getattr(packet, overload or "default")(*arguments)
    except (RuntimeError, ValueError):
        return None  # no such operator for this dtype
    assert isinstance(result, torch.Tensor)
    return result


def test_routes_are_words_of_the_design() -> None:
    assert [route.value for route in Route] == [
        "kernel", "structured", "stub", "derived", "composite", "fallback", "denied", "missing",
    ]  # fmt: skip


# ---- random numbers

DRAWING = """
    - {op: uniform_, kernel_name: chip::uniform_, rng: philox}
"""


def test_random_operators_without_kernels_draw_from_a_cpu_generator(
    describe: Describe, catalogue: Catalogue
) -> None:
    path = describe(DRAWING)
    plan = planned(path, catalogue)
    assert shown(plan, path, "uniform_", "poisson").splitlines() == [
        "uniform_ | kernel | DIR/kernels.yaml:5:6 | chiplib | `chip::uniform_` (DIR/kernels.yaml:5:6)",
        "poisson | fallback | DIR/backend.yaml:4:1 |  | no kernel in chiplib, runtime; the fallback runs "
        "it on the CPU (DIR/backend.yaml:4:1); it draws from a CPU generator that the device's next Philox "
        "numbers make",
    ]


def test_the_cpus_numbers_leave_out_kernels_that_draw_others(
    describe: Describe, catalogue: Catalogue
) -> None:
    path = describe(DRAWING)
    path.write_text(f"{path.read_text()}rng: cpu\n")
    plan = planned(path, catalogue)
    (line,) = shown(plan, path, "uniform_").splitlines()
    assert line == (
        "uniform_ | fallback | DIR/backend.yaml:4:1 |  | no kernel in chiplib, runtime; the fallback runs it "
        "on the CPU (DIR/backend.yaml:4:1); the kernel `chip::uniform_` (DIR/kernels.yaml:5:6) draws Philox "
        "numbers, and the description asks for the CPU's (DIR/backend.yaml:5:1); it draws from the device's "
        "generator, which gives the CPU's numbers"
    )


# ---- attention


def test_which_calls_of_attention_are_one_operator(
    describe: Describe, catalogue: Catalogue
) -> None:
    forward = "_scaled_dot_product_fused_attention_overrideable"
    path = describe(
        f"""
        - op: {forward}
          kernel_name: chip::attention
          dtypes: {{query: [Half]}}
          attention: {{most_head_dim: 256, head_dim_multiple: 8, without: [mask_gradient, dropout]}}
        """
    )
    plan = planned(path, catalogue)
    assert (
        " answers `overrideable`, PyTorch's word for one call, where `chip::attention` "
        "(DIR/kernels.yaml:5:5) takes Half, head dims up to 256, multiples of 8, without dropout or a mask's "
        "gradient; where no gradient is needed: no library has its backward; else that it is computed by its "
        "parts"
    ) in shown(plan, path, "_fused_sdp_choice")
    assert (
        f"PyTorch's composite kernel calls `{forward}` where `_fused_sdp_choice` says so, and else "
        "decomposes it"
    ) in shown(plan, path, "scaled_dot_product_attention")
    generated = "".join(file.text for file in emit(plan, laid_out=False))
    assert (
        '{{"chip::attention", opsmith::DtypeSet{at::ScalarType::Half}, 256, 8, opsmith::kDropout | '
        "opsmith::kMaskGradient}}"
    ) in generated


def test_a_list_of_dtypes_is_for_all_operands_but_integers_that_are_not_promoted(
    describe: Describe, catalogue: Catalogue
) -> None:
    path = describe(
        """
        - {op: mm.out, kernel_name: chip::mm, structured: true, dtypes: [Float]}
        - {op: bmm.out, kernel_name: chip::bmm, dtypes: {self: [Float]}}
        - {op: mul.out, kernel_name: chip::mul, dtypes: [Float]}
        - {op: index_add.out, kernel_name: chip::index_add, structured: true, dtypes: [Float]}
        """
    )
    plan = planned(path, catalogue)

    def taken(name: str, *inputs: str) -> dict[str, set[str]]:
        found = conditions(plan.entry(name), inputs, ["out"])
        return {each.argument: {*each.dtypes} for each in found if isinstance(each, HasDtype)}

    assert taken("mm.out", "self", "mat2") == {"self": {"Float"}, "mat2": {"Float"}}
    assert taken("index_add.out", "self", "index", "source") == {
        "self": {"Float"},
        "index": {"Float", *INTEGRAL},
        "source": {"Float"},
    }
    assert taken("bmm.out", "self", "mat2") == {"self": {"Float"}}
    assert taken("mul.out", "self", "other") == {"self": {"Float"}}


def test_without_a_kernel_attention_is_computed_by_its_parts(
    describe: Describe, catalogue: Catalogue
) -> None:
    path = describe()
    plan = planned(path, catalogue)
    assert "answers that attention is computed by its parts: no library has a kernel" in shown(
        plan, path, "_fused_sdp_choice"
    )
    text = shown(plan, path, "_scaled_dot_product_fused_attention_overrideable")
    assert "PyTorch's composite kernel refuses the call, which it leaves to devices" in text
    assert "set_attention_kernels" not in "".join(file.text for file in emit(plan, laid_out=False))
