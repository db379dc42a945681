"""Which kernel serves which calls of ExecuTorch programs: combination, keys, constraints, exact texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from executorch_chip import BACKEND, FAST, PLAIN, write_chip
from opsmith.description import read_backend
from opsmith.errors import (
    DescriptionError,
    KernelDuplicate,
    KernelRejected,
    OperatorsUnserved,
    RegistryFull,
)
from opsmith.plan.executorch.built_libraries import Clash, clashes, serve_built
from opsmith.plan.executorch.kernel_keys import Argument, CallForm, TensorMeta
from opsmith.plan.executorch.library_facts import (
    BuiltFor,
    LibraryDescription,
    library_description,
)
from opsmith.plan.executorch.resolver import (
    REGISTRY_ROOM,
    ExecutorchPlan,
    Runtime,
    plan_executorch,
    serve_forms,
)
from opsmith.schema import Catalogue
from refusal import refusal

RUNTIME = Runtime(
    "1.4.1",
    frozenset(
        f"aten::{name}" for name in ("add.out", "mul.out", "relu.out", "max.dim_max", "cat.out")
    ),
)
FLOAT = TensorMeta("Float", (0, 1))
DOUBLE = TensorMeta("Double", (0, 1))
IMAGE = TensorMeta("Float", (0, 2, 3, 1))
LONG_ROW = TensorMeta("Long", (0,))


def add(tensor: TensorMeta) -> CallForm:
    return CallForm("aten::add.out", (tensor, tensor, None, tensor, tensor))


def mul(*tensors: TensorMeta) -> CallForm:
    return CallForm("aten::mul.out", tensors if len(tensors) == 4 else tensors * 4)


def form(operator: str, *arguments: Argument) -> CallForm:
    return CallForm(operator, arguments)


@pytest.fixture(scope="module")
def chip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_chip(tmp_path_factory.mktemp("chip"))


def planned(
    backend: Path, catalogue: Catalogue, *forms: CallForm, runtime: Runtime = RUNTIME
) -> ExecutorchPlan:
    return plan_executorch(read_backend(backend, catalogue), catalogue, runtime, forms or None)


def servers(backend: Path, catalogue: Catalogue, *forms: CallForm) -> list[tuple[str, str]]:
    """The library and what the libraries before it have against each form, in the forms' order."""
    served = serve_forms(read_backend(backend, catalogue), catalogue, RUNTIME, forms)
    by_form = {each.form: each for each in served}
    return [
        (by_form[each].kernel.library if by_form[each].kernel else "", by_form[each].why)  # type: ignore[union-attr]
        for each in forms
    ]


def test_the_first_library_that_takes_a_form_serves_it(chip: Path, catalogue: Catalogue) -> None:
    assert servers(chip, catalogue, add(FLOAT), add(DOUBLE), add(IMAGE), mul(FLOAT)) == [
        ("fast", ""),
        ("plain", "fast does not take Double as `self`"),
        ("plain", "fast does not take `self` in the dim order [0, 2, 3, 1]"),
        ("fast", ""),
    ]


def test_what_no_library_takes_is_the_runtimes(chip: Path, catalogue: Catalogue) -> None:
    assert servers(
        chip,
        catalogue,
        mul(IMAGE),
        mul(FLOAT, DOUBLE, DOUBLE, DOUBLE),
        form("aten::cat.out", (FLOAT, FLOAT), None, FLOAT, FLOAT),
    ) == [
        ("", "fast does not take Float(0,2,3,1) as `self`"),
        ("", "fast does not take Double(0,1) as `other`"),
        ("", "no library has a kernel for it"),
    ]
    forms = serve_forms(read_backend(chip, catalogue), catalogue, RUNTIME, [mul(IMAGE)])
    assert [each.in_runtime for each in forms] == [True]


def test_a_library_for_programs_has_their_kernels_under_their_keys(
    chip: Path, catalogue: Catalogue
) -> None:
    plan = planned(chip, catalogue, add(FLOAT), add(DOUBLE), mul(DOUBLE))
    assert [(each.kernel.symbol, each.keys, each.unkeyed) for each in plan.kernels] == [
        ("chip::plain::native::add_out", (add(DOUBLE).key,), False),
        ("chip::fast::native::add_out", (add(FLOAT).key,), False),
        ("chip::fast::native::mul_out", (mul(DOUBLE).key,), False),
    ]
    assert plan.registered == 3
    assert plan.dtypes() == {"aten::add.out": ("Double", "Float"), "aten::mul.out": ("Double",)}


