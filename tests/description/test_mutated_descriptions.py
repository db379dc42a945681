"""Valid files made wrong at random: each either plans or raises an OpsmithError, never anything else.

Mutations of the text find what YAML can do; mutations of the data find what the readers and the resolver
take on trust.
"""

from __future__ import annotations

import copy
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from opsmith.description import import_library, read_backend, read_library
from opsmith.description.backend import RUNTIME_MANIFEST
from opsmith.description.document import parse_document
from opsmith.description.library import read_document_as_library
from opsmith.errors import OpsmithError
from opsmith.plan import resolve
from opsmith.plan.executorch.resolver import Runtime, plan_executorch
from opsmith.schema import Catalogue
from test_formats import CUSTOM_OPS, FUNCTIONS, LAZY, NPU, assert_imported_is_the_same
from test_formats import fast as few

BACKEND = """\
backend: chip
driver: {sources: [driver.c], include_dirs: [include], host_window: on}
libraries:
  - kernels.yaml
  - {file: lazy.yaml, name: lazy, sources: ["k*.c"], execution: host}
fallback:
  default: cpu
  deny: [topk, sin.out]
"""
MANIFEST = """\
library: chiplib
abi: aten
sources: [kernels.c]
include_dirs: [include]
execution: device
device_guard: true
derive: out
type_alias: &aliases
  Real: [Float, Double]
kernels:
  # The first.
  - op: add.out
    kernel_name: chip::add
    structured: true
    dtypes: [Real, Long]
  - &relu {op: relu, kernel_name: chip::relu, symint: false}
  - {<<: *relu, op: where.self_out, dtypes: {self: [Real]}}
"""
EXECUTORCH_MANIFEST = "library: lean\nabi: executorch\nkernels:\n" + "".join(
    f"  {line}\n" for line in FUNCTIONS.read_text().splitlines()
)
META_MANIFEST = """\
library: metas
abi: executorch
sources: [kernels.c]
kernels:
  - {op: abs.out, kernel_name: chip::abs, meta: chip::meta::abs}
  - {op: relu.out, kernel_name: chip::relu, dtypes: [Float], meta: opsmith::meta_functions::relu}
"""
FILES = {
    "backend.yaml": BACKEND,
    "kernels.yaml": MANIFEST,
    "lean.yaml": EXECUTORCH_MANIFEST,
    "metas.yaml": META_MANIFEST,
    "lazy.yaml": LAZY.read_text(),
    "npu.yaml": NPU.read_text(),
    "functions.yaml": FUNCTIONS.read_text(),
    "custom_ops.yaml": CUSTOM_OPS.read_text(),
}

fast = settings(few, max_examples=250)

SNIPPETS = [
    *("\t", "\n", " ", "  ", "- ", ": ", "? ", ", ", "#", "[", "]", "{", "}", "'", '"', "|", ">", "%"),
    *("&a ", "*a", "&relu ", "*relu", "*aliases", "<<: *relu\n", "<<: [*relu, *relu]\n", "<<: 3\n"),
    *("!!int ", "!!str ", "!!set ", "!!binary ", "!!python/object:os.system ", "!x ", "!!timestamp "),
    *("no", "on", "null", "~", "=", ".nan", "-.inf", "1e999", "0x1F", "0b2", "1:30", "9" * 5000),
    *("2001-99-99", "---\n", "...\n", "%YAML 9.9\n", "\x00", "\x07", "\x85", "\u2028", "\ufeff", "\udcff"),
    *("[" * 200, "- " * 200, "{a: " * 100, "(", ")", "::", "->", "..", "/", "\\", "*" * 50, "a" * 300),
]  # fmt: skip

VALUES: list[Any] = [
    *(None, True, False, 0, -1, 7, 10**30, 1.5, float("inf"), "", " ", "no", "0", "a\0b", "\x1b[31m"),
    *("x" * 5000, "../..", "/", "**", "**.c", "[", "~", "∞", "a::b", "::", "add.out", "aten::", "relu"),
    *([], {}, [[]], [None], [0], ["Float"], {"a": 1}, {"op": "relu"}, {"add.out": None}, [["Float"]]),
    *({"self": []}, {"self": ["Float"]}, ["T0", "D0"], [0, 1], {"structured": True}, "kernels.yaml"),
    *("scale(Tensor self) -> Tensor", "scale(Tensor self", "x::scale(Tensor(a!) a, *, int b=[) -> ()"),
    *("x:scale.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", "class", "int", "std::f", 2**70),
]  # fmt: skip
KEYS = [*"op func kernels kernel_name supported autograd symint x".split(), "", "on", "🙂", "a.b"]


