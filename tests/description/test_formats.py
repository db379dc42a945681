"""The formats of torchgen, op-plugin and ExecuTorch: read, against their own parsers, and `opsmith import`.

The files of formats/ are written for these tests, in the styles of torch_xla, torch_npu, op-plugin and
ExecuTorch.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opsmith.description import Derive, Kernel, Library, import_library, read_backend, read_library
from opsmith.description.document import parse_document
from opsmith.description.formats.imported import _manifest_of_executorch
from opsmith.description.library import read_document_as_library
from opsmith.emit import emit
from opsmith.errors import Location
from opsmith.plan import Plan, Route, resolve
from opsmith.schema import Catalogue, Variant, torch_release, torch_version

FORMATS = Path(__file__).parent / "formats"
LAZY = FORMATS / "lazy_native_functions.yaml"
NPU = FORMATS / "npu_native_functions.yaml"
OP_PLUGIN = FORMATS / "op_plugin_functions.yaml"
FUNCTIONS = FORMATS / "functions.yaml"
CUSTOM_OPS = FORMATS / "custom_ops.yaml"

Describe = Callable[..., Path]

fast = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def shown(kernel: Kernel) -> str:
    """The facts of a kernel that are not the defaults."""
    flags = {"structured": kernel.structured, "symint": kernel.symint, "guard": kernel.device_guard}
    facts = [kernel.operator, kernel.symbol or f"autograd {kernel.autograd}"]
    facts += [name for name, value in flags.items() if value]
    facts += [f"meta {kernel.meta_symbol}"] if kernel.meta_symbol else []
    facts += [f"autograd {kernel.autograd}"] if kernel.symbol and kernel.autograd else []
    return " ".join(facts)


def planned(tmp_path: Path, catalogue: Catalogue, *libraries: Path) -> Plan:
    path = tmp_path / "backend.yaml"
    listed = "".join(f"  - {json.dumps(str(library))}\n" for library in libraries)
    path.write_text(f"backend: chip\ndriver: sim\nlibraries:\n{listed}")
    return resolve(read_backend(path, catalogue), catalogue)


# ---- torchgen's backend YAML


def test_a_lazy_tensor_backend_is_read_whole(catalogue: Catalogue) -> None:
    library = read_library(LAZY, catalogue)
    assert library.name == "orbit"
    class_ = "orbit::eager::OrbitNativeFunctions"
    assert [shown(kernel) for kernel in library.kernels] == [
        f"add.Tensor {class_}::add",
        f"add.Scalar {class_}::add",
        f"atan2 {class_}::atan2",
        f"mm {class_}::mm",
        f"arange.start_out {class_}::arange_out",
        f"empty.memory_format {class_}::empty_symint symint",
        f"empty_strided {class_}::empty_strided_symint symint",
        f"_copy_from {class_}::_copy_from",
        f"resize_ {class_}::resize_",
        f"max_pool2d autograd {class_}::max_pool2d",
        f"native_group_norm autograd {class_}::native_group_norm",
    ]
    assert {kernel.class_name for kernel in library.kernels} == {class_}
    # Every name of the file is a kernel or has its reason.
    raw = yaml.safe_load(LAZY.read_text())
    lists = ("full_codegen", "ir_gen", "supported", "symint", "autograd")
    names = {name for key in lists for name in raw[key]}
    names |= {entry["func"].partition("(")[0] for entry in raw["non_native"]}
    kernels = {kernel.operator for kernel in library.kernels}
    assert names == kernels | {each.name for each in library.unserved}
    assert [(each.name, each.location.line) for each in library.unserved] == [
        ("sin", 5),
        ("floor", 6),
        ("max.dim", 7),
        ("atan2", 9),
        ("reshape", 24),
        ("expand_copy", 28),
        ("constant", 33),
        ("narrow_view", 37),
    ]
    reasons = {each.name: each.reason for each in library.unserved}
    assert reasons["sin"] == (
        "under `full_codegen`: torchgen's gen_lazy_tensor would write this kernel, a lazy-tensor node "
        "with a shape function and a lowering, and opsmith has no lazy tensors; write the kernel and "
        "list it under `supported`"
    )
    assert reasons["reshape"].startswith("it is CompositeImplicitAutograd: a kernel for the device")


def test_torch_npus_dialect_is_read_whole(catalogue: Catalogue) -> None:
    library = read_library(NPU, catalogue)
    class_ = "at_comet::native::CometOps"
    assert [shown(kernel) for kernel in library.kernels] == [
        "abs.out op_plugin::abs_out guard",
        f"clone {class_}::clone guard",
        f"copy_ {class_}::copy_",  # device_check: NoCheck
        f"isnan {class_}::isnan guard",
        f"new_empty_strided {class_}::new_empty_strided_symint symint guard",
        f"mul.out {class_}::mul_out structured guard",
        f"div.out {class_}::div_out structured guard meta {class_}::div_out_meta",
        f"comet::comet_fuse {class_}::comet_fuse guard",
        f"comet::comet_norm {class_}::comet_norm guard autograd {class_}::comet_norm",
    ]
    assert [declared.operator.schema for declared in library.operators] == [
        "comet_fuse(Tensor self, Tensor other) -> Tensor",
        "comet_norm(Tensor self, float eps=1e-05) -> Tensor",
    ]
    assert {kernel.derive for kernel in library.kernels} == {Derive.OUT}
    assert [each.name for each in library.unserved] == [
        "extra_headers", "abs.out", "clone", "isnan", "median",
    ]  # fmt: skip


def test_op_plugins_file_is_read_whole(catalogue: Catalogue) -> None:
    library = read_library(OP_PLUGIN, catalogue)
    assert library.name == "op_plugin"
    assert [shown(kernel) for kernel in library.kernels] == [
        "abs.out op_plugin::abs_out guard",
        "embedding op_plugin::embedding_symint symint guard",
        "cat.out op_plugin::cat_out guard",
        "isnan op_plugin::isnan",
        "_thnn_fused_gru_cell op_plugin::_thnn_fused_gru_cell guard autograd "
        "op_plugin::_thnn_fused_gru_cell",
        "npu::comet_rope op_plugin::comet_rope_symint symint guard",
        "npu::comet_drop_ op_plugin::comet_drop_ guard",
        "npu::comet_encode.out op_plugin::comet_encode_out guard",
        "npu::comet_permute op_plugin::comet_permute guard autograd op_plugin::comet_permute",
    ]
    assert {kernel.class_name for kernel in library.kernels} == {""}
    release = "{}.{}".format(*torch_release())
    assert [(each.name, each.location.line, each.reason) for each in library.unserved] == [
        (
            "cat",
            12,
            "it is structured and delegates to `cat.out`, from whose kernel opsmith derives it",
        ),
        (
            "sin",
            19,
            f"op-plugin has no implementation for torch {release}, by `acl_op`, `op_api` and `sparse`",
        ),
        (
            "comet_mask",
            45,
            "`npu::comet_mask(int[] size, *, Device? device=None) -> Tensor` takes no Tensor, so PyTorch "
            "cannot tell which device it is meant for; add a Tensor argument; a factory is better written "
            "as a function around torch.empty",
        ),
        (
            "int_repr",
            57,
            "under `quant`: it is for quantized Tensors, which a device of opsmith does not have",
        ),
    ]


@pytest.mark.parametrize("imported", [False, True])
def test_op_plugins_operators_are_planned(
    imported: bool, tmp_path: Path, catalogue: Catalogue
) -> None:
    path = OP_PLUGIN
    if imported:
        path = tmp_path / "kernels.yaml"
        path.write_text(import_library(OP_PLUGIN, catalogue).text)
    plan = planned(tmp_path, catalogue, path)
    assert plan.entry("cat").route is Route.DERIVED
    assert plan.entry("npu::comet_drop").route is Route.DERIVED
    assert plan.entry("npu::comet_rope").route is Route.KERNEL
    # Nothing says how the results of a functional variant would be shaped.
    assert "npu::comet_encode" not in {entry.name for entry in plan.entries}


def test_a_static_member_may_be_called_std(tmp_path: Path, catalogue: Catalogue) -> None:
    path = tmp_path / "chip.yaml"
    path.write_text("backend: Chip\ncpp_namespace: chip\nsupported: [std.correction]\n")
    assert_imported_is_the_same(path, catalogue)
    plan = planned(tmp_path, catalogue, path)
    served = tuple(entry for entry in plan.entries if entry.library == "chip")
    texts = {file.name: file.text for file in emit(replace(plan, entries=served))}
    assert "  static at::Tensor std(const at::Tensor& self, " in texts["ChipNativeFunctions.h"]
    assert "&::chip::ChipNativeFunctions::std" in "".join(texts.values())


@pytest.fixture(scope="session")
def torchgen_names() -> Callable[[Path], dict[str, str]]:
    """Returns the kernel names that torchgen's own parser gives the operators of a file."""
    from torchgen.gen import get_grouped_native_functions
    from torchgen.gen_backend_stubs import parse_backend_yaml

    from opsmith.schema.catalogue import _native_functions

    grouped = get_grouped_native_functions(_native_functions())

    def names(path: Path) -> dict[str, str]:
        parsed = parse_backend_yaml(str(path), grouped, {})
        # One class for both keys: gen_backend_stubs.run.
        forward = parsed.backend_indices[parsed.backend_key]
        class_name = parsed.class_name or forward.native_function_class_name()
        return {
            str(operator): f"{metadata.cpp_namespace}::{class_name}::{metadata.kernel}"
            for index in parsed.backend_indices.values()
            for operator, metadata in index.index.items()
        }

    return names