def test_a_library_for_any_program_has_every_kernel(chip: Path, catalogue: Catalogue) -> None:
    plan = planned(chip, catalogue)
    assert [(each.operator.name, each.kernel.library, each.unkeyed) for each in plan.kernels] == [
        ("aten::add.out", "fast", False),
        ("aten::add.out", "plain", False),
        ("aten::mul.out", "fast", False),
        ("aten::relu.out", "plain", False),
        # The runtime that was given has no silu.
        ("aten::silu.out", "plain", True),
        ("aten::max.dim_max", "plain", False),
        ("chip::scale.out", "plain", True),
    ]
    # Only what arg_meta spells out has keys, one for each dtype; `out` stands twice.
    assert [key for each in plan.kernels for key in each.keys] == [
        "v1/6;0,1|6;0,1|6;0,1|6;0,1",
        "v1/7;0,1|7;0,1|7;0,1|7;0,1",
    ]
    assert plan.registered == 4


def test_an_operator_of_its_own_needs_no_key(chip: Path, catalogue: Catalogue) -> None:
    scale = form("chip::scale.out", FLOAT, None, FLOAT, FLOAT)
    (kernel,) = planned(chip, catalogue, scale).kernels
    assert (kernel.keys, kernel.unkeyed) == ((), True)
    assert kernel.why == "the runtime has no kernel for chip::scale.out"


def test_several_results_stand_once_in_the_key(chip: Path, catalogue: Catalogue) -> None:
    row = TensorMeta("Float", (0,))
    largest = form("aten::max.dim_max", FLOAT, None, None, row, LONG_ROW, (row, LONG_ROW))
    (kernel,) = planned(chip, catalogue, largest).kernels
    assert kernel.keys == ("v1/6;0,1|6;0|4;0",)
    assert len(kernel.operator.outs) == 2


def test_lists_of_tensors_are_checked_and_not_in_the_key(
    tmp_path: Path, catalogue: Catalogue
) -> None:
    plain = PLAIN + "  - {op: cat.out, kernel_name: chip::plain::cat_out, dtypes: [Float]}\n"
    backend = write_chip(tmp_path, plain=plain)
    floats = form("aten::cat.out", (FLOAT, FLOAT), None, FLOAT, FLOAT)
    mixed = form("aten::cat.out", (FLOAT, DOUBLE), None, FLOAT, FLOAT)
    assert floats.key == mixed.key == "v1/6;0,1|6;0,1"
    assert servers(backend, catalogue, floats) == [("plain", "")]
    assert servers(backend, catalogue, mixed) == [("", "plain does not take Double as `tensors`")]


def test_dtypes_may_be_given_by_argument(tmp_path: Path, catalogue: Catalogue) -> None:
    plain = PLAIN.replace(
        "kernel_name: chip::plain::relu_out, dtypes: [Float]",
        "kernel_name: chip::plain::relu_out, dtypes: {out: [Double]}",
    )
    backend = write_chip(tmp_path, plain=plain)
    relu = form("aten::relu.out", FLOAT, DOUBLE, DOUBLE)
    assert servers(backend, catalogue, relu) == [("plain", "")]
    relu = form("aten::relu.out", DOUBLE, FLOAT, FLOAT)
    assert servers(backend, catalogue, relu) == [("", "plain does not take Float as `out`")]


def test_all_that_nobody_serves_is_told(chip: Path, catalogue: Catalogue) -> None:
    with pytest.raises(OperatorsUnserved) as refused:
        planned(
            chip,
            catalogue,
            add(FLOAT),
            form("aten::silu.out", DOUBLE, DOUBLE, DOUBLE),
            form("chip::scal.out", FLOAT, None, FLOAT, FLOAT),
            form("aten::erf.out", FLOAT, FLOAT, FLOAT),
        )
    assert str(refused.value) == (
        f"{chip}:1:1: no library of `chip` serves\n"
        "  aten::erf.out Float(0,1) Float(0,1) Float(0,1): no library has a kernel for it (did you mean "
        "aten::relu.out, aten::mul.out, aten::cat.out?)\n"
        "  aten::silu.out Double(0,1) Double(0,1) Double(0,1): plain does not take Double as `self`\n"
        "  chip::scal.out Float(0,1) Float(0,1) Float(0,1): no library has a kernel for it (did you mean "
        "chip::scale.out?)\n"
        "and ExecuTorch 1.4.1 has no kernels for them either\n"
        "  remedy: add a kernel to one of its libraries, or export the program with operators that have "
        "one"
    )