@st.composite
def mutated_text(draw: st.DrawFn) -> tuple[str, str]:
    name = draw(st.sampled_from(sorted(FILES)))
    text = FILES[name]
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 40)))
        lines = text.splitlines(keepends=True) or [""]
        line = draw(st.integers(0, len(lines) - 1))
        other = draw(st.integers(0, len(lines) - 1))
        match draw(st.sampled_from(["insert", "replace", "delete", "truncate", "twice", "swap"])):
            case "insert":
                text = text[:start] + draw(st.sampled_from(SNIPPETS)) + text[start:]
            case "replace":
                text = text[:start] + draw(st.sampled_from(SNIPPETS)) + text[end:]
            case "delete":
                text = text[:start] + text[end:]
            case "truncate":
                text = text[:start]
            case "twice":
                text = "".join([*lines[: line + 1], lines[line], *lines[line + 1 :]])
            case _:
                lines[line], lines[other] = lines[other], lines[line]
                text = "".join(lines)
    return name, text


def places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values below the root."""
    children = (
        data.items()
        if isinstance(data, dict)
        else enumerate(data)
        if isinstance(data, list)
        else ()
    )
    return [
        path_ for key, value in children for path_ in [(*path, key), *places(value, (*path, key))]
    ]


@st.composite
def mutated_data(draw: st.DrawFn) -> tuple[str, str]:
    name = draw(st.sampled_from(sorted(FILES)))
    data = copy.deepcopy(yaml.safe_load(FILES[name]))
    for _ in range(draw(st.integers(1, 3))):
        paths = places(data)
        if not paths:
            break
        *above, key = draw(st.sampled_from(paths))
        parent = data
        for step in above:
            parent = parent[step]
        match draw(st.sampled_from(["retype", "delete", "rename", "copy", "wrap"])):
            case "retype":
                parent[key] = copy.deepcopy(draw(st.sampled_from(VALUES)))
            case "delete":
                del parent[key]
            case "wrap":
                parent[key] = draw(st.sampled_from([[parent[key]], {"a": parent[key]}]))
            case "rename" if isinstance(parent, dict):
                parent[draw(st.sampled_from(KEYS))] = parent.pop(key)
            case _ if isinstance(parent, list):
                parent.append(copy.deepcopy(parent[key]))
            case _:
                parent[draw(st.sampled_from(KEYS))] = copy.deepcopy(parent[key])
    return name, yaml.safe_dump(data, allow_unicode=draw(st.booleans()), sort_keys=False)


@pytest.fixture(scope="module")
def small_catalogue(catalogue: Catalogue) -> Catalogue:
    """The operators that the files and the runtime name, with their groups: planning them is quick."""
    text = "".join([*FILES.values(), RUNTIME_MANIFEST.read_text()])
    groups = tuple(
        group
        for group in catalogue.groups
        if any(name.partition(".")[0].rstrip("_") in text for _, name in group.members())
    )
    names = {name for group in groups for _, name in group.members()}
    names |= {name for name in catalogue.operators if name not in catalogue.group_of}
    return Catalogue(
        catalogue.torch,
        {name: operator for name, operator in catalogue.operators.items() if name in names},
        groups,
        {name: group for name, group in catalogue.group_of.items() if name in names},
    )


def write_files(folder: Path, name: str, text: str) -> Path:
    """Writes all files, ``name`` with another text; returns a ``backend.yaml`` that reads that one."""
    (folder / "driver.c").touch()
    (folder / "kernels.c").touch()
    (folder / "include").mkdir(exist_ok=True)
    for file, original in FILES.items():
        (folder / file).write_text(original)
    (folder / name).write_bytes(text.encode("utf-8", "surrogatepass"))
    backend = folder / "backend.yaml"
    if name not in {"backend.yaml", "kernels.yaml"}:
        backend.write_text(f"backend: chip\ndriver: sim\nlibraries: [{name}]\n")
    return backend


@pytest.fixture
def plans_or_refuses(tmp_path: Path, small_catalogue: Catalogue) -> Callable[[str, str], None]:
    """Reads the file ``name`` with a new text, plans and imports it; any other error is raised."""

    def run(name: str, text: str) -> None:
        backend = write_files(tmp_path, name, text)
        try:
            read = read_backend(backend, small_catalogue)
            resolve(read, small_catalogue)
            plan_executorch(read, small_catalogue, Runtime("1.4.1", frozenset({"aten::add.out"})))
        except OpsmithError as error:
            assert str(error)
        try:
            imported = import_library(tmp_path / name, small_catalogue)
        except OpsmithError:
            return
        try:
            read_library(tmp_path / name, small_catalogue)
        except OpsmithError:  # what can be taken of it is a library
            manifest = parse_document(imported.text, tmp_path / "imported.yaml")
            read_document_as_library(manifest, small_catalogue)
            return
        # A file that can be read can be imported, and is then the same.
        assert_imported_is_the_same(tmp_path / name, small_catalogue)

    return run


def test_mutated_files_are_planned(
    tmp_path: Path, plans_or_refuses: Callable[[str, str], None], small_catalogue: Catalogue
) -> None:
    """Operators that the small catalogue lacks would be refused before anything is planned."""
    for name in FILES:
        plans_or_refuses(name, FILES[name])
        resolve(read_backend(tmp_path / "backend.yaml", small_catalogue), small_catalogue)


@pytest.mark.parametrize("name", sorted(FILES))
def test_the_files_are_valid(name: str, tmp_path: Path, catalogue: Catalogue) -> None:
    backend = write_files(tmp_path, name, FILES[name])
    plan = resolve(read_backend(backend, catalogue), catalogue)
    assert catalogue.operators.keys() <= plan.by_name.keys()


def test_mutated_text(plans_or_refuses: Callable[[str, str], None]) -> None:
    @fast
    @given(mutated_text())
    @example(("kernels.yaml", "kernels: " + "[" * 100_000))
    @example(("kernels.yaml", "- " * 100_000))
    @example(("lazy.yaml", "a: &a [" + "x, " * 30 + "]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [" + f"*{chr(97 + i)}, " * 30 + "]\n" for i in range(9)
    )))  # fmt: skip
    @example(("functions.yaml", "&a [*a]"))
    @example(("functions.yaml", ""))
    @example(("custom_ops.yaml", "\ufeff- op: relu.out\n"))
    def check(mutated: tuple[str, str]) -> None:
        plans_or_refuses(*mutated)

    check()


PARTS_OF_HEADS = [" ", *": :: . my op add out _ class in é 9 aten - (".split()]


def test_any_name_of_an_operator(plans_or_refuses: Callable[[str, str], None]) -> None:
    @fast
    @given(
        st.lists(st.sampled_from(PARTS_OF_HEADS), max_size=7).map("".join),
        st.sampled_from(["kernels.yaml", "lean.yaml", "functions.yaml", "npu.yaml"]),
    )
    @example("my:op.out", "lean.yaml")
    @example("op.out", "functions.yaml")
    def check(head: str, name: str) -> None:
        schema = f"{head}(Tensor self, *, Tensor(a!) out) -> Tensor(a!)"
        entry = f'- {{func: "{schema}", kernels: [{{arg_meta: null, kernel_name: f}}]}}\n'
        texts = {
            "kernels.yaml": f'library: l\nkernels:\n- {{func: "{schema}", kernel_name: f}}\n',
            "lean.yaml": f"library: l\nabi: executorch\nkernels:\n{entry}",
            "functions.yaml": entry,
            "npu.yaml": f'backend: X\ncpp_namespace: x\nsupported: []\ncustom: [{{func: "{schema}"}}]\n',
        }
        plans_or_refuses(name, texts[name])

    check()


@st.composite
def anchored(draw: st.DrawFn) -> str:
    """Mappings and lists that stand for one another by aliases and merges, each for earlier ones."""
    lines: list[str] = []
    mappings: list[str] = []
    for index in range(draw(st.integers(1, 12))):
        earlier = st.sampled_from([f"*n{i} " for i in range(index)]) if index else st.nothing()
        values = draw(st.lists(st.one_of(st.sampled_from(["0", "x", "[]"]), earlier), max_size=3))
        if draw(st.booleans()):
            items = [f"k{draw(st.integers(0, 3))}{i}: {each}" for i, each in enumerate(values)]
            if mappings and draw(st.booleans()):
                sources = draw(st.lists(st.sampled_from(mappings), min_size=1, max_size=3))
                items.append(f"<<: [{', '.join(sources)}]")
            text = f"{{{', '.join(items)}}}"
            mappings.append(f"*n{index}")
        else:
            text = f"[{', '.join(values)}]"
        lines.append(f"v{index}: &n{index} {text}\n")
    return "".join(lines)


def test_aliases_and_merges_mean_what_yaml_says() -> None:
    @fast
    @given(anchored())
    @example(
        "v0: &n0 {k0: 0}\nv1: &n1 {k0: x}\nv2: {<<: [*n0, *n1], k1: 0}\nv3: {k0: 7, <<: *n1}\n"
    )
    def check(text: str) -> None:
        assert parse_document(text, Path("any.yaml")).data == yaml.safe_load(text)

    check()


def test_merges_of_merges_cost_no_more_than_they_hold() -> None:
    def parsed(links: int) -> list[object]:
        chain = (f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}]}}\n" for i in range(1, links))
        return [
            *parse_document("a0: &a0 {x: 1}\n" + "".join(chain), Path("any.yaml")).data.values()
        ]

    def calls(links: int) -> int:
        count = itertools.count()
        sys.setprofile(lambda *event: next(count) and None)
        try:
            parsed(links)
        finally:
            sys.setprofile(None)
        return next(count)

    # Each link doubled the work once.
    assert calls(16) < 3 * calls(8)
    assert parsed(900) == [{"x": 1}] * 900


def test_mutated_data(plans_or_refuses: Callable[[str, str], None]) -> None:
    @fast
    @given(mutated_data())
    # Two mistakes, of which the first is in a mapping with keys of the file's own.
    @example(
        (
            "functions.yaml",
            "- {op: add.out, dim_order_alias: {Rows: [0, 1], Any: [0, 2, null]}, kernels: null}",
        )
    )
    def check(mutated: tuple[str, str]) -> None:
        plans_or_refuses(*mutated)

    check()