def test_kernels_have_torchgens_names(
    torchgen_names: Callable[[Path], dict[str, str]], tmp_path: Path, catalogue: Catalogue
) -> None:
    path = tmp_path / "xla.yaml"
    path.write_text(LAZY.read_text().replace("backend: Orbit", "backend: XLA"))
    theirs = torchgen_names(path)
    library = read_library(path, catalogue)
    ours = {kernel.operator: kernel.symbol or kernel.autograd for kernel in library.kernels}
    # torchgen counts what gen_lazy_tensor would write, and reshape.
    assert theirs.keys() - ours.keys() == {"sin", "floor", "max.dim", "reshape"}
    assert ours == {name: theirs[name] for name in ours}


@st.composite
def torchgen_files(draw: st.DrawFn, names: list[str]) -> str:
    """A backend YAML with kernels only, in torchgen's own dialect."""
    supported = draw(st.lists(st.sampled_from(names), min_size=1, max_size=12, unique=True))
    data: dict[str, Any] = {
        "backend": draw(st.sampled_from(["XLA", "PrivateUse1", "Lazy"])),
        "cpp_namespace": draw(st.sampled_from(["chip", "chip::ops", "a1_::b::c"])),
        "supported": supported,
    }
    if draw(st.booleans()):
        data["symint"] = draw(st.lists(st.sampled_from(supported), unique=True))
    for key in ("device_guard", "use_out_as_primary"):
        if draw(st.booleans()):
            data[key] = draw(st.booleans())
    if draw(st.booleans()):
        data["class_name"] = draw(st.sampled_from(["ChipOps", "X"]))
    return str(yaml.safe_dump(data, sort_keys=draw(st.booleans())))