def test_the_registry_has_an_end(tmp_path: Path, catalogue: Catalogue) -> None:
    dtypes = "Byte, Char, Short, Int, Long, Half, Float, Double, Bool, BFloat16, UInt16, UInt32"
    fast = FAST.replace("T0: [Float, Double]", f"T0: [{dtypes}], T1: [{dtypes}], T2: [{dtypes}]")
    fast = fast.replace("other: [T0, D0], out: [T0, D0]", "other: [T1, D0], out: [T2, D0]")
    backend = write_chip(tmp_path, fast=fast)
    crowded = Runtime("1.4.1", frozenset(f"aten::op{i}.out" for i in range(REGISTRY_ROOM - 100)))
    assert refusal(RegistryFull, planned, backend, catalogue, runtime=crowded) == (
        # 12 dtypes for each of three arguments, and an unkeyed kernel for each of five other operators.
        f"{backend}:1:1: the library would register 1,733 kernels, and the runtime has room for 100 beside "
        "its own\n"
        "  remedy: build it for programs (--for model.pte), which need only some of them"
    )


# ---- what ExecuTorch cannot call


def refused(tmp_path: Path, catalogue: Catalogue, entry: str, why: type[DescriptionError]) -> str:
    """The plan's refusal of a library with ``entry``, from the line on."""
    library = f"library: plain\nabi: executorch\nkernels:\n{entry}\n"
    backend = write_chip(tmp_path, plain=library)
    with pytest.raises(why) as error:
        planned(backend, catalogue)
    location = error.value.location
    assert location is not None and location.path == tmp_path / "plain.yaml"
    return f"{location.line}: " + str(error.value).removeprefix(f"{location}: ")


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (
            "  - {func: 'scale.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)', kernel_name: chip::scale}",
            "4: `scale.out` is declared without a namespace, and torch TORCH has no such operator\n"
            "  remedy: give it one of your own: `func: mylib::scale.out(…) -> …`",
        ),
        (
            "  - {op: add.Tensor, kernel_name: chip::add}",
            "4: `add.Tensor` is a functional operator, and ExecuTorch calls out variants only: its memory "
            "is planned before it runs\n  remedy: write the kernel for `add.out`",
        ),
        (
            "  - {op: add_.Tensor, kernel_name: chip::add}",
            "4: `add_.Tensor` is an in-place operator, and ExecuTorch calls out variants only: its memory "
            "is planned before it runs\n  remedy: write the kernel for `add.out`",
        ),
        (
            "  - {func: 'chip::scale.Scalar(Tensor self, float f) -> Tensor', kernel_name: chip::scale}",
            "4: `chip::scale.Scalar` is a functional operator, and ExecuTorch calls out variants only: its "
            "memory is planned before it runs\n"
            "  remedy: write the kernel for `chip::scale.Scalar_out`",
        ),
        (
            "  - {op: uniform.out, kernel_name: chip::uniform_out}",
            "4: `generator` of `uniform.out` has the type Generator?, which no value of ExecuTorch has\n"
            "  remedy: its arguments are Tensor, int, bool, float, str, Scalar, ScalarType and MemoryFormat, "
            "each optional too, and lists of Tensor, Tensor?, int, bool and float",
        ),
        (
            "  - {func: 'chip::scale.into(Tensor self, *, Tensor(a!) out) -> Tensor(a!)', "
            "kernel_name: chip::scale_out}",
            "4: `chip::scale.into` is not named as ExecuTorch finds an out variant: <name>.out, or "
            "<name>.<overload>_out\n"
            "  remedy: rename it `chip::scale.into_out`",
        ),
    ],
)
def test_what_executorch_cannot_call(
    tmp_path: Path, catalogue: Catalogue, entry: str, text: str
) -> None:
    expected = text.replace("TORCH", catalogue.torch)
    assert refused(tmp_path, catalogue, entry, KernelRejected) == expected


