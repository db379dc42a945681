"""Custom operators: every refusal with its text, and the plan."""

from __future__ import annotations

import keyword
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from opsmith.build.backend import located_symbol
from opsmith.description import read_backend
from opsmith.emit import emit
from opsmith.errors import (
    DescriptionError,
    KernelDuplicate,
    KernelRejected,
    OperatorUnknown,
    SchemaInvalid,
    SymbolUndefined,
    SyntaxInvalid,
)
from opsmith.plan import Plan, Route, resolve
from opsmith.schema import CPP_WORDS, Catalogue
from opsmith.schema.words import SCHEMA_WORDS

Describe = Callable[..., Path]

TYPES = (
    "the types are Tensor, int, SymInt, float, bool, str, Scalar, ScalarType, Layout, MemoryFormat, "
    "Device, "
    "Generator, each with ? (may be None) or [] (a list) behind it"
)


def planned(path: Path, catalogue: Catalogue) -> Plan:
    return resolve(read_backend(path, catalogue), catalogue)


def refused(path: Path, catalogue: Catalogue) -> tuple[type[DescriptionError], list[str]]:
    """The error's class and its lines, with the folder of the description as ``DIR``."""
    with pytest.raises(DescriptionError) as caught:
        planned(path, catalogue)
    return type(caught.value), str(caught.value).replace(f"{path.parent}/", "").splitlines()


# ---- mistakes in a schema: the place of the offending text, what is wrong, what to write instead