@pytest.fixture(scope="session")
def kernel_names(catalogue: Catalogue) -> list[str]:
    """Operators for which a device may have a kernel, and that native_functions.yaml lists."""
    from opsmith.schema.catalogue import _functions_by_name

    return [
        name
        for name, operator in catalogue.operators.items()
        if operator.composite.value != "CompositeImplicitAutograd" and name in _functions_by_name()
    ]


def test_any_kernel_has_torchgens_name(
    torchgen_names: Callable[[Path], dict[str, str]],
    kernel_names: list[str],
    tmp_path: Path,
    catalogue: Catalogue,
) -> None:
    @fast
    @given(torchgen_files(kernel_names))
    def check(text: str) -> None:
        path = tmp_path / "any.yaml"
        path.write_text(text)
        library = read_library(path, catalogue)
        assert {kernel.operator: kernel.symbol for kernel in library.kernels} == torchgen_names(
            path
        )
        assert library.unserved == ()
        assert_imported_is_the_same(path, catalogue)

    check()


def test_plan_serves_the_file_and_says_what_it_does_not(
    tmp_path: Path, catalogue: Catalogue
) -> None:
    plan = planned(tmp_path, catalogue, LAZY)
    assert plan.entry("add.Tensor").route is Route.KERNEL
    # torchgen, too, derives from kernels that look after their devices themselves.
    assert plan.entry("add_.Tensor").route is Route.DERIVED
    assert plan.entry("max_pool2d").route is Route.COMPOSITE
    assert [item.name for item in plan.not_served] == [
        "sin", "floor", "max.dim", "atan2", "reshape", "expand_copy", "constant", "narrow_view",
    ]  # fmt: skip
    assert plan.entry("sin").why.endswith(
        "and opsmith has no lazy tensors; write the kernel and list it under `supported` "
        f"({LAZY}:5:5)"
    )


