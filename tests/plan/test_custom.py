"""Custom operators: every refusal with its text, and the plan."""

from __future__ import annotations

import keyword
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from opsmith.build.backend import located_symbol
from opsmith.description import document, read_backend
from opsmith.emit import emit
from opsmith.errors import (
    DescriptionError,
    Location,
    OperatorUnknown,
    SchemaInvalid,
    SymbolUndefined,
)
from opsmith.plan import Plan, Route, plan_backend, resolve
from opsmith.schema import CPP_WORDS, Catalogue, parse_operator
from opsmith.schema.catalogue import native_function_of, operator_of
from opsmith.schema.torch_names import FunctionSchema
from opsmith.schema.words import SCHEMA_WORDS
from refusal import refusal

Describe = Callable[..., Path]


def planned(path: Path, catalogue: Catalogue) -> Plan:
    return resolve(read_backend(path, catalogue), catalogue)


def refused(path: Path, catalogue: Catalogue) -> tuple[type[DescriptionError], list[str]]:
    """The error's class and its lines, with the folder of the description as ``DIR``."""
    with pytest.raises(DescriptionError) as caught:
        planned(path, catalogue)
    return type(caught.value), str(caught.value).replace(f"{path.parent}/", "").splitlines()


# ---- mistakes in a schema: the place of the offending text, what is wrong, what to write instead

MISTAKES = re.findall(
    r"^(\S.*)\n  (\d+: .*)\n  remedy: (.*)\n",
    Path(__file__).with_name("bad_schemas.txt").read_text(encoding="utf-8"),
    re.MULTILINE,
)


def test_the_mistakes_are_read_whole() -> None:
    text = Path(__file__).with_name("bad_schemas.txt").read_text(encoding="utf-8")
    assert 3 * len(MISTAKES) == len(text.splitlines()) > 100


@pytest.mark.parametrize(
    "word", sorted({*keyword.kwlist, *keyword.softkwlist, *CPP_WORDS, "self"} - {"default"})
)
def test_the_words_of_schemas_are_those_that_pytorch_refuses(word: str) -> None:
    for form in (
        "{}::f(Tensor x) -> Tensor",
        "my::{}(Tensor x) -> Tensor",
        "my::f.{}(Tensor x) -> Tensor",
        "my::f(Tensor {}) -> Tensor",
        "my::f(Tensor x) -> (Tensor {}, Tensor y)",
    ):
        try:
            torch._C.parse_schema(form.format(word))
        except RuntimeError:
            assert word in SCHEMA_WORDS
        else:
            assert word not in SCHEMA_WORDS


@pytest.mark.parametrize(("schema", "wrong", "remedy"), MISTAKES, ids=lambda text: text[:40])
def test_a_mistake_in_a_schema(
    schema: str, wrong: str, remedy: str, describe: Describe, catalogue: Catalogue
) -> None:
    path = describe(f'- {{func: "{schema}", kernel_name: f}}')
    kind, lines = refused(path, catalogue)
    assert lines == [f"kernels.yaml:5:{wrong}", f"  remedy: {remedy}"]
    assert kind is SchemaInvalid


# ---- the plan

SCALE = "myop::scale(Tensor self, float factor) -> Tensor"


def shown(plan: Plan, path: Path) -> list[str]:
    lines = []
    for operator in plan.custom:
        entry, meta = plan.entry(operator.name), plan.meta(operator.name)
        tags = f" [{', '.join(operator.tags)}]" if operator.tags else ""
        lines.append(
            f"{operator.schema}{tags} | {entry.route.value}: {entry.why} | {meta.why if meta else '-'}"
        )
    return [line.replace(f"{path.parent}/", "") for line in lines]