MISTAKES = [
    (
        "scale(Tensor self) -> Tensor",
        "13: `scale` has no namespace",
        "put your library's before it, e.g. `myop::scale`; for an operator of PyTorch write `op: scale`",
    ),
    (
        "aten::scale(Tensor self) -> Tensor",
        "13: `aten::scale` is in `aten`, PyTorch's own namespace",
        "for PyTorch's operator write `op: scale`, for one of your own choose another namespace",
    ),
    (
        "prims::scale(Tensor self) -> Tensor",
        "13: `prims::scale` is in `prims`, a namespace of PyTorch",
        "choose another, e.g. `myprims::scale`",
    ),
    (
        "my-op::scale(Tensor self) -> Tensor",
        "13: `my-op` cannot be a namespace",
        "use letters, digits and _, as in myop::scale",
    ),
    (
        "myop::scale",
        "13: `myop::scale` is not a schema: it has no arguments",
        "write it like myop::scale(Tensor self, float factor) -> Tensor",
    ),
    (
        "myop::scale(Tensor self -> Tensor",
        "24: a parenthesis is not closed: `(Tensor self -> Tensor`",
        "write it like myop::scale(Tensor self, float factor) -> Tensor",
    ),
    (
        "myop::scale(Tensor self)",
        "13: `myop::scale(Tensor self)` does not say what it returns",
        "end it with `-> Tensor`, or with `-> ()` for nothing: myop::scale(Tensor self) -> Tensor",
    ),
    (
        "myop::scale(Tensor self) ->",
        "13: nothing stands behind `->` in `myop::scale(Tensor self) -> `",
        "write `-> Tensor`, or `-> ()`",
    ),
    (
        "myop::scale(Tenosr self) -> Tensor",
        "25: unknown type `Tenosr` (did you mean Tensor?)",
        TYPES,
    ),
    (
        "myop::scale(Tensor self, double factor) -> Tensor",
        "38: unknown type `double` (did you mean `float`?)",
        TYPES,
    ),
    (
        "myop::cat(List[Tensor] tensors) -> Tensor",
        "23: unknown type `List[Tensor]` (did you mean `Tensor[]`?)",
        TYPES,
    ),
    (
        "myop::scale(const Tensor& self) -> Tensor",
        "25: unknown type `const Tensor&` (did you mean `Tensor`?)",
        TYPES,
    ),
    (
        "myop::scale(Tensor(rw) self) -> Tensor",
        "25: `(rw)` in `Tensor(rw)` is not an alias annotation",
        "write (a!) at a Tensor that the operator writes to, (b!) at the next",
    ),
    (
        "myop::scale(Tensor, float factor) -> Tensor",
        "25: the argument `Tensor` has no name",
        "write `Tensor x`",
    ),
    (
        "myop::scale(self, float factor) -> Tensor",
        "25: the argument `self` has no type",
        "write `Tensor self`, or another type",
    ),
    (
        "myop::scale(Tensor self,) -> Tensor",
        "13: a comma too many in `myop::scale(Tensor self,) -> Tensor`",
        "remove it",
    ),
    (
        "myop::scale(Tensor x, Tensor x) -> Tensor",
        "25: two arguments are called `x`: `Tensor x` and `Tensor x`",
        "rename one",
    ),
    (
        "myop::scale(Tensor self, float a=1.0, float b) -> Tensor",
        "51: `float b` has no default, but `float a=1.0` before it has one",
        "give it a default too, or pass it by keyword: `*, float b`",
    ),
    (
        "myop::scale(Tensor self, bool exact=true) -> Tensor",
        "38: `true` is no default for `bool`",
        "write it like `bool exact=False`",
    ),
    (
        "myop::scale(Tensor self, int[] dims=0) -> Tensor",
        "38: `0` is no default for `int[]`",
        "write it like `int[] dims=[0]`",
    ),
    (
        "myop::scale(Tensor self, Tensor bias=None) -> Tensor",
        "38: `Tensor` cannot have the default `None`",
        "write `Tensor? bias=None`, or no default",
    ),
    (
        "myop::scale(Tensor self, *, int a, *, int b) -> Tensor",
        "25: `*` stands twice in `(Tensor self, *, int a, *, int b)`",
        "keep the first: all arguments behind it are passed by keyword",
    ),
    (
        "myop::fill(int[] size) -> Tensor",
        "13: `myop::fill(int[] size) -> Tensor` takes no Tensor, so PyTorch cannot tell which device it is "
        "meant for",
        "add a Tensor argument; a factory is better written as a function around torch.empty",
    ),
    (
        "myop::find(Tensor self) -> Tensor?",
        "37: `Tensor?` is returned, but an operator cannot return None in the place of a value",
        "return an empty Tensor, or one operator for each case",
    ),
    (
        "myop::half(Tensor(a) self) -> Tensor(a)",
        "40: `Tensor(a)` says that the result shares its argument's memory; a view cannot be a custom "
        "operator, since PyTorch would not know how to replay it",
        "write it as a function of PyTorch's own views, or return a copy",
    ),
    (
        "myop::scale_out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)",
        "13: `scale_out` ends with `_out`, which PyTorch keeps for overloads",
        "write `myop::scale.out`",
    ),
    (
        "myop::scale.out(Tensor self, Tensor(a!) out) -> Tensor(a!)",
        "42: `Tensor(a!) out` of `scale.out` is not passed by keyword",
        "write `*, Tensor(a!) out` at the end of the arguments",
    ),
    (
        "myop::scale.out(Tensor self, *, Tensor out) -> Tensor",
        "19: `scale.out` is called an out variant, but writes to no argument",
        "end the arguments with `*, Tensor(a!) out` and return `Tensor(a!)`",
    ),
    (
        "myop::scale.out(Tensor self, *, Tensor(a!) out) -> Tensor(b!)",
        "61: an out variant returns what it writes to, here `Tensor(a!)`",
        "write `-> Tensor(a!)`",
    ),
    (
        "myop::scale.out(Tensor self, *, Tensor(a!) out, int k) -> Tensor(a!)",
        "61: `int k` stands behind the out argument `Tensor(a!) out`",
        "move what is written to the end",
    ),
    (
        "myop::scale_(Tensor self) -> Tensor",
        "26: `scale_` ends with `_`, so it is in-place, but it does not write to `self`",
        "write `Tensor(a!) self` as its first argument",
    ),
    (
        "myop::scale_(Tensor(a!) self) -> Tensor",
        "43: `scale_` is in-place, but does not return `self`",
        "write `-> Tensor(a!)`",
    ),
    (
        "myop::scale(Tensor(a!) self) -> Tensor(a!)",
        "19: `scale` returns `Tensor(a!)`, but only in-place and out variants return what they write to",
        "call it `scale_` if it writes to self, pass the argument by keyword, or return nothing: `-> ()`",
    ),
    (
        "myop::scale.default(Tensor self) -> Tensor",
        "13: `default` cannot be an overload's name",
        "write `myop::scale`, or name the overload, e.g. `myop::scale.Scalar`",
    ),
    (
        "int::scale(Tensor self) -> Tensor",
        "13: `int` cannot be a namespace: it is a word of C++",
        "choose another, e.g. `my_int`",
    ),
    (
        "at::scale(Tensor self) -> Tensor",
        "13: `at::scale` is in `at`, a namespace of PyTorch",
        "choose another, e.g. `myat::scale`",
    ),
    (
        "relu::scale(Tensor self) -> Tensor",
        "6: `relu::scale` is in `relu`, which is an operator of PyTorch: the C++ function `at::chip::relu` "
        "leaves no room for a namespace of that name",
        "choose another namespace, e.g. `myrelu`",
    ),
    (
        "myop::double(Tensor self) -> Tensor",
        "13: `double` cannot be an operator's name: it is a word of C++",
        "choose another, e.g. `my_double`",
    ),
    (
        "myop::errno_(Tensor(a!) self) -> Tensor(a!)",
        "13: `errno` cannot be an operator's name: it is a word of C++",
        "choose another, e.g. `my_errno`",
    ),
    (
        "myop::scale.in(Tensor self) -> Tensor",
        "13: `in` cannot be a name in a schema: PyTorch reads it as a word of TorchScript",
        "choose another, e.g. `my_in`",
    ),
    (
        "myop::scale(Tensor self, float pass) -> Tensor",
        "38: `pass` cannot be a name in a schema: PyTorch reads it as a word of TorchScript",
        "choose another, e.g. `my_pass`",
    ),
    (
        "myop::scale(Tensor self) -> (Tensor with, Tensor b)",
        "42: `with` cannot be a name in a schema: PyTorch reads it as a word of TorchScript",
        "choose another, e.g. `my_with`",
    ),
    (
        "myop::scale(Tensor é) -> Tensor",
        "25: `é` cannot be an argument's name",
        "use letters, digits and _",
    ),
    (
        "myop::scale(Tensor self, int n=9223372036854775808) -> Tensor",
        "38: `9223372036854775808` is no default for `int`",
        "write it like `int n=0`",
    ),
]


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


