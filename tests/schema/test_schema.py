"""The catalogue says of every operator what the installed torch's dispatcher says."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torchgen

from opsmith.schema import Catalogue, Composite, Group, Operator, Result, Variant
from opsmith.schema.catalogue import function_schema, native_function
from opsmith.schema.kept_catalogue import Stored, stored

_ALIASES = {
    # In the dispatcher's order of precedence.
    "CompositeExplicitAutogradNonFunctional": Composite.NON_FUNCTIONAL,
    "CompositeExplicitAutograd": Composite.EXPLICIT,
    "CompositeImplicitAutograd": Composite.IMPLICIT,
}


def test_every_aten_operator_is_in_the_catalogue(catalogue: Catalogue) -> None:
    registered = {
        name.removeprefix("aten::")
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("aten::")
    }
    assert catalogue.operators.keys() == registered


def test_composite_kinds_are_the_dispatchers(catalogue: Catalogue) -> None:
    wrong = {}
    for operator in catalogue.operators.values():
        dump = torch._C._dispatch_dump(operator.qualified_name)
        kinds = [kind for alias, kind in _ALIASES.items() if f"\n{alias}[alias]" in dump]
        if operator.composite is not (kinds[0] if kinds else Composite.NONE):
            wrong[operator.name] = (operator.composite, kinds)
    assert wrong == {}


def test_add_is_one_structured_group(catalogue: Catalogue) -> None:
    group = catalogue.group_of["add_.Tensor"]
    assert group is catalogue.group_of["add.Tensor"]
    assert (group.functional, group.inplace, group.out) == ("add.Tensor", "add_.Tensor", "add.out")
    assert group.structured and group.iterator
    assert catalogue.operators["add_.Tensor"].variant is Variant.INPLACE


def test_results_of_all_kinds(catalogue: Catalogue) -> None:
    def results(name: str) -> tuple[Result, ...] | None:
        return catalogue.operators[name].results

    assert results("native_layer_norm") == (Result(""), Result(""), Result(""))
    assert results("max.dim_max") == (Result("max"), Result("max_values"))
    assert results("_foreach_add.Scalar") == (Result("", many=True),)
    assert results("_foreach_add_.Scalar") == (Result("self", many=True),)
    # Other arguments that are changed come after the result; a functional variant returns them.
    assert results("rrelu_with_noise.out") == (Result("out"), Result("noise"))
    assert results("rrelu_with_noise_") == (Result("self"), Result("noise"))
    assert results("rrelu_with_noise_functional") == (Result(""), Result("noise_out"))
    assert results("_local_scalar_dense") is None


def test_the_variants_of_a_group_have_the_same_results(catalogue: Catalogue) -> None:
    different = []
    for group in catalogue.groups:
        kinds = set()
        for _, name in group.members():
            results = catalogue.operators[name].results
            kinds.add(results and tuple(result.many for result in results))
        if len(kinds) > 1:
            different.append(group)
    assert different == []


def test_operators_without_a_meta_kernel_are_those_of_torch(catalogue: Catalogue) -> None:
    def served(operator: Operator) -> bool:
        return any(
            torch._C._dispatch_has_kernel_for_dispatch_key(operator.qualified_name, key)
            for key in ("Meta", *_ALIASES)
        )

    lacking = set()
    for group in catalogue.groups:
        operator = catalogue.operators[group.functional or ""]
        # Operators that torchgen generates call the in-place operator.
        generated = "generated" in operator.tags and group.inplace is not None
        if not served(catalogue.operators[group.inplace or ""] if generated else operator):
            lacking.add(operator.name)
    # A build for CUDA has it; the record is of a build for the CPU.
    of_cuda = {"_cudnn_rnn_flatten_weight"} if torch.version.cuda else set()
    assert {o.name for o in catalogue.operators.values() if not o.meta} == lacking | of_cuda


def test_groups_are_structured_where_torchgen_says_so(catalogue: Catalogue) -> None:
    listed = (
        Path(torchgen.__file__).parent / "packaged" / "ATen" / "native" / "native_functions.yaml"
    )
    said = listed.read_text(encoding="utf-8").count("\n  structured: True")
    assert sum(group.structured for group in catalogue.groups) == said > 270


def test_a_schema_is_what_torchgen_reads_it_as(catalogue: Catalogue) -> None:
    names = ["add.out", "_fused_adam", "rrelu_with_noise_", "index.Tensor_out", "arange.start_step"]
    for name in names:
        assert function_schema(catalogue.operators[name]) == native_function(name).func


STORED = Stored(
    (
        Operator("f.out", "f.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", Variant.OUT,
                 Composite.EXPLICIT, tags=("core",), results=(Result("out"),)),
        Operator("f", "f(Tensor self) -> Tensor", Variant.FUNCTIONAL),
    ),
    (Group(functional="f", out="f.out", structured=True),),
)  # fmt: skip


def test_the_operators_are_parsed_anew_when_their_sources_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(tmp_path / "cache"))
    source = tmp_path / "native_functions.yaml"
    source.write_text("- func: f(Tensor self) -> Tensor\n")
    parsed = []

    def parse() -> Stored:
        parsed.append(source.read_text())
        return STORED

    def read(torch: str = "2.13.0") -> Stored:
        return stored(torch, [source], parse)

    assert (read(), read(), len(parsed)) == (STORED, STORED, 1)
    assert (read("2.13.1"), len(parsed)) == (STORED, 2)
    source.write_text("- func: g(Tensor self) -> Tensor\n")
    assert (read(), read(), len(parsed)) == (STORED, STORED, 3)
    # A damaged file is parsed anew, and whole again.
    for file in (tmp_path / "cache" / "catalogues").iterdir():
        file.write_bytes(file.read_bytes()[:-1])
    assert (read(), read(), len(parsed)) == (STORED, STORED, 4)


def test_the_operators_are_parsed_where_the_cache_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "cache").write_text("a file, where a folder should be")
    assert stored("2.13.0", [], lambda: STORED) == STORED