@pytest.mark.parametrize(
    ("said", "source"),
    [
        ("", "relu.out"),
        ("use_out_as_primary: true", "relu.out"),
        ("use_out_as_primary: false", "relu"),
    ],
)
def test_use_out_as_primary_chooses_what_variants_are_built_on(
    said: str, source: str, tmp_path: Path, catalogue: Catalogue
) -> None:
    path = tmp_path / "chip.yaml"
    path.write_text(f"backend: Chip\ncpp_namespace: chip\n{said}\nsupported: [relu, relu.out]\n")
    assert planned(tmp_path, catalogue, path).entry("relu_").source == source


def test_static_members(tmp_path: Path, catalogue: Catalogue) -> None:
    path = tmp_path / "chip.yaml"
    path.write_text(
        "backend: Chip\ncpp_namespace: chip::ops\nsupported: [add.Tensor, add.Scalar, max.dim]\n"
    )
    plan = planned(tmp_path, catalogue, path)
    files = {
        file.name: file.text.replace(str(tmp_path), "DIR")
        for file in emit(
            replace(plan, entries=tuple(e for e in plan.entries if e.library == "chip"))
        )
    }
    header = files["ChipNativeFunctions.h"]
    assert header[header.index("namespace chip") :] == (
        "namespace chip::ops {\n"
        "struct ChipNativeFunctions {\n"
        "  // add.Scalar (chip, DIR/chip.yaml:3:25)\n"
        "  static at::Tensor add(const at::Tensor& self, const at::Scalar& other, const at::Scalar& alpha);\n"
        "\n"
        "  // add.Tensor (chip, DIR/chip.yaml:3:13)\n"
        "  static at::Tensor add(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha);\n"
        "\n"
        "  // max.dim (chip, DIR/chip.yaml:3:37)\n"
        "  static ::std::tuple<at::Tensor, at::Tensor> max(const at::Tensor& self, int64_t dim, bool "
        "keepdim);\n"
        "};\n"
        "}  // namespace chip::ops\n"
    )
    # Overloads of one name: the registration says which.
    registered = " ".join(" ".join(files.values()).split())
    assert (
        '"add.Tensor", (static_cast<at::Tensor (*)(const at::Tensor& self, const '
        "at::Tensor& other, const at::Scalar& alpha)>( &::chip::ops::ChipNativeFunctions::add)));"
    ) in registered


def test_a_backend_adds_what_the_file_cannot_say(tmp_path: Path, catalogue: Catalogue) -> None:
    (tmp_path / "ops.cpp").touch()
    (tmp_path / "include").mkdir()
    path = tmp_path / "backend.yaml"
    path.write_text(
        "backend: chip\ndriver: sim\nlibraries:\n"
        f"  - {{file: {LAZY}, name: eager, sources: [ops.cpp], include_dirs: [include],\n"
        "     execution: host}\n"
    )
    library = read_backend(path, catalogue).libraries[0]
    assert (library.name, library.sources) == ("eager", ((tmp_path / "ops.cpp").resolve(),))
    assert library.include_dirs == ((tmp_path / "include").resolve(),)
    assert {kernel.library for kernel in library.kernels} == {"eager"}
    assert {kernel.execution.value for kernel in library.kernels} == {"host"}


