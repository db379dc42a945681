"""The generated code, as golden text: every route and derivation, byte for byte.

``OPSMITH_UPDATE_GOLDEN=1 pytest tests/emit/test_emit.py`` writes the golden files anew; read the difference.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

import pytest

from opsmith.description import read_backend
from opsmith.emit import emit
from opsmith.plan import Entry, resolve
from opsmith.schema import Catalogue, Composite, read_host_readers

Describe = Callable[..., Path]
GOLDEN = Path(__file__).parent / "golden"

KERNELS = """
    - {op: _foreach_add.Scalar_out, kernel_name: chip::foreach_add_out}
    - {op: _foreach_neg_, kernel_name: chip::foreach_neg_}
    - {op: add.out, kernel_name: chip::add, structured: true, dtypes: [Float, Half]}
    - {op: addmm.out, kernel_name: chip::addmm_out}
    - {op: cat.out, kernel_name: chip::cat, structured: true}
    - {op: bernoulli_.float, kernel_name: chip::bernoulli_}
    - {op: eye.m_out, kernel_name: chip::eye_out}
    - {op: lt.Tensor_out, kernel_name: chip::lt_out}
    - {op: max.dim_max, kernel_name: chip::max_dim, structured: true}
    - {op: maximum.out, kernel_name: chip::maximum, structured: true, casts: true}
    - {op: mm.out, kernel_name: chip::mm, structured: true, structured_meta: override}
    - {op: native_layer_norm, kernel_name: chip::native_layer_norm, dtypes: {weight: [Float]}}
    - {op: new_full, kernel_name: chip::new_full, symint: true}
    - {op: relu, kernel_name: chip::relu, dtypes: [Float]}
    - {op: rrelu_with_noise.out, kernel_name: chip::rrelu_with_noise_out}
    - {op: topk.values, kernel_name: chip::topk}
"""
# Operators without a kernel in the golden text: a short name, a long one, and one that is in-place.
UNSERVED = ("special_entr", "special_scaled_modified_bessel_k0", "sub")


@pytest.fixture
def emitted(
    describe: Describe, catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., dict[str, str]]:
    """The emitted files of a description, by name; its paths are relative, as golden text needs."""

    def is_shown(entry: Entry, unserved: Collection[str]) -> bool:
        return bool(
            entry.library or entry.refusal or re.split(r"_?(\.|$)", entry.name)[0] in unserved
        )

    def run(unserved: Collection[str] | None = None, **description: str) -> dict[str, str]:
        path = describe(**description)
        monkeypatch.chdir(path.parent)
        plan = resolve(read_backend(Path(path.name), catalogue), catalogue)
        # Without the runtime's operators, whose places change whenever its manifest does.
        entries = tuple(
            entry
            for entry in plan.entries
            if entry.library != "runtime" and (unserved is None or is_shown(entry, unserved))
        )
        # The text is on any release what it is on this one.
        plan = replace(plan, entries=entries, torch="2.13.0+cpu")
        return {file.name: file.text for file in emit(plan)}

    return run


NAMES = [
    "ChipNativeFunctions.h",
    "ChipFunctions.h",
    "RegisterChip_0.cpp",
    "RegisterChipAutocast.cpp",
    "RegisterChipFallback.cpp",
]


def test_the_dtypes_of_a_structured_kernels_argument_are_its_own(
    emitted: Callable[..., dict[str, str]],
) -> None:
    """They are not the dtype that the kernel computes in."""
    kernels = "- {op: add.out, kernel_name: chip::add, structured: true, dtypes: {other: [Half]}}"
    text = " ".join("".join(emitted(kernels=kernels).values()).split())
    assert "!(opsmith::DtypeSet{at::ScalarType::Half}.has(other))" in text
    assert ".has(op)" not in text


def test_the_dtypes_of_an_argument_whose_name_is_a_word_of_cpp(
    emitted: Callable[..., dict[str, str]],
) -> None:
    kernels = """
    - func: "chip::scale(Tensor self, Tensor result) -> Tensor"
      kernel_name: chip::scale
      dtypes: {result: [Half]}
      meta: {same_as: self}
    """
    text = " ".join("".join(emitted(kernels=kernels).values()).split())
    assert "!(opsmith::DtypeSet{at::ScalarType::Half}.has(result_))" in text


def test_golden(emitted: Callable[..., dict[str, str]]) -> None:
    files = emitted(UNSERVED, kernels=KERNELS, fallback="{deny: [topk, add.out]}")
    if os.environ.get("OPSMITH_UPDATE_GOLDEN"):
        for name, text in files.items():
            (GOLDEN / name).write_text(text)
    assert list(files) == NAMES
    assert files == {name: (GOLDEN / name).read_text() for name in NAMES}


def test_what_is_known_of_operators_that_nothing_serves(
    emitted: Callable[..., dict[str, str]], catalogue: Catalogue
) -> None:
    text = emitted(kernels=KERNELS)["RegisterChipFallback.cpp"]
    registered = re.findall(r'm.impl\("(\S+)",\s+torch::\S+<&opsmith::fallback>', text)
    served = {line.split()[2].rstrip(",") for line in KERNELS.strip().splitlines()}
    # One call on the CPU in the place of a composite kernel, which would check and shape as the CPU's does.
    whole = [
        name
        for group in catalogue.groups
        if group.structured and catalogue.operators[str(group.out)].composite is Composite.NONE
        for _, name in group.members()
        if catalogue.operators[name].composite is Composite.NON_FUNCTIONAL
        and served.isdisjoint(catalogue.variants_of(name))
    ]
    # Their composite kernels refuse any device but PyTorch's own, or channels-last, or what is empty, or read
    # host memory, or compute something else.
    refusing = ["conj_physical_", "mode.values", "native_channel_shuffle", "native_group_norm"]
    refusing += ["_stack.out", "kaiser_window", "kaiser_window.beta", "kaiser_window.periodic"]
    reading = read_host_readers().readers - read_host_readers().differentiated
    assert registered == sorted([*whole, *refusing, *reading])
    _, _, outputs_on = text.partition("set_pure_outputs(")
    outputs = re.findall(r'"(\S+)"', outputs_on.partition(";")[0])
    assert outputs == sorted(str(group.out) for group in catalogue.groups if group.structured)


AUTOGRAD = """
    - {op: mul.out, kernel_name: chip::mul, structured: true, backward: chip::mul_backward, saves: []}
    - {op: linear, kernel_name: chip::linear, backward: chip::linear_backward, dtypes: [Float]}
    - {op: matmul.out, kernel_name: chip::matmul_out}
    - {op: matmul, autograd: chip::matmul_autograd}
    - {op: sigmoid, autograd: chip::sigmoid_autograd}