def test_one_variant_makes_the_group_whole(describe: Describe, catalogue: Catalogue) -> None:
    path = describe(
        """
        - {func: "myop::scale(Tensor self, float factor) -> Tensor", kernel_name: f}
        - {func: "myop::top.values(Tensor self, int k, *, Tensor(a!) values, Tensor(b!) indices) -> \
           (Tensor(a!), Tensor(b!))", kernel_name: g, meta: h}
        - {func: "myop::bump_.by(Tensor(a!) self, Scalar by) -> Tensor(a!)", kernel_name: i}
        - {func: "myop::mul.Scalar_out(Tensor self, Scalar other, *, Tensor(a!) out) -> Tensor(a!)",
           kernel_name: j, tags: [pointwise, pt2_compliant_tag]}
        """
    )
    plan = planned(path, catalogue)
    assert shown(plan, path) == [
        "bump.by(Tensor self, Scalar by) -> Tensor [generated] | derived: from the kernel of "
        "`myop::bump_.by`: "
        "copies self into a new result and runs `i` (kernels.yaml:7:6) on it; shape and dtype from the "
        "operator's kernel for the meta device | the result is like `self`",
        "bump.by_out(Tensor self, Scalar by, *, Tensor(a!) out) -> Tensor(a!) [generated, out] | derived: "
        "from "
        "the kernel of `myop::bump_.by`: copies self into out and runs `i` (kernels.yaml:7:6) on it; "
        "shape and "
        "dtype from the operator's kernel for the meta device | shaped as `myop::bump.by` shapes it",
        "bump_.by(Tensor(a!) self, Scalar by) -> Tensor(a!) [inplace] | kernel: `i` (kernels.yaml:7:6) | "
        "shaped as `myop::bump.by` shapes it",
        "mul.Scalar(Tensor self, Scalar other) -> Tensor [generated, pointwise, pt2_compliant_tag] | "
        "derived: "
        "from the kernel of `myop::mul.Scalar_out`: allocates the result and runs `j` (kernels.yaml:8:6) "
        "into "
        "it; shape and dtype from the operator's kernel for the meta device | pointwise: the operands' "
        "broadcast shape and common dtype",
        "mul.Scalar_out(Tensor self, Scalar other, *, Tensor(a!) out) -> Tensor(a!) [out, pointwise, "
        "pt2_compliant_tag] | kernel: `j` (kernels.yaml:8:6) | shaped as `myop::mul.Scalar` shapes it",
        "scale(Tensor self, float factor) -> Tensor | kernel: `f` (kernels.yaml:5:6); without `meta:`, "
        "torch.compile and torch.export cannot trace it | -",
        "scale.out(Tensor self, float factor, *, Tensor(a!) out) -> Tensor(a!) [generated, out] | "
        "derived: from "
        "the kernel of `myop::scale`: runs `f` (kernels.yaml:5:6), resizes out and copies the result into "
        "it; "
        "without `meta:`, torch.compile and torch.export cannot trace it | -",
        "top(Tensor self, int k) -> (Tensor values, Tensor indices) [generated] | derived: from the "
        "kernel of "
        "`myop::top.values`: allocates the result and runs `g` (kernels.yaml:6:6) into it; shape and "
        "dtype from "
        "the operator's kernel for the meta device | `h` shapes the result (kernels.yaml:6:149)",
        "top.values(Tensor self, int k, *, Tensor(a!) values, Tensor(b!) indices) -> (Tensor(a!), "
        "Tensor(b!)) "
        "[out] | kernel: `g` (kernels.yaml:6:6) | shaped as `myop::top` shapes it",
    ]


def test_an_unknown_operator_of_ones_own(describe: Describe, catalogue: Catalogue) -> None:
    plan = planned(describe(f"- {{func: '{SCALE}', kernel_name: f}}"), catalogue)
    assert refusal(OperatorUnknown, plan.entry, "myop::scal") == (
        "the description declares no operator `myop::scal` (did you mean myop::scale, myop::scale.out?)\n"
        "  remedy: `opsmith plan chip` lists every operator"
    )