# ---- ExecuTorch's functions.yaml and custom_ops.yaml


def test_executorch_functions_are_read_whole(catalogue: Catalogue) -> None:
    library = read_library(FUNCTIONS, catalogue)
    assert (library.name, library.abi.value) == ("functions", "executorch")
    assert [(kernel.operator, kernel.symbol) for kernel in library.kernels] == [
        ("add.out", "comet::native::add_real_out"),
        ("add.out", "comet::native::add_mixed_out"),
        ("add.out", "torch::executor::native::add_out"),
        ("clamp.out", "at::native::clamp_out"),
        ("full_like.out", "impl::generic::native::full_like_out"),
    ]
    mixed = library.kernels[1].arg_meta
    assert [(each.argument, each.dtypes, each.dim_order, each.tied) for each in mixed] == [
        ("self", ("Int", "Long"), (0, 2, 3, 1), 0),
        ("other", ("Float", "Double"), (0, 2, 3, 1), 1),
        ("out", ("Float", "Double"), (0, 2, 3, 1), 1),
    ]
    assert [
        (each.name, each.schema, each.variants, each.tags, each.cpp_no_default_args)
        for each in library.executorch
    ] == [
        ("add.out", "", ("function",), (), ()),
        ("clamp.out", "", ("function",), ("core", "pointwise"), ("min",)),
        ("full_like.out", "", ("function", "method"), ("nondeterministic_seeded",), ()),
    ]


def test_executorch_custom_operators_keep_their_schemas(catalogue: Catalogue) -> None:
    library = read_library(CUSTOM_OPS, catalogue)
    assert [(each.name, each.schema) for each in library.executorch] == [
        (
            "comet::rope.out",
            'rope.out(Tensor q, Tensor k, int start, *, str mode="a::b", Tensor(a!) out) -> Tensor(a!)',
        ),
        (
            "allclose.out",
            "allclose.out(Tensor self, Tensor other, float rtol=1e-05, *, Tensor(a!) out) -> Tensor(a!)",
        ),
        ("comet::declared_only", "declared_only(Tensor self) -> Tensor"),
    ]
    assert [kernel.symbol for kernel in library.kernels] == [
        "comet::native::rope_out",
        "torch::executor::native::allclose_out",
    ]


def test_executorch_kernels_have_executorchs_names_and_keys(catalogue: Catalogue) -> None:
    from executorch.codegen.parse import parse_et_yaml_struct
    from torchgen.gen import LineLoader

    entries = yaml.load(FUNCTIONS.read_text(), Loader=LineLoader)
    for entry in entries:
        entry["func"] = catalogue.operators[entry.pop("op")].schema
    theirs = {
        (str(operator), *sorted((arg.arg_name, arg.dtype, arg.dim_order) for arg in key.arg_meta)):
            f"{metadata.cpp_namespace}::{metadata.kernel}"
        for operator, kernels in parse_et_yaml_struct(entries).index.items()
        for key, metadata in kernels.items()
    }  # fmt: skip
    ours = {}
    for kernel in read_library(FUNCTIONS, catalogue).kernels:
        tied = {each.tied: each.dtypes for each in kernel.arg_meta}
        for choice in itertools.product(*tied.values()):
            dtypes = dict(zip(tied, choice, strict=True))
            metas = sorted(
                (each.argument, dtypes[each.tied], each.dim_order) for each in kernel.arg_meta
            )
            key = kernel.operator, *metas
            ours[key] = kernel.symbol
    assert ours == theirs


def shipped_by_executorch() -> list[Path]:
    spec = importlib.util.find_spec("executorch")
    assert spec is not None and spec.submodule_search_locations
    root = Path(next(iter(spec.submodule_search_locations)))
    return [
        path
        for folder in ("kernels", "runtime", "backends")
        for path in sorted((root / folder).rglob("*.yaml"))
        if "kernel_name:" in path.read_text(encoding="utf-8")
    ]