"""


def test_golden_autograd(emitted: Callable[..., dict[str, str]]) -> None:
    files = emitted(kernels=AUTOGRAD)
    text = files["RegisterAutogradChip_0.cpp"]
    declared = files["ChipNativeFunctions.h"]
    golden = {
        "RegisterAutogradChip_0.cpp": text,
        # The text above it is as in the other header.
        "AutogradNativeFunctions.h": declared[declared.index("// linear, backward") :],
    }
    if os.environ.get("OPSMITH_UPDATE_GOLDEN"):
        for name, content in golden.items():
            (GOLDEN / name).write_text(content)
    assert golden == {name: (GOLDEN / name).read_text() for name in golden}


def test_a_backward_kernel_on_copies_includes_what_makes_them(
    emitted: Callable[..., dict[str, str]],
) -> None:
    kernel = "- {op: relu, kernel_name: chip::relu, backward: chip::relu_backward}"
    driver = "{sources: [driver.c], host_window: off}"
    text = emitted(kernels=kernel, header="execution: host", driver=driver)[
        "RegisterAutogradChip_0.cpp"
    ]
    assert "opsmith::on_copies(" in text
    assert "#include <opsmith/generated/on_copies.h>\n" in text


def test_emission_is_deterministic(emitted: Callable[..., dict[str, str]]) -> None:
    assert emitted(kernels=KERNELS) == emitted(kernels=KERNELS)


def test_places_of_autocast_rules_are_in_no_digest(emitted: Callable[..., dict[str, str]]) -> None:
    driver = "{sources: [driver.c]}\nautocast: {float32: [dot]}"
    text = emitted(driver=driver)["RegisterChipAutocast.cpp"]
    places = [line.strip() for line in text.splitlines() if "backend.yaml:3:22" in line]
    assert places == ["// backend.yaml:3:22"]  # a digest leaves out lines of comments


def test_another_kernel_changes_one_shard_only(emitted: Callable[..., dict[str, str]]) -> None:
    names = "abs ceil cos exp floor log neg round sin sqrt tan tanh trunc sigmoid rsqrt exp2 expm1 erf erfc "
    names += "asin atan sinh cosh frac log2 log10 log1p reciprocal sgn"
    lines = [f"- {{op: {name}.out, kernel_name: chip::{name}}}" for name in names.split()]
    lines += [f"- {{op: {name}, kernel_name: chip::{name}}}" for name in ("relu", "isnan", "isinf")]
    before = emitted(kernels="\n".join(lines))
    after = emitted(kernels="\n".join([*lines, "- {op: acos.out, kernel_name: chip::acos}"]))
    assert [name for name in before if name.startswith("RegisterChip_")] == [
        f"RegisterChip_{number}.cpp" for number in range(8)
    ]
    changed = [name for name in after if after[name] != before.get(name)]
    # The last one names the operators that fall back although PyTorch would decompose them.
    assert changed == [
        "ChipNativeFunctions.h",
        "ChipFunctions.h",
        "RegisterChip_5.cpp",
        "RegisterChipFallback.cpp",
    ]


def test_a_kernel_without_device_guard_is_called_directly(
    emitted: Callable[..., dict[str, str]],
) -> None:
    files = emitted(kernels="- {op: relu, kernel_name: chip::f}", header="device_guard: false")
    assert files["RegisterChip_0.cpp"].endswith(
        "namespace at::privateuse1 {\n\n"
        "C10_EXPORT at::Tensor relu(const at::Tensor& self) {\n  return ::chip::f(self);\n}\n\n"
        "}  // namespace at::privateuse1\n"
    )


def test_only_allowed_operators_are_registered_for_the_fallback(
    emitted: Callable[..., dict[str, str]],
) -> None:
    text = emitted(fallback="{only: [sin.out]}")["RegisterChipFallback.cpp"]
    assert "m.fallback(torch::CppFunction::makeFromBoxedFunction<&opsmith::denied>());" in text
    for name in ("sin", "sin.out", "sin_"):  # a name stands for its group
        assert (
            f'm.impl("{name}", torch::CppFunction::makeFromBoxedFunction<&opsmith::fallback>());'
            in text
        )
    assert text.count("<&opsmith::fallback>());") == 3
    assert (
        '"cos.out", "no kernel in chiplib, runtime; `only` does not allow it the fallback '
        '(backend.yaml:4:1)");'
    ) in " ".join(text.split())