def test_libraries_may_share_an_operator(describe: Describe, catalogue: Catalogue) -> None:
    path = describe(f"- {{func: '{SCALE}', kernel_name: fast::scale, dtypes: [Half]}}")
    (path.parent / "second.yaml").write_text(
        f"library: second\nkernels: [{{func: '{SCALE}', kernel_name: slow::scale}}]\n"
    )
    path.write_text(path.read_text().replace("[kernels.yaml]", "[kernels.yaml, second.yaml]"))
    plan = planned(path, catalogue)
    assert [operator.name for operator in plan.custom] == ["myop::scale", "myop::scale.out"]
    assert plan.entry("myop::scale").library == "chiplib"


def test_the_fallback_may_be_denied_to_it(describe: Describe, catalogue: Catalogue) -> None:
    path = describe(
        f"- {{func: '{SCALE}', kernel_name: f, dtypes: [Half]}}", fallback="{deny: [myop::scale]}"
    )
    entry = planned(path, catalogue).entry("myop::scale")
    assert entry.other_dtypes is Route.DENIED
    path.write_text(path.read_text().replace("myop::scale]", "myop::scal]"))
    assert refused(path, catalogue)[1][0] == (
        "backend.yaml:4:19: no operator `myop::scal` is declared up to here (did you mean myop::scale, "
        "myop::scale.out?)"
    )


GOLDEN = Path(__file__).parents[1] / "emit" / "golden" / "RegisterCustomChip.cpp"