@pytest.mark.parametrize(
    "path", shipped_by_executorch(), ids=lambda path: "-".join(path.parts[-2:])
)
def test_the_files_that_come_with_executorch(path: Path, catalogue: Catalogue) -> None:
    library = read_library(path, catalogue)
    assert len(library.kernels) == path.read_text(encoding="utf-8").count("kernel_name:")
    assert len(library.executorch) == len(yaml.safe_load(path.read_text(encoding="utf-8")))
    assert_imported_is_the_same(path, catalogue)


def test_plan_asks_executorch_kernels_in_the_order_of_what_they_take(
    tmp_path: Path, catalogue: Catalogue
) -> None:
    plan = planned(tmp_path, catalogue, FUNCTIONS, CUSTOM_OPS)
    entry = plan.entry("add.out")
    assert entry.route is Route.KERNEL
    assert [layer.kernel and layer.kernel.symbol for layer in entry.chain] == [
        "comet::native::add_real_out",
        "comet::native::add_mixed_out",
        "torch::executor::native::add_out",
    ]
    rows = "Float/Double in dim order (0, 1)"
    images = "in dim order (0, 2, 3, 1)"
    assert entry.why == (
        f"`comet::native::add_real_out` ({FUNCTIONS}:18:7); takes self {rows}, other {rows}, out {rows}, "
        f"and else: `comet::native::add_mixed_out` ({FUNCTIONS}:23:7); takes self Int/Long {images}, other "
        f"Float/Double {images}, out Float/Double {images}, and else: "
        f"`torch::executor::native::add_out` ({FUNCTIONS}:25:7); for at most 16 dimensions, others: the "
        f"fallback runs it on the CPU ({tmp_path}/backend.yaml:1:1)"
    )
    assert [(item.name, item.library, item.why) for item in plan.not_served] == [
        (
            "full_like.out",
            "functions",
            "its kernel serves ExecuTorch's programs only: `full_like` is told its result's dtype and "
            "device, "
            "which no argument of the out variant tells its meta kernel; PyTorch makes it of other operators",
        ),
        (
            "comet::rope.out",
            "custom_ops",
            "its kernel serves ExecuTorch's programs only: nothing says how its result is shaped: add "
            "`meta: …`",
        ),
        (
            "allclose.out",
            "custom_ops",
            f"its kernel serves ExecuTorch's programs only: torch {torch_version()} has no such operator",
        ),
    ]


# ---- import


def unplaced(library: Library) -> Library:
    """``library`` without its places, and without what import leaves behind."""
    nowhere = Location(Path())
    return replace(
        library,
        location=nowhere,
        unserved=(),
        kernels=tuple(replace(kernel, location=nowhere) for kernel in library.kernels),
        executorch=tuple(replace(each, location=nowhere) for each in library.executorch),
        operators=tuple(replace(each, location=nowhere) for each in library.operators),
    )


def assert_imported_is_the_same(path: Path, catalogue: Catalogue) -> None:
    text = import_library(path, catalogue).text
    document = parse_document(text, path.with_name("imported.yaml"))
    library = read_document_as_library(document, catalogue)
    assert unplaced(library) == unplaced(read_library(path, catalogue))


@pytest.mark.parametrize("path", sorted(FORMATS.glob("*.yaml")), ids=lambda path: path.stem)
def test_an_imported_file_is_the_same_library(path: Path, catalogue: Catalogue) -> None:
    assert_imported_is_the_same(path, catalogue)


def test_import_keeps_comments(catalogue: Catalogue) -> None:
    text = import_library(LAZY, catalogue).text
    assert text.startswith(
        "# A lazy-tensor backend, in the style of torch_xla: eager kernels beside generated nodes.\n\n"
        "# Imported by opsmith from lazy_native_functions.yaml.\n"
        "library: orbit\n"
        '# sources: ["*.cpp"]  # the files that define the kernels\n'
        "class_name: orbit::eager::OrbitNativeFunctions  # the kernels are its static members\n"
        "device_guard: false  # the kernels make their operands' device current\n"
        "derive: cheapest  # variants without a kernel are built on the cheapest one of their group\n"
        "kernels:\n"
        "  # Arithmetic; both overloads are `add` in C++.\n"
        "  - op: add.Tensor\n"
        "    kernel_name: orbit::eager::OrbitNativeFunctions::add\n"
        "  - op: add.Scalar  # the scalar on the right\n"
    )
    assert text.endswith(
        "# Not carried over: constant (line 33), narrow_view (line 37)\n"
        "# under `non_native`: a lazy-tensor node without an operator of PyTorch, and opsmith has no lazy\n"
        "# tensors; nothing outside them can call it\n"
    )