KEYED = """\
  - op: {op}
    type_alias: {{T0: [Float], T1: [Float, Double]}}
    dim_order_alias: {{D0: [0, 1], D1: {order}}}
    kernels:
      - kernel_name: chip::plain::one
        arg_meta: {{{metas}}}"""


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (
            KEYED.format(op="relu.out", order="[1, 0]", metas="self: [T0, D1], out: [T0, D1]"),
            "8: no program calls `relu.out` with `self` in the dim order [1, 0]: Tensors of ExecuTorch have "
            "at most 16 dimensions and are contiguous or channels-last\n"
            "  remedy: write [0, 1, 2, 3], or [0, 2, 3, 1] for channels last",
        ),
        (
            KEYED.format(
                op="relu.out", order=list(range(17)), metas="self: [T0, D0], out: [T0, D1]"
            ),
            f"8: no program calls `relu.out` with `out` in the dim order {list(range(17))}: Tensors of "
            "ExecuTorch have at most 16 dimensions and are contiguous or channels-last\n"
            "  remedy: write [0, 1, 2, 3], or [0, 2, 3, 1] for channels last",
        ),
        (
            KEYED.format(op="relu.out", order="[0]", metas="self: [T0, D0]"),
            "8: `arg_meta` of this kernel leaves out `out`, and a key of `relu.out` holds every Tensor of "
            "the call\n"
            "  remedy: add `out: [T0, D0]`, or write `arg_meta: null` and `dtypes`",
        ),
        (
            KEYED.format(op="cat.out", order="[0]", metas="tensors: [T0, D0], out: [T0, D0]"),
            "8: `tensors` of `cat.out` is a list of Tensors, which no key holds\n"
            "  remedy: leave `tensors` out of `arg_meta`",
        ),
    ],
)
def test_keys_that_no_program_has(
    tmp_path: Path, catalogue: Catalogue, entry: str, text: str
) -> None:
    assert refused(tmp_path, catalogue, entry, KernelRejected) == text


def test_two_kernels_for_one_key(tmp_path: Path, catalogue: Catalogue) -> None:
    metas = "self: [T0, D0], out: [T0, D0]"
    again = (
        "\n      - kernel_name: chip::plain::two\n        arg_meta: {self: [T1, D0], out: [T1, D0]}"
    )
    entry = KEYED.format(op="relu.out", order="[0]", metas=metas) + again
    assert refused(tmp_path, catalogue, entry, KernelDuplicate) == (
        "10: two kernels for `relu.out` take some dtypes and dim orders; the first is "
        f"`chip::plain::native::one` at {tmp_path}/plain.yaml:8:9\n"
        "  remedy: give each dtype and dim order to one kernel, and leave `arg_meta: null` to one"
    )


def test_two_libraries_may_have_one_key(tmp_path: Path, catalogue: Catalogue) -> None:
    plain = FAST.replace("library: fast", "library: plain").replace("fast", "plain")
    backend = write_chip(tmp_path, plain=plain)
    kernels = [
        (each.kernel.library, each.keys)
        for each in planned(backend, catalogue).kernels
        if each.operator.name == "aten::mul.out"
    ]
    assert kernels == [
        ("fast", ("v1/6;0,1|6;0,1|6;0,1|6;0,1", "v1/7;0,1|7;0,1|7;0,1|7;0,1")),
        ("plain", ()),
    ]


def test_libraries_of_other_kinds_are_left_out(tmp_path: Path, catalogue: Catalogue) -> None:
    backend = write_chip(tmp_path)
    backend.write_text(BACKEND.replace("[fast.yaml", "[random, fast.yaml"))
    assert {each.kernel.library for each in planned(backend, catalogue).kernels} == {
        "fast",
        "plain",
    }


# ---- built libraries

HERE = BuiltFor("1.4.1", "cpython-311", "x86_64")


def built(backend: Path, catalogue: Catalogue, *forms: CallForm) -> LibraryDescription:
    """The description of the library of ``backend``, built for ``forms``, or for any."""
    return library_description(planned(backend, catalogue, *forms), HERE)


def built_servers(
    libraries: list[LibraryDescription], *forms: CallForm, runtime: Runtime = RUNTIME
) -> list[tuple[str | None, str]]:
    """The library, ``executorch`` or None, and why."""
    return [
        (
            each.kernel.library if each.kernel else "executorch" if each.in_runtime else None,
            str(each.nearest or each.why),
        )
        for each in serve_built(libraries, runtime, forms)
    ]


def test_a_built_library_serves_what_its_plan_says(chip: Path, catalogue: Catalogue) -> None:
    forms = [add(FLOAT), add(DOUBLE), mul(FLOAT), form("aten::relu.out", *(IMAGE,) * 3)]
    expected = [("fast", ""), ("plain", ""), ("fast", ""), ("plain", "")]
    assert built_servers([built(chip, catalogue)], *forms) == expected
    assert built_servers([built(chip, catalogue, *forms)], *forms) == expected