def test_the_generated_code(
    describe: Describe, catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``OPSMITH_UPDATE_GOLDEN=1 pytest tests/plan/test_custom.py`` writes the golden file anew."""
    path = describe(
        f"""
        - {{func: '{SCALE}', kernel_name: chip::scale, meta: {{same_as: self}}, dtypes: [Float]}}
        - {{func: 'myop::add_.other(Tensor(a!) self, Tensor shape) -> Tensor(a!)', kernel_name: chip::add_}}
        - {{func: 'other::add(Tensor(a!) total, SymInt n, str s="a") -> ()', kernel_name: chip::add}}
        - {{func: 'myop::weigh.out(Tensor x, Tensor? w, *, Tensor(a!) out) -> Tensor(a!)',
           kernel_name: chip::weigh_out, tags: pointwise}}
        - {{func: 'myop::top.values(Tensor x, int k, *, Tensor(a!) v, Tensor(b!) i) -> \
           (Tensor(a!), Tensor(b!))', kernel_name: chip::top, meta: chip::top_meta}}
        """
    )
    monkeypatch.chdir(path.parent)
    plan = resolve(read_backend(Path(path.name), catalogue), catalogue)
    # Without the runtime's operators, whose places change whenever its manifest does.
    entries = tuple(entry for entry in plan.entries if entry.library != "runtime")
    files = {
        file.name: file.text for file in emit(replace(plan, entries=entries, torch="2.13.0+cpu"))
    }
    if os.environ.get("OPSMITH_UPDATE_GOLDEN"):
        GOLDEN.write_text(files[GOLDEN.name])
    assert files[GOLDEN.name] == GOLDEN.read_text()
    header = files["ChipNativeFunctions.h"]
    assert "std::tuple<at::Tensor, at::Tensor> top_meta(const at::Tensor& x, int64_t k);" in header


def test_a_meta_that_the_sources_lack(describe: Describe, catalogue: Catalogue) -> None:
    path = describe(f"- {{func: '{SCALE}', kernel_name: chip::scale, meta: chip::scale_meta}}")
    backend = read_backend(path, catalogue)
    error = SymbolUndefined("", symbols=["chip::scale_meta(at::Tensor const&, double)"])
    located = located_symbol(error, resolve(backend, catalogue), backend)
    assert str(located).replace(f"{path.parent}/", "") == (
        "kernels.yaml:5:90: the sources of library `chiplib` do not define `chip::scale_meta` with the "
        "signature that the meta of `myop::scale` needs\n"
        "  remedy: define\n"
        "    at::Tensor chip::scale_meta(const at::Tensor & self, double factor);\n"
        "  in one of its sources (kernels.cpp)"
    )


def test_a_plan_without_custom_operators_emits_none(
    describe: Describe, catalogue: Catalogue
) -> None:
    plan = planned(describe(), catalogue)
    assert plan.custom == () and plan.metas == ()
    assert not [file.name for file in emit(plan, laid_out=False) if "Custom" in file.name]


def test_an_out_variant_that_writes_to_other_arguments_has_a_mutable_one(
    describe: Describe, catalogue: Catalogue
) -> None:
    path = describe(
        '- {func: "my::store.out(Tensor value, Tensor(a!) cache, *, Tensor(b!) out) -> Tensor(b!)", '
        "kernel_name: f, meta: {same_as: value}}"
    )
    plan = planned(path, catalogue)
    operator = plan.operator("my::store")
    assert operator is not None
    assert operator.schema == "store(Tensor value, Tensor(a!) cache) -> Tensor"
    entry = plan.by_name["my::store"]
    assert entry.route is Route.DERIVED
    assert "allocates the result and runs `f` " in entry.why
    assert " into it, which writes to the same other arguments" in entry.why


# ---- thousands of operators


def test_operators_of_one_signature_are_parsed_once(
    describe: Describe, catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    # torchgen takes a millisecond for each.
    texts: list[str] = []
    parse = FunctionSchema.parse

    def counted(text: str) -> FunctionSchema:
        texts.append(text)
        return parse(text)

    monkeypatch.setattr(FunctionSchema, "parse", staticmethod(counted))
    entries = [
        f'- {{func: "myop::scale{n}(Tensor self, float unlike_any_other) -> Tensor", kernel_name: f, '
        "meta: {same_as: self}}"
        for n in range(20)
    ]
    path = describe("\n".join(entries))
    plan = planned(path, catalogue)
    assert plan.entry("myop::scale19.out").why.startswith(
        "from the kernel of `myop::scale19`: runs `f`"
    )
    assert len(texts) < 10


@pytest.mark.parametrize(
    "name",
    [
        "new_x",
        "x_like",
        "dropout",
        "rand",
        "__iadd__",
        "resize_",
        "x_backward",
        "x",
        "x_",
        "x.Scalar",
    ],
)
def test_an_operator_is_what_torchgen_makes_of_its_schema(name: str) -> None:
    inplace = name.partition(".")[0].endswith("_")
    tensor = "Tensor(a!)" if inplace else "Tensor"
    schema = f"{name}({tensor} self, SymInt[2] size, Scalar? b=None, *, Tensor? c=None) -> {tensor}"
    tags = ("nondeterministic_seeded", "pointwise")
    try:
        expected = operator_of(native_function_of("myop", schema, tags))
    except AssertionError as error:
        with pytest.raises(SchemaInvalid, match=re.escape(str(error).partition("\n")[0])):
            parse_operator(f"myop::{schema}", lambda text: Location(Path("k.yaml")), tags)
    else:
        found = parse_operator(f"myop::{schema}", lambda text: Location(Path("k.yaml")), tags)
        assert found == expected


def test_each_file_is_parsed_once(
    describe: Describe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []
    parse = document.parse_document

    def counted(text: str, path: Path) -> document.Document:
        read.append(path)
        return parse(text, path)

    monkeypatch.setattr(document, "parse_document", counted)
    path = describe(
        '- {func: "myop::f(Tensor self) -> Tensor", kernel_name: f, meta: {same_as: self}}'
    )
    assert "myop::f" in {
        entry.name for entry in plan_backend(str(path), tmp_path / "cache").entries
    }
    assert [each.name for each in read if each.parent == tmp_path] == [
        "backend.yaml",
        "kernels.yaml",
    ]