def test_import_keeps_executorchs_own_text(catalogue: Catalogue) -> None:
    original = FUNCTIONS.read_text()
    top, _, entries = original.partition("\n\n")
    assert import_library(FUNCTIONS, catalogue).text == (
        f"{top}\n\n# Imported by opsmith from functions.yaml.\nlibrary: functions\nabi: executorch\n"
        '# sources: ["*.cpp"]  # the files that define the kernels\nkernels:\n'
        + "".join(f"  {line}".rstrip() + "\n" for line in entries.splitlines())
    )


FAULTY = """\
backend: Chip
cpp_namespace: chip
nestedtensor: [size]
supported:
  - relu
  - addd.Tensor
  - no
  - {func: abs.out, new_choice: true}
  - {func: neg, wrap_impl: typename}
  - sin
autograd: [sin]
custom:
  - func: fuse(Tensor self, Texture other) -> Tensor
  - func: blend(Tensor self) -> Tensor
"""


def test_import_takes_what_can_be_taken(tmp_path: Path, catalogue: Catalogue) -> None:
    path = tmp_path / "chip.yaml"
    path.write_text(FAULTY)
    imported = import_library(path, catalogue)
    manifest = parse_document(imported.text, tmp_path / "kernels.yaml")
    library = read_document_as_library(manifest, catalogue)
    assert [kernel.operator for kernel in library.kernels] == ["relu", "sin", "chip::blend"]
    faults = [
        (each.location.line, each.name, each.reason.partition(";")[0]) for each in imported.unserved
    ]
    assert faults == [
        (3, "nestedtensor", "unknown key `nestedtensor`"),
        (
            6,
            "addd.Tensor",
            f"torch {catalogue.torch} has no operator `addd.Tensor` (did you mean add.Tensor, "
            "add_.Tensor, div.Tensor?)",
        ),
        (7, "False", "`supported.2` has the wrong type: expected `string | mapping`, got `bool`"),
        (8, "abs.out", "unknown key `new_choice`"),
        (
            9,
            "neg",
            "`op_plugin::typename` is not a C++ function's qualified name: `typename` is a word of C++",
        ),
        (
            11,
            "sin",
            f"`sin` is both under `supported` ({path}:10:5) and under `autograd`, and both name the "
            "function `chip::ChipNativeFunctions::sin`",
        ),
        (13, "fuse", "unknown type `Texture`"),
    ]


def test_import_leaves_an_executorch_entry_that_is_wrong_as_a_comment(
    tmp_path: Path, catalogue: Catalogue
) -> None:
    path = tmp_path / "functions.yaml"
    path.write_text(
        "- op: relu.out\n  kernels:\n    - arg_meta: null\n      kernel_name: chip::relu_out\n\n"
        "- op: reluu.out\n  kernels: []\n\n"
        "- op: neg.out\n  kernels: []\n"
    )
    imported = import_library(path, catalogue)
    assert [(each.name, each.location.line) for each in imported.unserved] == [("reluu.out", 6)]
    assert imported.text.partition("kernels:\n")[2].startswith(
        "  - op: relu.out\n    kernels:\n      - arg_meta: null\n        kernel_name: chip::relu_out\n\n"
        "  # - op: reluu.out\n  #   kernels: []\n\n"
        "  - op: neg.out\n    kernels: []\n\n"
        "# Not carried over: reluu.out (line 6)\n"
    )
    manifest = parse_document(imported.text, tmp_path / "kernels.yaml")
    library = read_document_as_library(manifest, catalogue)
    assert [each.name for each in library.executorch] == ["relu.out", "neg.out"]