def test_the_place_in_a_schema_that_spans_lines(describe: Describe, catalogue: Catalogue) -> None:
    path = describe(
        """
        - func: >-
            myop::scale(Tensor self,
            flot factor) -> Tensor
          kernel_name: f
        """
    )
    assert refused(path, catalogue)[1][0] == (
        "kernels.yaml:7:7: unknown type `flot` (did you mean float?)"
    )


# ---- mistakes around the schema

SCALE = "myop::scale(Tensor self, float factor) -> Tensor"
SCALE_OUT = "myop::scale.out(Tensor self, float factor, *, Tensor(a!) out) -> Tensor(a!)"

REFUSALS = {
    "both op and func": (
        f"- {{op: relu, func: '{SCALE}', kernel_name: f}}",
        SyntaxInvalid,
        "kernels.yaml:5:5: an entry names an operator of PyTorch (`op`), declares one (`func`) or fills a "
        "stub (`stub`), and exactly one of them",
        "write `op: add.out`, `func: myop::scale(Tensor self, float factor) -> Tensor` or "
        "`stub: abs_stub`",
    ),
    "an operator without a kernel": (
        "- {op: relu}",
        SyntaxInvalid,
        "kernels.yaml:5:5: the key `kernel_name` is missing",
        "add `kernel_name: …` here, or `autograd: …` for a function that differentiates too",
    ),
    "meta of an operator of PyTorch": (
        "- {op: relu, kernel_name: f, meta: {same_as: self}}",
        SyntaxInvalid,
        "kernels.yaml:5:32: `meta` belongs to a custom operator; PyTorch has its own for `relu`",
        "remove `meta`",
    ),
    "a name without a schema": (
        "- {op: 'myop::scale', kernel_name: f}",
        OperatorUnknown,
        "kernels.yaml:5:6: no operator `myop::scale` is declared up to here",
        "give its schema where its kernel is: `func: myop::scale(…) -> …`",
    ),
    "unknown tag": (
        f"- {{func: '{SCALE}', kernel_name: f, tags: [pt2_compliant]}}",
        SchemaInvalid,
        "kernels.yaml:5:87: PyTorch has no tag `pt2_compliant` (did you mean pt2_compliant_tag?)",
        "the tags are core, cudagraph_unsafe, data_dependent_output, dynamic_output_shape, "
        "flexible_layout, "
        "generated, inplace, inplace_view, maybe_aliasing_or_mutating, needs_contiguous_strides, "
        "needs_exact_strides, needs_fixed_stride_order, nondeterministic_bitwise, nondeterministic_seeded, "
        "out, out_variant, pointwise, pt2_compliant_tag, reduction, view_copy",
    ),
    "two ways to shape": (
        f"- {{func: '{SCALE}', kernel_name: f, meta: {{same_as: self, kernel_name: g}}}}",
        SyntaxInvalid,
        "kernels.yaml:5:80: `meta` says how the results are shaped, in exactly one way",
        "write `meta: {same_as: self}`, or `meta: my_namespace::my_meta`, a C++ function that makes them",
    ),
    "no function's name": (
        f"- {{func: '{SCALE}', kernel_name: f, meta: same as self}}",
        SyntaxInvalid,
        "kernels.yaml:5:80: `same as self` is not a C++ function's qualified name",
        "write it like my_namespace::my_meta, or `{same_as: self}`",
    ),
    "like no argument": (
        f"- {{func: '{SCALE}', kernel_name: f, meta: {{same_as: slef}}}}",
        KernelRejected,
        "kernels.yaml:5:80: `myop::scale` has no argument `slef` (did you mean self?)",
        "its schema is scale(Tensor self, float factor) -> Tensor",
    ),
    "like a number": (
        f"- {{func: '{SCALE}', kernel_name: f, meta: {{same_as: factor}}}}",
        KernelRejected,
        "kernels.yaml:5:80: the result of `myop::scale` is a `Tensor`, which cannot be like `factor`, a "
        "`float`",
        "name an argument that is a `Tensor`, or a C++ function that makes the result",
    ),
    "like too few": (
        "- {func: 'myop::top(Tensor self) -> (Tensor, Tensor)', kernel_name: f, meta: {same_as: self}}",
        KernelRejected,
        "kernels.yaml:5:74: `same_as` names 1, but `myop::top` returns 2: `top(Tensor self) -> (Tensor, "
        "Tensor)`",
        "name one argument for each result, e.g. `same_as: [self, self]`, or a C++ function",
    ),
    "two metas": (
        f"""
        - {{func: '{SCALE}', kernel_name: f, meta: {{same_as: self}}}}
        - {{func: '{SCALE_OUT}', meta: g}}
        """,
        KernelDuplicate,
        "kernels.yaml:6:91: `meta` is given twice for the variants of `myop::scale.out`; first at "
        "kernels.yaml:5:80",
        "keep one: it shapes the results of all variants",
    ),
    "no meta to derive with": (
        f"- {{func: '{SCALE_OUT}', kernel_name: f}}",
        KernelRejected,
        "kernels.yaml:5:6: `myop::scale` is derived from the kernel of `myop::scale.out`, and nothing says "
        "which shape and dtype its result has",
        "add `meta: {same_as: self}`, naming the argument that the result is like; or `meta: "
        "my_namespace::my_meta`, a C++ function that makes the result of meta tensors; or `tags: "
        "pointwise`, "
        "if that is what it is",
    ),
    "no kernel at all": (
        f"- {{func: '{SCALE}'}}",
        KernelRejected,
        "kernels.yaml:5:6: `myop::scale` is declared, but neither it nor a variant of it has a kernel",
        "add `kernel_name: my_namespace::my_kernel`",
    ),
    "two schemas of one name": (
        f"""
        - {{func: '{SCALE}', kernel_name: f}}
        - {{func: 'myop::scale(Tensor self, int factor) -> Tensor'}}
        """,
        SchemaInvalid,
        "kernels.yaml:6:6: `myop::scale` is declared twice: here as `scale(Tensor self, int factor) -> "
        "Tensor`, "
        "at kernels.yaml:5:6 as `scale(Tensor self, float factor) -> Tensor`",
        "make both the same, or give one another overload name, e.g. `myop::scale.other`",
    ),
    "two names of one signature": (
        f"""
        - {{func: '{SCALE}', kernel_name: f}}
        - {{func: 'myop::scale.fast(Tensor self, float factor) -> Tensor', kernel_name: g}}
        """,
        SchemaInvalid,
        "kernels.yaml:6:6: `myop::scale.fast` takes the same arguments as `myop::scale` "
        "(kernels.yaml:5:6): "
        "PyTorch could not tell which of the two a call means",
        "give them different arguments, or different names",
    ),
    "a variant of something else": (
        f"""
        - {{func: '{SCALE}', kernel_name: f}}
        - {{func: 'myop::scale_(Tensor(a!) self, float by) -> Tensor(a!)'}}
        """,
        SchemaInvalid,
        "kernels.yaml:6:6: `myop::scale_` is no variant of `myop::scale` (kernels.yaml:5:6), which takes "
        "other "
        "arguments or returns something else: `scale(Tensor self, float factor) -> Tensor`",
        "declare `scale(Tensor self, float by) -> Tensor`, with the same names, types and defaults, or "
        "rename "
        "one",
    ),
    "two kernels": (
        f"""
        - {{func: '{SCALE}', kernel_name: f}}
        - {{func: '{SCALE}', kernel_name: g}}
        """,
        KernelDuplicate,
        "kernels.yaml:6:6: two kernels for `myop::scale` in library `chiplib`; the first is `f` at "
        "kernels.yaml:5:6",
        "keep one; another library can hold the other, in order of preference",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_refusal(case: str, describe: Describe, catalogue: Catalogue) -> None:
    kernels, expected, wrong, remedy = REFUSALS[case]
    kind, lines = refused(describe(kernels), catalogue)
    assert lines == [wrong, f"  remedy: {remedy}"]
    assert kind is expected


def test_a_variant_that_no_rule_derives(describe: Describe, catalogue: Catalogue) -> None:
    path = describe(
        f"""
        - {{func: '{SCALE}', kernel_name: f}}
        - {{func: '{SCALE_OUT}'}}
        """,
        header="device_guard: false",
    )
    assert refused(path, catalogue) == (
        KernelRejected,
        [
            "kernels.yaml:6:6: `myop::scale.out` has no kernel, and cannot be derived: `device_guard: "
            "false` "
            "is set for those of its variants",
            "  remedy: give it a kernel: `kernel_name: my_namespace::my_kernel`",
        ],
    )


# ---- the plan


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
    with pytest.raises(OperatorUnknown) as caught:
        plan.entry("myop::scal")
    assert str(caught.value) == (
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
        f"- {{func: '{SCALE}', kernel_name: f, dtypes: [Half]}}",
        fallback="{deny: [myop::scale]}",
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
    files = {file.name: file.text for file in emit(replace(plan, entries=entries))}
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
    assert not [file.name for file in emit(plan) if "Custom" in file.name]