def test_what_a_built_library_lacks(chip: Path, catalogue: Catalogue) -> None:
    whole = built(chip, catalogue)
    alone = RUNTIME.without_kernels()
    silu = form("aten::silu.out", DOUBLE, DOUBLE, DOUBLE)
    erf = form("aten::erf.out", FLOAT, FLOAT, FLOAT)
    # The one for silu takes every call that no key takes: it would be asked.
    assert built_servers([whole], silu, erf, mul(IMAGE)) == [
        (None, "chip::plain::native::silu_out of plain does not take Double as `self`"),
        (None, "no library has a kernel for it"),
        ("executorch", "fast does not take Float(0,2,3,1) as `self`"),
    ]
    half = TensorMeta("Half", (0, 1))
    other = form("aten::mul.Scalar_out", FLOAT, None, FLOAT, FLOAT)
    assert built_servers([whole], mul(FLOAT, half, FLOAT, FLOAT), other, runtime=alone) == [
        (None, "chip::fast::native::mul_out of fast does not take Half(0,1) as `other`"),
        (None, "chip::fast::native::mul_out of fast is for aten::mul.out"),
    ]


def test_a_selected_library_knows_its_programs_only(chip: Path, catalogue: Catalogue) -> None:
    row = TensorMeta("Float", (0,))
    silu, silu_row = (form("aten::silu.out", *(each,) * 3) for each in (FLOAT, row))
    selected = built(chip, catalogue, add(FLOAT), silu)
    why = "does not take this call: the library was built for other programs"
    assert built_servers([selected], add(FLOAT), silu, add(row), silu_row) == [
        ("fast", ""),
        ("plain", ""),
        ("executorch", f"fast {why}"),
        (None, f"chip::plain::native::silu_out of plain {why}"),
    ]


def test_what_two_libraries_register(chip: Path, catalogue: Catalogue) -> None:
    whole, selected = built(chip, catalogue), built(chip, catalogue, add(FLOAT))
    # The first is asked to register it for a program that makes the call, and the second has done so.
    assert clashes([whole, selected], RUNTIME, [add(FLOAT)]) == (
        Clash(0, 1, "aten::add.out", add(FLOAT).key),
    )
    assert clashes([whole, selected], RUNTIME, []) == ()
    assert clashes([selected], RUNTIME, [add(FLOAT)]) == ()
    assert Clash(0, 1, "aten::silu.out", "") in clashes([whole, whole], RUNTIME, [])
    # A runtime that has since got a kernel for silu.
    later = Runtime("1.4.1", RUNTIME.operators | {"aten::silu.out"})
    assert clashes([whole], later, []) == (Clash(None, 0, "aten::silu.out", ""),)


def test_a_key_that_an_earlier_library_takes_is_left_to_it(
    tmp_path: Path, catalogue: Catalogue
) -> None:
    """``fast`` spells out the keys of mul, and ``plain``, which is preferred, takes Float in any rank."""
    plain = PLAIN + "  - {op: mul.out, kernel_name: chip::plain::mul_out, dtypes: [Float]}\n"
    backend = write_chip(tmp_path, plain=plain)
    text = backend.read_text().replace("[fast.yaml, plain.yaml]", "[plain.yaml, fast.yaml]")
    backend.write_text(text)
    expected = [("plain", ""), ("fast", "")]
    assert [name for name, _ in servers(backend, catalogue, mul(FLOAT), mul(DOUBLE))] == [
        name for name, _ in expected
    ]
    assert built_servers([built(backend, catalogue)], mul(FLOAT), mul(DOUBLE)) == expected


def test_without_the_runtimes_kernels_libraries_serve_all_and_stay_beside_them(
    chip: Path, catalogue: Catalogue
) -> None:
    """As in a runner in C++, which may have ExecuTorch's kernels after all: those have no keys."""
    alone = Runtime("1.4.1", RUNTIME.operators | {"executorch_prim::add.Scalar"}).without_kernels()
    assert alone.operators == {"executorch_prim::add.Scalar"}
    number = form("executorch_prim::add.Scalar", None, None, None)
    plan = planned(chip, catalogue, add(FLOAT), number, runtime=alone)
    assert [(each.keys, each.unkeyed) for each in plan.kernels] == [((add(FLOAT).key,), False)]
    said = refusal(
        OperatorsUnserved, planned, chip, catalogue, add(FLOAT), mul(IMAGE), runtime=alone
    )
    assert f"{mul(IMAGE)}: fast does not take Float(0,2,3,1) as `self`" in said