def test_nothing_in_a_name_ends_a_comment(tmp_path: Path, catalogue: Catalogue) -> None:
    path = tmp_path / "chip.yaml"
    path.write_text(
        "backend: Chip\ncpp_namespace: chip\nsupported: [relu]\n"
        'tocpu: ["a\\0\\u2028\\x85\\nkernels: []"]\n'
    )
    assert_imported_is_the_same(path, catalogue)
    comments = import_library(path, catalogue).text.partition("\n\n")[2].splitlines()
    assert comments[0] == "# Not carried over: a    kernels: [] (line 4)"
    assert all(line.startswith("# ") for line in comments)


@pytest.mark.parametrize(
    "text",
    [
        "[{op: add.out, kernels: [{kernel_name: f}]},\n {op: mul.out}]\n",
        '- op: "add.\\\n  out"\n  kernels: []\n',
        "- op: |-\n    add.out\n  kernels: []\n",
        "- func: >2-\n    scale.out(Tensor self,\n    *, Tensor(a!) out) -> Tensor(a!)\n",
        "%YAML 1.1\n--- # first\n- op: add.out\n...\n",
        "- &one\n  op: add.out\n  kernels: []\n- <<: *one\n  op: mul.out\n",
        "- op: add.out\r\n  kernels: []\r\n",
        "- op: add.out\n  tags: 'two\n\n    lines'\n",
    ],
)
def test_unusual_yaml_survives_import(text: str, catalogue: Catalogue) -> None:
    document = parse_document(text, Path("functions.yaml"))
    library = read_document_as_library(document, catalogue)
    imported = parse_document(_manifest_of_executorch(document, library), Path("kernels.yaml"))
    assert unplaced(read_document_as_library(imported, catalogue)) == unplaced(library)


@st.composite
def executorch_files(draw: st.DrawFn, outs: list[tuple[str, tuple[str, ...]]]) -> str:
    """A functions.yaml whose operators have kernels for distinct dim orders, and one for the rest."""
    dtypes = st.sampled_from(["Float", "Double", "Half", "Long", "Bool", "BFloat16"])
    entries = []
    for name, arguments in draw(
        st.lists(st.sampled_from(outs), min_size=1, max_size=5, unique=True)
    ):
        types = draw(
            st.dictionaries(
                st.sampled_from(["T0", "T1", "on"]),
                st.lists(dtypes, min_size=1, unique=True),
                min_size=1,
            )
        )
        orders = {f"D{rank}": list(range(rank)) for rank in draw(st.sets(st.integers(1, 5)))}
        kernels: list[dict[str, Any]] = [
            {
                "arg_meta": {
                    argument: [draw(st.sampled_from(sorted(types))), order]
                    for argument in arguments
                },
                "kernel_name": draw(st.sampled_from(["a::f", "f", "a::b::c::f"])),
            }
            for order in orders
        ]
        if draw(st.booleans()):
            kernels.append({"arg_meta": None, "kernel_name": "torch::executor::f_out"})
        entry: dict[str, Any] = {"op": name, "kernels": kernels}
        if orders:
            entry |= {"type_alias": types, "dim_order_alias": orders}
        if draw(st.booleans()):
            entry["tags"] = draw(st.sampled_from(["core", ["core", "pointwise"]]))
        entries.append(entry)
    style = draw(st.sampled_from([None, True, False]))
    return str(yaml.safe_dump(entries, default_flow_style=style, sort_keys=draw(st.booleans())))


def test_any_executorch_file_is_the_same_library_imported(
    tmp_path: Path, catalogue: Catalogue
) -> None:
    outs = [
        (name, operator.tensor_arguments)
        for name, operator in catalogue.operators.items()
        if operator.variant is Variant.OUT and operator.tensor_arguments
    ]

    @fast
    @given(executorch_files(outs))
    def check(text: str) -> None:
        path = tmp_path / "functions.yaml"
        path.write_text(text)
        assert_imported_is_the_same(path, catalogue)

    check()
