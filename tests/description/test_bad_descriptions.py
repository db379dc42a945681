"""Every wrong description, with the exact text of its error: place, offending text, nearest word, remedy.

Each case is one file, named by the backend `chip` as its library unless it is the backend itself.  ``DIR``
stands for the folder, ``TORCH`` for torch's version, ``KEYS`` for the keys of the struct that is named.
"""

# ruff: noqa: E501
from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from opsmith.description import backend, read_backend
from opsmith.errors import OpsmithError
from opsmith.plan import resolve
from opsmith.schema import Catalogue


class Case(NamedTuple):
    """A file that cannot be meant, and what is said of it."""

    name: str
    file: str
    text: str
    kind: str
    error: str
    struct: type[msgspec.Struct] | None = None


_EXECUTORCH = "library: chiplib\nabi: executorch\nkernels:\n  - "
_EXECUTORCH_ENTRIES = [
    (
        "dtypes of no kernel",
        "{op: relu.out, dtypes: [Float]}",
        "SyntaxInvalid",
        "DIR/kernels.yaml:4:20: `dtypes` describes the kernel of this entry, and none is named\n"
        "  remedy: add `kernel_name: …` here, or remove `dtypes`",
    ),
    (
        "one kernel and a list",
        "{op: relu.out, kernel_name: f, kernels: [{kernel_name: g}]}",
        "SyntaxInvalid",
        "DIR/kernels.yaml:4:20: an entry names one kernel (`kernel_name`) or lists them (`kernels`)\n"
        "  remedy: move it to `kernels`, with `arg_meta: null`",
    ),
    (
        "kernel of no dtype",
        "{op: relu.out, kernel_name: f, dtypes: {self: []}}",
        "KernelRejected",
        "DIR/kernels.yaml:4:36: this kernel for `relu.out` takes nothing: a list of dtypes is empty\n"
        "  remedy: name the dtypes that it takes, or leave `dtypes` out where it takes all",
    ),
    (
        "dtypes of an unknown argument",
        "{op: relu.out, kernel_name: f, dtypes: {sef: [Float]}}",
        "KernelRejected",
        "DIR/kernels.yaml:4:45: `relu.out` has no Tensor argument `sef` (did you mean self?)\n"
        "  remedy: its Tensor arguments are self, out",
    ),
    (
        "unknown dim order",
        "{op: relu.out, kernel_name: f, dim_order: some}",
        "SyntaxInvalid",
        "DIR/kernels.yaml:4:36: `kernels.0.dim_order` cannot be `some`\n"
        "  remedy: it takes any or contiguous",
    ),
    (
        "meta of a structured operator",
        "{op: add.out, kernel_name: f, meta: {same_as: self}}",
        "KernelRejected",
        "DIR/kernels.yaml:4:35: `add.out` is structured: PyTorch's meta function, which is compiled, checks and "
        "shapes its variants\n"
        "  remedy: remove `meta`",
    ),
    (
        "meta of PyTorch's operator like an argument that it has not",
        "{op: relu.out, kernel_name: f, meta: {same_as: sef}}",
        "KernelRejected",
        "DIR/kernels.yaml:4:36: `relu` has no argument `sef` (did you mean self?)\n"
        "  remedy: its schema is relu(Tensor self) -> Tensor",
    ),
    (
        "meta of PyTorch's operator like too few arguments",
        "{op: native_layer_norm.out, kernel_name: f, meta: {same_as: input}}",
        "KernelRejected",
        "DIR/kernels.yaml:4:49: `same_as` names 1, but `native_layer_norm` returns 3: "
        "`native_layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, float eps) -> "
        "(Tensor, Tensor, Tensor)`\n"
        "  remedy: name one argument for each result, e.g. `same_as: [self, self, self]`, or a C++ function",
    ),
]

CASES = [
    # ---- backend.yaml
    Case(
        "backend empty",
        "backend.yaml",
        "",
        "SyntaxInvalid",
        ("DIR/backend.yaml: the key `backend` is missing\n  remedy: add `backend: …` here"),
    ),
    Case(
        "backend is a list",
        "backend.yaml",
        "- backend: chip\n",
        "SyntaxInvalid",
        (
            "DIR/backend.yaml:1:1: `the file` has the wrong type: expected `mapping`, got `list`\n"
            "  remedy: see docs/describe/description.md for what each key takes"
        ),
    ),
    Case(
        "backend is text",
        "backend.yaml",
        "chip\n",
        "SyntaxInvalid",
        (
            "DIR/backend.yaml:1:1: `the file` has the wrong type: expected `mapping`, got `string`\n"
            "  remedy: see docs/describe/description.md for what each key takes"
        ),
    ),
    Case(
        "backend without a driver",
        "backend.yaml",
        "backend: chip\n",
        "SyntaxInvalid",
        ("DIR/backend.yaml:1:1: the key `driver` is missing\n  remedy: add `driver: …` here"),
    ),
    Case(
        "backend with a misspelt key",
        "backend.yaml",
        ("backend: chip\ndriver: sim\nlibary: [example_kernels]\n"),
        "KeyUnknown",
        (
            "DIR/backend.yaml:3:1: unknown key `libary` (did you mean libraries?)\n"
            "  remedy: the keys here are KEYS"
        ),
        backend._Backend,
    ),
    Case(
        "device name in capitals",
        "backend.yaml",
        ("backend: MyChip\ndriver: sim\n"),
        "SyntaxInvalid",
        (
            "DIR/backend.yaml:1:1: `MyChip` cannot name a device\n"
            "  remedy: use lower-case letters, digits and _, and none of torch's own device names"
        ),
    ),
    Case(
        "device name that YAML reads as a boolean",
        "backend.yaml",
        ("backend: on\ndriver: sim\n"),
        "SyntaxInvalid",
        (
            "DIR/backend.yaml:1:1: `backend` has the wrong type: expected `string`, got `bool`\n"
            "  remedy: YAML does not read `on` as text; put it in quotes: 'on'"
        ),
    ),
    Case(
        "a key that YAML reads as a boolean",
        "backend.yaml",
        ("backend: chip\ndriver: sim\noff: 1\n"),
        "SyntaxInvalid",
        (
            "DIR/backend.yaml:3:1: YAML reads the key `off` as a boolean, not as text\n"
            "  remedy: put it in quotes: 'off'"
        ),
    ),
    Case(
        "unknown shipped driver",
        "backend.yaml",
        ("backend: chip\ndriver: simm\n"),
        "BackendUnknown",
        (
            "DIR/backend.yaml:2:1: no driver called `simm` comes with opsmith (did you mean sim?)\n"
            "  remedy: name a shipped one (sim), or write `driver: {sources: [mychip.cpp]}`"
        ),
    ),
    Case(
        "two kinds of driver",
        "backend.yaml",
        ("backend: chip\ndriver: {name: sim, sources: [a.c]}\n"),
        "SyntaxInvalid",
        (
            "DIR/backend.yaml:2:1: a driver is a shipped one, a built library or sources to build, and exactly one of them\n"
            "  remedy: write `driver: sim`, `driver: {library: path/to/libmychip.so}` or `driver: {sources: [mychip.cpp]}`"
        ),
    ),
    Case(
        "driver key misspelt",
        "backend.yaml",
        ("backend: chip\ndriver: {source: [a.c]}\n"),
        "KeyUnknown",
        (
            "DIR/backend.yaml:2:10: unknown key `source` (did you mean sources?)\n"
            "  remedy: the keys here are KEYS"
        ),
        backend._Driver,
    ),
    Case(
        "driver source is a folder",
        "backend.yaml",
        ("backend: chip\ndriver: {sources: [.]}\n"),
        "FileMissing",
        (
            "DIR/backend.yaml:2:20: no file matches `.` in DIR\n"
            "  remedy: paths are relative to the YAML file that names them"
        ),
    ),
    Case(
        "driver source with a NUL",
        "backend.yaml",
        ('backend: chip\ndriver: {sources: ["a\\0.c"]}\n'),
        "FileMissing",
        (
            "DIR/backend.yaml:2:20: no file matches `a\\x00.c` in DIR\n"
            "  remedy: paths are relative to the YAML file that names them"
        ),
    ),
    Case(
        "driver source with a wrong glob",
        "backend.yaml",
        ("backend: chip\ndriver: {sources: ['**.c']}\n"),
        "FileMissing",
        (
            "DIR/backend.yaml:2:20: no file matches `**.c` in DIR\n"
            "  remedy: paths are relative to the YAML file that names them"
        ),
    ),
    Case(
        "missing include directory",
        "backend.yaml",
        ("backend: chip\ndriver: {sources: [driver.c], include_dirs: [inc]}\n"),
        "FileMissing",
        (
            "DIR/backend.yaml:2:46: there is no directory DIR/inc\n"
            "  remedy: paths are relative to the YAML file that names them"
        ),
    ),
    Case(
        "host window neither on nor off",
        "backend.yaml",
        ("backend: chip\ndriver: {name: sim, host_window: maybe}\n"),
        "SyntaxInvalid",
        (
            "DIR/backend.yaml:2:21: `driver.host_window` has the wrong type: expected `bool`, got `string`\n"
            "  remedy: see docs/describe/description.md for what each key takes"
        ),
    ),
    Case(
        "unknown fallback",
        "backend.yaml",
        ("backend: chip\ndriver: sim\nfallback: gpu\n"),
        "SyntaxInvalid",
        (
            "DIR/backend.yaml:3:1: `fallback` cannot be `gpu` (did you mean cpu?)\n"
            "  remedy: it takes cpu or none"
        ),
    ),
    Case(
        "fallback key misspelt",
        "backend.yaml",
        ("backend: chip\ndriver: sim\nfallback: {dney: [topk]}\n"),
        "KeyUnknown",
        (
            "DIR/backend.yaml:3:12: unknown key `dney` (did you mean deny?)\n"
            "  remedy: the keys here are KEYS"
        ),
        backend._Fallback,
    ),
    Case(
        "fallback default misspelt",
        "backend.yaml",
        ("backend: chip\ndriver: sim\nfallback: {default: nothing}\n"),
        "SyntaxInvalid",
        (
            "DIR/backend.yaml:3:12: `fallback.default` cannot be `nothing`\n"
            "  remedy: it takes cpu or none"
        ),
    ),
    Case(
        "fallback denies an unknown operator",
        "backend.yaml",
        ("backend: chip\ndriver: sim\nfallback:\n  deny: [topkk]\n"),
        "OperatorUnknown",
        (
            "DIR/backend.yaml:4:10: torch TORCH has no operator `topkk` (did you mean topk?)\n"
            "  remedy: name the overload too; `opsmith plan` lists every operator"
        ),
    ),
    Case(
        "fallback allows what it forbids",
        "backend.yaml",
        ("backend: chip\ndriver: sim\nfallback: {default: none, only: [topk]}\n"),
        "SyntaxInvalid",
        (
            "DIR/backend.yaml:3:27: `only` lists what may fall back, but `default: none` allows nothing\n"
            "  remedy: remove `default: none`; `only` already refuses all others"
        ),
    ),
    Case(
        "libraries not a list",
        "backend.yaml",
        ("backend: chip\ndriver: sim\nlibraries: example_kernels\n"),
        "SyntaxInvalid",
        (
            "DIR/backend.yaml:3:1: `libraries` has the wrong type: expected `list`, got `string`\n"
            "  remedy: see docs/describe/description.md for what each key takes"
        ),
    ),
    Case(
        "library listed twice",
        "backend.yaml",
        ("backend: chip\ndriver: sim\nlibraries: [example_kernels, example_kernels]\n"),
        "SyntaxInvalid",
        (
            "DIR/backend.yaml:3:30: two libraries are called `example_kernels`: opsmith/kernels/example_kernels/kernels.yaml and opsmith/kernels/example_kernels/kernels.yaml\n"
            "  remedy: rename one in its manifest, or list it once"
        ),
    ),
    Case(
        "library entry without a file",
        "backend.yaml",
        ("backend: chip\ndriver: sim\nlibraries: [{name: x}]\n"),
        "SyntaxInvalid",
        ("DIR/backend.yaml:3:13: the key `file` is missing\n  remedy: add `file: …` here"),
    ),
    Case(
        "library entry key misspelt",
        "backend.yaml",
        ("backend: chip\ndriver: sim\nlibraries: [{file: example_kernels, source: [a.cpp]}]\n"),
        "KeyUnknown",
        (
            "DIR/backend.yaml:3:37: unknown key `source` (did you mean sources?)\n"
            "  remedy: the keys here are file, name, sources, include_dirs, execution"
        ),
    ),
    Case(
        "library entry with a bad name",
        "backend.yaml",
        ("backend: chip\ndriver: sim\nlibraries: [{file: example_kernels, name: 'two words'}]\n"),
        "SyntaxInvalid",
        (
            "DIR/backend.yaml:3:37: `two words` cannot name a library\n"
            "  remedy: use letters, digits, _, - and dots, and begin with a letter"
        ),
    ),
    Case(
        "library that is a backend",
        "backend.yaml",
        ("backend: chip\ndriver: sim\nlibraries: [backend.yaml]\n"),
        "FormatUnknown",
        (
            "DIR/backend.yaml:1:1: this is a backend of opsmith, and a kernel library is wanted\n"
            "  remedy: name the manifests that it lists under `libraries`"
        ),
    ),
    Case(
        "library that is a folder without a manifest",
        "backend.yaml",
        ("backend: chip\ndriver: sim\nlibraries: [.]\n"),
        "FileMissing",
        (
            "DIR/backend.yaml:3:13: there is no kernel library `.`\n"
            "  remedy: name a shipped library (example_kernels, optimized, portable, quantized) or the path of a manifest, relative to this file"
        ),
    ),
    Case(
        "a kernel library instead of a backend",
        "backend.yaml",
        ("library: chiplib\nkernels: []\n"),
        "FormatUnknown",
        (
            "DIR/backend.yaml:1:1: this is a manifest of opsmith, and a backend's description is wanted\n"
            "  remedy: name it in a backend.yaml: `libraries: [backend.yaml]`"
        ),
    ),
    Case(
        "torchgen's YAML instead of a backend",
        "backend.yaml",
        ("backend: Chip\ncpp_namespace: chip\nsupported: [relu]\n"),
        "FormatUnknown",
        (
            "DIR/backend.yaml:1:1: this is a backend YAML of torchgen, and a backend's description is wanted\n"
            "  remedy: name it in a backend.yaml: `libraries: [backend.yaml]`"
        ),
    ),
    # ---- YAML itself
    Case(
        "a tab for indentation",
        "kernels.yaml",
        ("library: chiplib\nkernels:\n\t- op: relu\n"),
        "SyntaxInvalid",
        (
            "DIR/kernels.yaml:3:1: this is not YAML: found character that cannot start any token\n"
            "  remedy: check the indentation and quotes around this place"
        ),
    ),
    Case(
        "a quote left open",
        "kernels.yaml",
        ("library: chiplib\nkernels: [{op: 'relu, kernel_name: f}]\n"),
        "SyntaxInvalid",
        (
            "DIR/kernels.yaml:3:1: this is not YAML: found unexpected end of stream\n"
            "  remedy: check the indentation and quotes around this place"
        ),
    ),
    Case(
        "a NUL byte",
        "kernels.yaml",
        ("library: chiplib\nkernels: []\x00\n"),
        "SyntaxInvalid",
        (
            "DIR/kernels.yaml:2:12: the character U+0000 cannot stand in YAML\n"
            '  remedy: remove it; in a text in double quotes it is written as an escape such as "\\x07"'
        ),
    ),
    Case(
        "an unknown anchor",
        "kernels.yaml",
        ("library: chiplib\nkernels: *all\n"),
        "SyntaxInvalid",
        (
            "DIR/kernels.yaml:2:10: this is not YAML: found undefined alias\n"
            "  remedy: check the indentation and quotes around this place"
        ),
    ),
    Case(
        "a value in itself",
        "kernels.yaml",
        ("library: chiplib\nkernels: &all [*all]\n"),
        "SyntaxInvalid",
        (
            "DIR/kernels.yaml:2:10: this value contains itself\n"
            "  remedy: remove the alias (`*…`) inside it that names it"
        ),
    ),
    Case(
        "a tag",
        "kernels.yaml",
        ("library: chiplib\nkernels: !!python/list []\n"),
        "SyntaxInvalid",
        (
            "DIR/kernels.yaml:2:10: the tag `!!python/list` cannot stand before this value\n"
            "  remedy: remove the tag"
        ),
    ),
    Case(
        "a number that is none",
        "kernels.yaml",
        ("library: !!int lib\nkernels: []\n"),
        "SyntaxInvalid",
        (
            "DIR/kernels.yaml:1:10: the tag `!!int` cannot stand before this value\n"
            "  remedy: remove the tag"
        ),
    ),
    Case(
        "a list as a key",
        "kernels.yaml",
        ("library: chiplib\nkernels: []\n? [abi]\n: aten\n"),
        "SyntaxInvalid",
        (
            "DIR/kernels.yaml:3:3: a list or a mapping cannot be a key here\n"
            "  remedy: write a word before the colon"
        ),
    ),
    Case(
        "two documents",
        "kernels.yaml",
        ("library: chiplib\nkernels: []\n---\nlibrary: other\n"),
        "SyntaxInvalid",
        (
            "DIR/kernels.yaml:3:1: this is not YAML: but found another document\n"
            "  remedy: check the indentation and quotes around this place"
        ),
    ),
    Case(
        "merging a list",
        "kernels.yaml",
        ("library: chiplib\nkernels: []\n<<: [abi]\n"),
        "SyntaxInvalid",
        (
            "DIR/kernels.yaml:3:6: `<<` merges a mapping, or a list of them, and this is none\n"
            "  remedy: name the anchor of a mapping: `<<: *name`"
        ),
    ),
    Case(
        "nested too deeply",
        "kernels.yaml",
        (
            "library: chiplib\n"
            "kernels: [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]\n"
        ),
        "SyntaxInvalid",
        (
            "DIR/kernels.yaml:2:73: more than 64 lists and mappings stand in each other here\n"
            "  remedy: no description is that deep; check the brackets and the indentation"
        ),
    ),
    Case(
        "not UTF-8",
        "kernels.yaml",
        "library: chipÿ\n",
        "FileMissing",
        (
            "DIR/kernels.yaml cannot be read: 'utf-8' codec can't decode byte 0xff in position 13: invalid start byte\n"
            "  remedy: check its type, permissions and encoding (UTF-8)"
        ),
    ),
    # ---- Manifests
    Case(
        "manifest with no known key",
        "kernels.yaml",
        ("kernel: []\nlib: x\n"),
        "FormatUnknown",
        (
            "DIR/kernels.yaml:1:1: this is no description of kernels in a format that opsmith reads\n"
            "  remedy: write a manifest of opsmith (`library`, `kernels`), a backend YAML of torchgen (`backend`, `cpp_namespace`, `supported`), or ExecuTorch's functions.yaml or custom_ops.yaml (a list of entries with `op` or `func`, and `kernels`)"
        ),
    ),
    Case(
        "library without kernels",
        "kernels.yaml",
        "library: chiplib\n",
        "SyntaxInvalid",
        ("DIR/kernels.yaml:1:1: the key `kernels` is missing\n  remedy: add `kernels: …` here"),
    ),
    Case(
        "library name with a line break",
        "kernels.yaml",
        ('library: "a\\nb"\nkernels: []\n'),
        "SyntaxInvalid",
        (
            "DIR/kernels.yaml:1:1: `a\n"
            "b` cannot name a library\n"
            "  remedy: use letters, digits, _, - and dots, and begin with a letter"
        ),
    ),
    Case(
        "unknown ABI",
        "kernels.yaml",
        ("library: chiplib\nabi: atten\nkernels: []\n"),
        "SyntaxInvalid",
        (
            "DIR/kernels.yaml:2:1: `abi` cannot be `atten` (did you mean aten?)\n"
            "  remedy: it takes aten or executorch"
        ),
    ),
    Case(
        "unknown execution",
        "kernels.yaml",
        ("library: chiplib\nexecution: hots\nkernels: []\n"),
        "SyntaxInvalid",
        (
            "DIR/kernels.yaml:2:1: `execution` cannot be `hots` (did you mean host?)\n"
            "  remedy: it takes device or host"
        ),
    ),
    Case(
        "unknown preference",
        "kernels.yaml",
        ("library: chiplib\nderive: functionl\nkernels: []\n"),
        "SyntaxInvalid",
        (
            "DIR/kernels.yaml:2:1: `derive` cannot be `functionl` (did you mean functional?)\n"
            "  remedy: it takes cheapest or functional or nothing or out"
        ),
    ),
    Case(
        "class name that is none",
        "kernels.yaml",
        ("library: chiplib\nclass_name: chip..Ops\nkernels: []\n"),
        "SyntaxInvalid",
        (
            "DIR/kernels.yaml:2:1: `chip..Ops` cannot be a name in C++\n"
            "  remedy: write the class with its namespace, like at_npu::native::NPUNativeFunctions"
        ),
    ),
    Case(
        "operator that YAML reads as a boolean",
        "kernels.yaml",
        ("library: chiplib\nkernels: [{op: no, kernel_name: f}]\n"),
        "SyntaxInvalid",
        (
            "DIR/kernels.yaml:2:12: `kernels.0.op` has the wrong type: expected `string`, got `bool`\n"
            "  remedy: YAML does not read `no` as text; put it in quotes: 'no'"
        ),
    ),
    Case(
        "kernel name that YAML reads as a boolean",
        "kernels.yaml",
        ("library: chiplib\nkernels: [{op: relu, kernel_name: on}]\n"),
        "SyntaxInvalid",
        (
            "DIR/kernels.yaml:2:22: `kernels.0.kernel_name` has the wrong type: expected `string`, got `bool`\n"
            "  remedy: YAML does not read `on` as text; put it in quotes: 'on'"
        ),
    ),
    Case(
        "kernel name that is a number",
        "kernels.yaml",
        ("library: chiplib\nkernels: [{op: relu, kernel_name: 7}]\n"),
        "SyntaxInvalid",
        (
            "DIR/kernels.yaml:2:22: `kernels.0.kernel_name` has the wrong type: expected `string`, got `int`\n"
            "  remedy: YAML does not read `7` as text; put it in quotes: '7'"
        ),
    ),
    Case(
        "kernel name that is no symbol",
        "kernels.yaml",
        ("library: chiplib\nkernels: [{op: relu, kernel_name: chip.relu}]\n"),
        "SyntaxInvalid",
        (
            "DIR/kernels.yaml:2:22: `chip.relu` is not a C++ function's qualified name\n"
            "  remedy: write it like my_namespace::my_kernel"
        ),
    ),
    Case(
        "kernel name with an argument list",
        "kernels.yaml",
        ("library: chiplib\nkernels: [{op: relu, kernel_name: 'chip::relu(x)'}]\n"),
        "SyntaxInvalid",
        (
            "DIR/kernels.yaml:2:22: `chip::relu(x)` is not a C++ function's qualified name\n"
            "  remedy: write it like my_namespace::my_kernel"
        ),
    ),
    Case(
        "kernel name in other letters",
        "kernels.yaml",
        ("library: chiplib\nkernels: [{op: relu, kernel_name: chip::ρελυ}]\n"),
        "SyntaxInvalid",
        (
            "DIR/kernels.yaml:2:22: `chip::ρελυ` is not a C++ function's qualified name\n"
            "  remedy: write it like my_namespace::my_kernel"
        ),
    ),
    Case(
        "a kernel that is a word",
        "kernels.yaml",
        ("library: chiplib\nkernels: [relu]\n"),
        "SyntaxInvalid",
        (
            "DIR/kernels.yaml:2:11: `kernels.0` has the wrong type: expected `mapping`, got `string`\n"
            "  remedy: see docs/describe/description.md for what each key takes"
        ),
    ),
    Case(
        "operator with a wrong overload",
        "kernels.yaml",
        ("library: chiplib\nkernels: [{op: mul.Tensors, kernel_name: f}]\n"),
        "OperatorUnknown",
        (
            "DIR/kernels.yaml:2:12: torch TORCH has no operator `mul.Tensors` (did you mean mul.Tensor, mul.out, mul.Scalar?)\n"
            "  remedy: name the overload too; `opsmith plan` lists every operator"
        ),
    ),
    Case(
        "structured without being so in PyTorch",
        "kernels.yaml",
        (
            "library: chiplib\n"
            "kernels:\n"
            "  - {op: native_layer_norm.out, kernel_name: f, structured: true}\n"
        ),
        "KernelRejected",
        (
            "DIR/kernels.yaml:3:6: `native_layer_norm.out` is not structured in PyTorch: there is no meta function to write the variants around\n"
            "  remedy: remove `structured: true` and give the kernel the operator's own signature; the other variants are derived from it"
        ),
    ),
    Case(
        "structured by the functional's name",
        "kernels.yaml",
        ("library: chiplib\nkernels: [{op: add.Tensor, kernel_name: f, structured: true}]\n"),
        "KernelRejected",
        (
            "DIR/kernels.yaml:2:12: a structured kernel is named by its out operator, not `add.Tensor`\n"
            "  remedy: write `op: add.out`"
        ),
    ),
    Case(
        "kernel for a composite operator",
        "kernels.yaml",
        ("library: chiplib\nkernels: [{op: linear, kernel_name: f}]\n"),
        "KernelRejected",
        (
            "DIR/kernels.yaml:2:12: `linear` is CompositeImplicitAutograd: a kernel for the device would take the place of the decomposition that makes it differentiable\n"
            "  remedy: give kernels for the operators it decomposes into, or say how it is differentiated: add `backward: …` or `autograd: …` to this kernel"
        ),
    ),
    Case(
        "dtypes of an argument that is none",
        "kernels.yaml",
        ("library: chiplib\nkernels:\n  - {op: relu, kernel_name: f, dtypes: {slef: [Float]}}\n"),
        "KernelRejected",
        (
            "DIR/kernels.yaml:3:6: `relu` has no Tensor argument `slef` (did you mean self?)\n"
            "  remedy: its schema is relu(Tensor self) -> Tensor"
        ),
    ),
    Case(
        "dtypes not a list",
        "kernels.yaml",
        ("library: chiplib\nkernels: [{op: relu, kernel_name: f, dtypes: Float}]\n"),
        "SyntaxInvalid",
        (
            "DIR/kernels.yaml:2:38: `kernels.0.dtypes` has the wrong type: expected `mapping | list`, got `string`\n"
            "  remedy: see docs/describe/description.md for what each key takes"
        ),
    ),
    Case(
        "dtype in torch's spelling",
        "kernels.yaml",
        ("library: chiplib\nkernels: [{op: relu, kernel_name: f, dtypes: [float32]}]\n"),
        "KernelRejected",
        (
            "DIR/kernels.yaml:2:38: unknown dtype `float32` (did you mean Float?)\n"
            "  remedy: use a c10 ScalarType name such as Float or Long, or a name from type_alias"
        ),
    ),
    Case(
        "alias of an unknown dtype",
        "kernels.yaml",
        (
            "library: chiplib\n"
            "type_alias: {Real: [Floot]}\n"
            "kernels: [{op: relu, kernel_name: f, dtypes: [Real]}]\n"
        ),
        "KernelRejected",
        (
            "DIR/kernels.yaml:3:38: unknown dtype `Floot` (did you mean Float, BFloat16?)\n"
            "  remedy: use a c10 ScalarType name such as Float or Long, or a name from type_alias"
        ),
    ),
    Case(
        "alias not a list",
        "kernels.yaml",
        ("library: chiplib\ntype_alias: {Real: Float}\nkernels: []\n"),
        "SyntaxInvalid",
        (
            "DIR/kernels.yaml:2:14: `type_alias.Real` has the wrong type: expected `list`, got `string`\n"
            "  remedy: see docs/describe/description.md for what each key takes"
        ),
    ),
    Case(
        "no dtypes at all",
        "kernels.yaml",
        ("library: chiplib\nkernels: [{op: relu, kernel_name: f, dtypes: []}]\n"),
        "KernelRejected",
        (
            "DIR/kernels.yaml:2:38: this kernel for `relu` takes nothing: a list of dtypes is empty\n"
            "  remedy: name the dtypes that it takes, or leave `dtypes` out where it takes all"
        ),
    ),
    Case(
        "manifest source missing",
        "kernels.yaml",
        ("library: chiplib\nsources: ['*.cu']\nkernels: []\n"),
        "FileMissing",
        (
            "DIR/kernels.yaml:2:11: no file matches `*.cu` in DIR\n"
            "  remedy: paths are relative to the YAML file that names them"
        ),
    ),
    # ---- torchgen's backend YAML
    Case(
        "torchgen without cpp_namespace",
        "chip.yaml",
        ("backend: Chip\nsupported: [relu]\n"),
        "SyntaxInvalid",
        (
            "DIR/chip.yaml:1:1: the key `cpp_namespace` is missing\n"
            "  remedy: add `cpp_namespace: …` here"
        ),
    ),
    Case(
        "torchgen without backend",
        "chip.yaml",
        ("cpp_namespace: chip\nsupported: [relu]\n"),
        "SyntaxInvalid",
        ("DIR/chip.yaml:1:1: the key `backend` is missing\n  remedy: add `backend: …` here"),
    ),
    Case(
        "torchgen key misspelt",
        "chip.yaml",
        ("backend: Chip\ncpp_namespace: chip\nsuported: [relu]\n"),
        "KeyUnknown",
        (
            "DIR/chip.yaml:3:1: unknown key `suported` (did you mean supported?)\n"
            "  remedy: the keys here are backend, cpp_namespace, class_name, extra_headers, supported, autograd, full_codegen, non_native, ir_gen, symint, use_out_as_primary, device_guard, custom, custom_autograd, tocpu"
        ),
    ),
    Case(
        "torchgen namespace that is none",
        "chip.yaml",
        ("backend: Chip\ncpp_namespace: chip.ops\nsupported: [relu]\n"),
        "SyntaxInvalid",
        (
            "DIR/chip.yaml:2:1: `chip.ops` cannot be a name in C++\n"
            "  remedy: write the kernels' namespace like at_npu::native"
        ),
    ),
    Case(
        "torchgen class with its namespace",
        "chip.yaml",
        ("backend: Chip\ncpp_namespace: chip\nclass_name: chip::Ops\nsupported: [relu]\n"),
        "SyntaxInvalid",
        (
            "DIR/chip.yaml:3:1: `chip::Ops` cannot be a name in C++\n"
            "  remedy: write the class of the kernels like NPUNativeFunctions, its namespace in `cpp_namespace`"
        ),
    ),
    Case(
        "torchgen backend that is none",
        "chip.yaml",
        ("backend: My Chip\ncpp_namespace: chip\nsupported: []\n"),
        "SyntaxInvalid",
        (
            "DIR/chip.yaml:1:1: `My Chip` cannot be a name in C++\n"
            "  remedy: write the dispatch key's name like PrivateUse1 or NPU"
        ),
    ),
    Case(
        "torchgen unknown operators",
        "chip.yaml",
        (
            "backend: Chip\n"
            "cpp_namespace: chip\n"
            "supported:\n"
            "  - relu\n"
            "  - addd.Tensor\n"
            "  - relu7\n"
            "autograd: [mxpool2d]\n"
        ),
        "OperatorUnknown",
        (
            "DIR/chip.yaml:5:5: torch TORCH has no operator `addd.Tensor` (did you mean add.Tensor, add_.Tensor, div.Tensor?); nor has it `mxpool2d`, `relu7`\n"
            "  remedy: a file written for another torch names operators that this one lost or renamed: remove them, or write this torch's names"
        ),
    ),
    Case(
        "torchgen supported not a list",
        "chip.yaml",
        ("backend: Chip\ncpp_namespace: chip\nsupported: relu\n"),
        "SyntaxInvalid",
        (
            "DIR/chip.yaml:3:1: `supported` has the wrong type: expected `list | null`, got `string`\n"
            "  remedy: see docs/describe/description.md for what each key takes"
        ),
    ),
    Case(
        "torchgen operator that YAML reads as a boolean",
        "chip.yaml",
        ("backend: Chip\ncpp_namespace: chip\nsupported: [no]\n"),
        "SyntaxInvalid",
        (
            "DIR/chip.yaml:3:13: `supported.0` has the wrong type: expected `string | mapping`, got `bool`\n"
            "  remedy: YAML does not read `no` as text; put it in quotes: 'no'"
        ),
    ),
    Case(
        "torchgen options beside the operator",
        "chip.yaml",
        ("backend: Chip\ncpp_namespace: chip\nsupported:\n  - add.out:\n    structured: true\n"),
        "SyntaxInvalid",
        (
            "DIR/chip.yaml:4:5: an entry is one operator, and this mapping has `add.out`, `structured`\n"
            "  remedy: indent the options below the operator: `- add.out: {structured: true}`"
        ),
    ),
    Case(
        "torchgen option misspelt",
        "chip.yaml",
        ("backend: Chip\ncpp_namespace: chip\nsupported:\n  - add.out: {structued: true}\n"),
        "KeyUnknown",
        (
            "DIR/chip.yaml:4:15: unknown key `structued` (did you mean structured, ext_structured_meta?)\n"
            "  remedy: the keys here are structured, ext_structured_meta, define_meta, device_guard, wrap_impl, op_api, acl_op, impl_ns, internal_format_opapi, sparse, device_check, exposed, bscpp_op"
        ),
    ),
    Case(
        "torchgen option in quotes",
        "chip.yaml",
        ("backend: Chip\ncpp_namespace: chip\nsupported:\n  - add.out: {structured: 'false'}\n"),
        "SyntaxInvalid",
        (
            "DIR/chip.yaml:4:15: `supported.0.add.out.structured` has the wrong type: expected `bool`, got `string`\n"
            "  remedy: see docs/describe/description.md for what each key takes"
        ),
    ),
    Case(
        "torchgen own meta without structured",
        "chip.yaml",
        (
            "backend: Chip\n"
            "cpp_namespace: chip\n"
            "supported:\n"
            "  - add.out: {ext_structured_meta: true}\n"
        ),
        "SyntaxInvalid",
        (
            "DIR/chip.yaml:4:5: `add.out` has a meta function of its own but is not structured\n"
            "  remedy: add `structured: true`, or remove `ext_structured_meta`"
        ),
    ),
    Case(
        "torchgen structured by the functional's name",
        "chip.yaml",
        ("backend: Chip\ncpp_namespace: chip\nsupported:\n  - add.Tensor: {structured: true}\n"),
        "KernelRejected",
        (
            "DIR/chip.yaml:4:5: a structured kernel is named by its out operator, not `add.Tensor`\n"
            "  remedy: write `op: add.out`"
        ),
    ),
    Case(
        "torchgen operator in both lists",
        "chip.yaml",
        ("backend: Chip\ncpp_namespace: chip\nsupported: [relu]\nautograd: [relu]\n"),
        "KernelDuplicate",
        (
            "DIR/chip.yaml:4:12: `relu` is both under `supported` (DIR/chip.yaml:3:13) and under `autograd`, and both name the function `chip::ChipNativeFunctions::relu`\n"
            "  remedy: keep it under `autograd` if the function calls a torch::autograd::Function, and under `supported` otherwise"
        ),
    ),
    Case(
        "torchgen structured autograd",
        "chip.yaml",
        (
            "backend: Chip\n"
            "cpp_namespace: chip\n"
            "autograd:\n"
            "  - add.out: {structured: true}\n"
            "supported: []\n"
        ),
        "SyntaxInvalid",
        (
            "DIR/chip.yaml:4:5: `add.out` is under `autograd`, where no kernel is structured\n"
            "  remedy: remove `structured: true`, or move it to `supported`"
        ),
    ),
    Case(
        "torchgen device_guard in quotes",
        "chip.yaml",
        ("backend: Chip\ncpp_namespace: chip\ndevice_guard: 'yes'\nsupported: []\n"),
        "SyntaxInvalid",
        (
            "DIR/chip.yaml:3:1: `device_guard` has the wrong type: expected `bool`, got `string`\n"
            "  remedy: see docs/describe/description.md for what each key takes"
        ),
    ),
    Case(
        "torchgen use_out_as_primary a word",
        "chip.yaml",
        ("backend: Chip\ncpp_namespace: chip\nuse_out_as_primary: out\nsupported: []\n"),
        "SyntaxInvalid",
        (
            "DIR/chip.yaml:3:1: `use_out_as_primary` has the wrong type: expected `bool | null`, got `string`\n"
            "  remedy: see docs/describe/description.md for what each key takes"
        ),
    ),
    Case(
        "torchgen unknown symint",
        "chip.yaml",
        ("backend: Chip\ncpp_namespace: chip\nsupported: [relu]\nsymint: [emptyy]\n"),
        "OperatorUnknown",
        (
            "DIR/chip.yaml:4:10: torch TORCH has no operator `emptyy` (did you mean new_empty, empty.out, empty_like?)\n"
            "  remedy: a file written for another torch names operators that this one lost or renamed: remove them, or write this torch's names"
        ),
    ),
    Case(
        "torchgen non_native without func",
        "chip.yaml",
        ("backend: Chip\ncpp_namespace: chip\nsupported: []\nnon_native: [{opkind: x}]\n"),
        "SyntaxInvalid",
        ("DIR/chip.yaml:4:14: the key `func` is missing\n  remedy: add `func: …` here"),
    ),
    Case(
        "torchgen non_native as words",
        "chip.yaml",
        ("backend: Chip\ncpp_namespace: chip\nsupported: []\nnon_native: [scalar]\n"),
        "SyntaxInvalid",
        (
            "DIR/chip.yaml:4:14: `non_native.0` has the wrong type: expected `mapping`, got `string`\n"
            "  remedy: see docs/describe/description.md for what each key takes"
        ),
    ),
    Case(
        "torchgen item with func and op",
        "chip.yaml",
        ("backend: Chip\ncpp_namespace: chip\nsupported:\n  - {func: relu, op: relu}\n"),
        "SyntaxInvalid",
        (
            "DIR/chip.yaml:4:5: an entry names its operator with `func` or with `op`, and exactly one of them\n"
            "  remedy: write `func: add.out`"
        ),
    ),
    Case(
        "torch_npu device_check misspelt",
        "chip.yaml",
        (
            "backend: Chip\n"
            "cpp_namespace: chip\n"
            "supported:\n"
            "  - {func: relu, device_check: NoChek}\n"
        ),
        "SyntaxInvalid",
        (
            "DIR/chip.yaml:4:18: `supported.0.device_check` cannot be `NoChek` (did you mean NoCheck?)\n"
            "  remedy: it takes ExactSame or NoCheck"
        ),
    ),
    Case(
        "torch_npu wrap_impl that is none",
        "chip.yaml",
        ("backend: Chip\ncpp_namespace: chip\nsupported:\n  - {func: relu, wrap_impl: 'a b'}\n"),
        "SyntaxInvalid",
        (
            "DIR/chip.yaml:4:6: `op_plugin::a b` is not a C++ function's qualified name\n"
            "  remedy: write `wrap_impl` as the function's name alone, like abs_out"
        ),
    ),
    Case(
        "torch_npu custom without func",
        "chip.yaml",
        ("backend: Chip\ncpp_namespace: chip\ncustom:\n  - {variants: function}\nsupported: []\n"),
        "SyntaxInvalid",
        ("DIR/chip.yaml:4:5: the key `func` is missing\n  remedy: add `func: …` here"),
    ),
    Case(
        "torch_npu custom that is no schema",
        "chip.yaml",
        'backend: Chip\ncpp_namespace: chip\nsupported: []\ncustom:\n  - func: "fuse\\0all"\n',
        "SchemaInvalid",
        "DIR/chip.yaml:5:5: `fuse\\x00all` is no schema\n"
        "  remedy: write it as native_functions.yaml does: fuse(Tensor self, int dim) -> Tensor",
    ),
    Case(
        "torchgen non_native that is no schema",
        "chip.yaml",
        "backend: Chip\ncpp_namespace: chip\nsupported: []\nnon_native: [{func: scalar}]\n",
        "SchemaInvalid",
        "DIR/chip.yaml:4:15: `scalar` is no schema\n"
        "  remedy: write it as native_functions.yaml does: fuse(Tensor self, int dim) -> Tensor",
    ),
    # ---- ExecuTorch's functions.yaml and custom_ops.yaml
    Case(
        "executorch entry without an operator",
        "functions.yaml",
        ("- op: relu.out\n- kernels: []\n"),
        "SyntaxInvalid",
        (
            "DIR/functions.yaml:2:3: an entry names an operator of ATen (`op`) or declares one (`func`), and exactly one of them\n"
            "  remedy: write `op: add.out`, or `func: myop::scale.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)`"
        ),
    ),
    Case(
        "executorch entry with two",
        "functions.yaml",
        "- {op: relu.out, func: 'relu.out(Tensor self) -> Tensor'}\n",
        "SyntaxInvalid",
        (
            "DIR/functions.yaml:1:3: an entry names an operator of ATen (`op`) or declares one (`func`), and exactly one of them\n"
            "  remedy: write `op: add.out`, or `func: myop::scale.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)`"
        ),
    ),
    Case(
        "executorch key misspelt",
        "functions.yaml",
        ("- op: relu.out\n  kernel:\n    - kernel_name: f\n"),
        "KeyUnknown",
        (
            "DIR/functions.yaml:2:3: unknown key `kernel` (did you mean kernels?)\n"
            "  remedy: the keys here are op, func, kernels, type_alias, dim_order_alias, variants, tags, cpp_no_default_args, dispatch, namespace, autogen, device_check, device_guard, python_module, category_override, use_const_ref_for_mutable_tensors, manual_cpp_binding, manual_kernel_registration"
        ),
    ),
    Case(
        "executorch kernel key misspelt",
        "functions.yaml",
        ("- op: relu.out\n  kernels:\n    - argmeta: null\n      kernel_name: f\n"),
        "KeyUnknown",
        (
            "DIR/functions.yaml:3:7: unknown key `argmeta` (did you mean arg_meta?)\n"
            "  remedy: the keys here are kernel_name, arg_meta"
        ),
    ),
    Case(
        "executorch kernel without a name",
        "functions.yaml",
        ("- op: relu.out\n  kernels:\n    - arg_meta: null\n"),
        "SyntaxInvalid",
        (
            "DIR/functions.yaml:3:7: the key `kernel_name` is missing\n"
            "  remedy: add `kernel_name: …` here"
        ),
    ),
    Case(
        "executorch unknown operator",
        "functions.yaml",
        "- op: rellu.out\n",
        "OperatorUnknown",
        (
            "DIR/functions.yaml:1:3: torch TORCH has no operator `rellu.out` (did you mean relu.out, elu.out, roll.out?)\n"
            "  remedy: name the overload too; an operator that is not ATen's is declared with `func:` and its schema"
        ),
    ),
    Case(
        "executorch operator of another namespace",
        "functions.yaml",
        "- op: quantized::relu.out\n",
        "OperatorUnknown",
        (
            "DIR/functions.yaml:1:3: `quantized::relu.out` is no operator of ATen, which `op` names\n"
            "  remedy: declare it with its schema: `func: quantized::relu.out(…) -> …`"
        ),
    ),
    Case(
        "executorch schema for op",
        "functions.yaml",
        "- op: 'relu.out(Tensor self) -> Tensor'\n",
        "SchemaInvalid",
        (
            "DIR/functions.yaml:1:3: `relu.out(Tensor self) -> Tensor` is a schema where an operator's name belongs\n"
            "  remedy: write `op: relu.out`, or `func:` with the schema"
        ),
    ),
    Case(
        "executorch name for func",
        "functions.yaml",
        "- func: comet::scale.out\n",
        "SchemaInvalid",
        (
            "DIR/functions.yaml:1:3: `scale.out` is no schema: Invalid function schema: scale.out\n"
            "  remedy: write it as native_functions.yaml does: scale.out(Tensor self, float factor, *, Tensor(a!) out) -> Tensor(a!)"
        ),
    ),
    Case(
        "executorch schema that does not parse",
        "functions.yaml",
        "- func: 'comet::scale.out(Tensr self, *, Tensor(a!) out) -> Tensor(a!)'\n",
        "SchemaInvalid",
        (
            "DIR/functions.yaml:1:3: `scale.out(Tensr self, *, Tensor(a!) out) -> Tensor(a!)` is no schema: unrecognized type Tensr\n"
            "  remedy: write it as native_functions.yaml does: scale.out(Tensor self, float factor, *, Tensor(a!) out) -> Tensor(a!)"
        ),
    ),
    Case(
        "executorch nested namespaces",
        "functions.yaml",
        "- func: 'a::b::scale(Tensor self) -> Tensor'\n",
        "SchemaInvalid",
        (
            "DIR/functions.yaml:1:3: `a::b` is no operator's namespace\n"
            "  remedy: write one word before `::`, like mylib::scale.out"
        ),
    ),
    Case(
        "executorch operator twice",
        "functions.yaml",
        ("- op: relu.out\n- op: aten::relu.out\n"),
        "KernelDuplicate",
        (
            "DIR/functions.yaml:2:3: two entries for `relu.out`; the first is at DIR/functions.yaml:1:3\n"
            "  remedy: write all kernels of an operator below one entry"
        ),
    ),
    Case(
        "executorch kernel name too deep",
        "functions.yaml",
        ("- op: relu.out\n  kernels:\n    - kernel_name: a::b::c::d::f\n"),
        "SyntaxInvalid",
        (
            "DIR/functions.yaml:3:7: `a::b::c::d::f` is not a kernel's name with at most 3 namespaces\n"
            "  remedy: write it like torch::executor::add_out; the function itself is then torch::executor::native::add_out"
        ),
    ),
    Case(
        "executorch two defaults",
        "functions.yaml",
        ("- op: relu.out\n  kernels:\n    - kernel_name: f\n    - kernel_name: g\n"),
        "KernelDuplicate",
        (
            "DIR/functions.yaml:4:7: two kernels for `relu.out` take what no `arg_meta` takes; the first is `at::native::f` at DIR/functions.yaml:3:7\n"
            "  remedy: give each dtype and dim order to one kernel, and leave `arg_meta: null` to one"
        ),
    ),
    Case(
        "executorch kernels that overlap",
        "functions.yaml",
        (
            "- op: relu.out\n"
            "  type_alias: {T0: [Float, Half], T1: [Half, Int]}\n"
            "  dim_order_alias: {D0: [0, 1]}\n"
            "  kernels:\n"
            "    - {arg_meta: {self: [T0, D0], out: [T0, D0]}, kernel_name: f}\n"
            "    - {arg_meta: {self: [T1, D0], out: [T1, D0]}, kernel_name: g}\n"
        ),
        "KernelDuplicate",
        (
            "DIR/functions.yaml:6:51: two kernels for `relu.out` take some dtypes and dim orders; the first is `at::native::f` at DIR/functions.yaml:5:51\n"
            "  remedy: give each dtype and dim order to one kernel, and leave `arg_meta: null` to one"
        ),
    ),
    Case(
        "executorch unknown argument",
        "functions.yaml",
        ("- op: relu.out\n  kernels:\n    - arg_meta: {slef: [T0, D0]}\n      kernel_name: f\n"),
        "KernelRejected",
        (
            "DIR/functions.yaml:3:18: `relu.out` has no Tensor argument `slef` (did you mean self?)\n"
            "  remedy: its Tensor arguments are self, out"
        ),
    ),
    Case(
        "executorch argument with a dtype only",
        "functions.yaml",
        ("- op: relu.out\n  kernels:\n    - arg_meta: {self: [Float]}\n      kernel_name: f\n"),
        "SyntaxInvalid",
        (
            "DIR/functions.yaml:3:18: `self` needs a name from type_alias and one from dim_order_alias, and has 1 names\n"
            "  remedy: write `self: [T0, D0]`"
        ),
    ),
    Case(
        "executorch unknown type alias",
        "functions.yaml",
        (
            "- op: relu.out\n"
            "  type_alias: {Real: [Float]}\n"
            "  dim_order_alias: {D0: [0]}\n"
            "  kernels:\n"
            "    - arg_meta: {self: [Rael, D0]}\n"
            "      kernel_name: f\n"
        ),
        "KernelRejected",
        (
            "DIR/functions.yaml:5:18: this entry's type_alias has no `Rael` (did you mean Real?)\n"
            "  remedy: write `type_alias: {Rael: [Float]}` in the same entry"
        ),
    ),
    Case(
        "executorch unknown dim order alias",
        "functions.yaml",
        (
            "- op: relu.out\n"
            "  type_alias: {T0: [Float]}\n"
            "  dim_order_alias: {D0: [0]}\n"
            "  kernels:\n"
            "    - arg_meta: {self: [T0, D1]}\n"
            "      kernel_name: f\n"
        ),
        "KernelRejected",
        (
            "DIR/functions.yaml:5:18: this entry's dim_order_alias has no `D1`\n"
            "  remedy: write `dim_order_alias: {D1: [0, 1]}` in the same entry"
        ),
    ),
    Case(
        "executorch dim order that is none",
        "functions.yaml",
        (
            "- op: relu.out\n"
            "  type_alias: {T0: [Float]}\n"
            "  dim_order_alias: {D0: [0, 2]}\n"
            "  kernels:\n"
            "    - arg_meta: {self: [T0, D0]}\n"
            "      kernel_name: f\n"
        ),
        "KernelRejected",
        (
            "DIR/functions.yaml:3:21: `D0` is no dim order: [0, 2]\n"
            "  remedy: write each dimension from 0 on once, outermost first: [0, 1, 2, 3], or [0, 2, 3, 1] for channels last"
        ),
    ),
    Case(
        "executorch dim order of words",
        "functions.yaml",
        (
            "- op: relu.out\n"
            "  type_alias: {T0: [Float]}\n"
            "  dim_order_alias: {D0: [rows]}\n"
            "  kernels:\n"
            "    - arg_meta: {self: [T0, D0]}\n"
            "      kernel_name: f\n"
        ),
        "KernelRejected",
        (
            "DIR/functions.yaml:3:21: `D0` is no dim order: [rows]\n"
            "  remedy: write each dimension from 0 on once, outermost first: [0, 1, 2, 3], or [0, 2, 3, 1] for channels last"
        ),
    ),
    Case(
        "executorch unknown dtype",
        "functions.yaml",
        (
            "- op: relu.out\n"
            "  type_alias: {T0: [Float, Doubel]}\n"
            "  dim_order_alias: {D0: [0]}\n"
            "  kernels:\n"
            "    - arg_meta: {self: [T0, D0]}\n"
            "      kernel_name: f\n"
        ),
        "KernelRejected",
        (
            "DIR/functions.yaml:2:16: unknown dtype `Doubel` (did you mean Double?)\n"
            "  remedy: use a c10 ScalarType name such as Float or Long, or a name from type_alias"
        ),
    ),
    Case(
        "executorch empty alias",
        "functions.yaml",
        (
            "- op: relu.out\n"
            "  type_alias: {T0: []}\n"
            "  dim_order_alias: {D0: [0]}\n"
            "  kernels:\n"
            "    - arg_meta: {self: [T0, D0]}\n"
            "      kernel_name: f\n"
        ),
        "KernelRejected",
        (
            "DIR/functions.yaml:2:16: `T0` stands for nothing, so this kernel takes nothing\n"
            "  remedy: write something like `T0: [Float]`"
        ),
    ),
    Case(
        "executorch kernel that takes nothing",
        "functions.yaml",
        ("- op: relu.out\n  kernels:\n    - arg_meta: {}\n      kernel_name: f\n"),
        "KernelRejected",
        (
            "DIR/functions.yaml:3:7: this kernel of `relu.out` takes nothing: `arg_meta` names no argument\n"
            "  remedy: write `arg_meta: null` for a kernel that takes what no other takes"
        ),
    ),
    Case(
        "executorch variant that is none",
        "functions.yaml",
        ("- op: relu.out\n  variants: functions\n"),
        "SyntaxInvalid",
        (
            "DIR/functions.yaml:2:3: `functions` is no variant (did you mean function?)\n"
            "  remedy: it takes function, method or both, with a comma between them"
        ),
    ),
    Case(
        "executorch manifest that is no list",
        "kernels.yaml",
        ("library: chiplib\nabi: executorch\nkernels: [relu.out]\n"),
        "SyntaxInvalid",
        (
            "DIR/kernels.yaml:3:11: `kernels.0` has the wrong type: expected `mapping`, got `string`\n"
            "  remedy: see docs/describe/description.md for what each key takes"
        ),
    ),
    Case(
        "executorch manifest with a manifest's kernel",
        "kernels.yaml",
        ("library: chiplib\nabi: executorch\nkernels:\n  - {op: relu.out, structured: true}\n"),
        "KeyUnknown",
        (
            "DIR/kernels.yaml:4:20: unknown key `structured`\n"
            "  remedy: the keys here are op, func, kernels, type_alias, dim_order_alias, variants, tags, cpp_no_default_args, dispatch, namespace, autogen, device_check, device_guard, python_module, category_override, use_const_ref_for_mutable_tensors, manual_cpp_binding, manual_kernel_registration, kernel_name, dtypes, dim_order, meta"
        ),
    ),
    Case(
        "executorch manifest with device_guard",
        "kernels.yaml",
        ("library: chiplib\nabi: executorch\ndevice_guard: false\nkernels: []\n"),
        "KeyUnknown",
        (
            "DIR/kernels.yaml:3:1: unknown key `device_guard`\n"
            "  remedy: the keys here are library, kernels, abi, dim_order, sources, vectorised, meta_sources, include_dirs, defined_by, type_alias"
        ),
    ),
    Case(
        "executorch manifest whose operators nobody's namespace has",
        "kernels.yaml",
        "library: chiplib\nabi: executorch\ndefined_by:\n  aten: [torch]\nkernels: []\n",
        "SyntaxInvalid",
        "DIR/kernels.yaml:4:3: `aten` is no namespace of custom operators\n"
        "  remedy: write `defined_by: {their_namespace: [python.module]}`",
    ),
    Case(
        "executorch manifest whose operators no module defines",
        "kernels.yaml",
        "library: chiplib\nabi: executorch\ndefined_by:\n  theirs: [a/b.py]\nkernels: []\n",
        "SyntaxInvalid",
        "DIR/kernels.yaml:4:3: `a/b.py` cannot be the name of a Python module\n"
        "  remedy: name the modules whose import defines the operators, like "
        "torch.ao.quantization.fx._decomposed",
    ),
    *(
        Case(f"executorch {name}", "kernels.yaml", f"{_EXECUTORCH}{entry}\n", kind, expected)
        for name, entry, kind, expected in _EXECUTORCH_ENTRIES
    ),
    # ---- names that become C++ or Python
    *(
        Case(
            f"device called {name}",
            "backend.yaml",
            f"backend: {name}\ndriver: sim\n",
            "SyntaxInvalid",
            f"DIR/backend.yaml:1:1: `{name}` cannot name a device: {why}\n"
            f"  remedy: choose another name, e.g. `{name}chip`",
        )
        for name, why in [
            ("class", "it is a word of C++, and generated code has a namespace `at::class`"),
            ("int", "it is a word of C++, and generated code has a namespace `at::int`"),
            ("errno", "it is a word of C++, and generated code has a namespace `at::errno`"),
            ("lambda", "it is a word of Python, and programs write `torch.lambda`"),
            ("nn", "PyTorch has something else called `torch.nn`, or a method `nn` or `is_nn`"),
            (
                "training",
                "PyTorch has something else called `torch.training`, or a method `training` or `is_training`",
            ),
            ("c10", "PyTorch has something else called `at::c10` in C++"),
        ]
    ),
    Case(
        "kernel called like a word of C++",
        "kernels.yaml",
        "library: chiplib\nkernels:\n  - {op: relu, kernel_name: chip::delete}\n",
        "SyntaxInvalid",
        "DIR/kernels.yaml:3:16: `chip::delete` is not a C++ function's qualified name: `delete` is a word of C++\n"
        "  remedy: write it like my_namespace::my_kernel",
    ),
    Case(
        "backward kernel in the namespace std",
        "kernels.yaml",
        "library: chiplib\nkernels:\n  - {op: relu, kernel_name: f, backward: std::relu}\n",
        "SyntaxInvalid",
        "DIR/kernels.yaml:3:32: `std::relu` is not a C++ function's qualified name: `std` is a word of C++\n"
        "  remedy: write it like my_namespace::my_kernel",
    ),
    Case(
        "stub's kernel called like a word of C++",
        "kernels.yaml",
        "library: chiplib\nkernels:\n  - {stub: abs_stub, kernel_name: int::abs}\n",
        "SyntaxInvalid",
        "DIR/kernels.yaml:3:22: `int::abs` is not a C++ function's qualified name: `int` is a word of C++\n"
        "  remedy: write it like my_namespace::my_kernel",
    ),
    Case(
        "meta called like a word of C++",
        "kernels.yaml",
        "library: chiplib\nkernels:\n  - {func: 'my::f(Tensor x) -> Tensor', kernel_name: f, meta: 'my::new'}\n",
        "SyntaxInvalid",
        "DIR/kernels.yaml:3:57: `my::new` is not a C++ function's qualified name: `new` is a word of C++\n"
        "  remedy: write it like my_namespace::my_meta, or `{same_as: self}`",
    ),
    Case(
        "class called like a word of C++",
        "kernels.yaml",
        "library: chiplib\nclass_name: chip::struct\nkernels: []\n",
        "SyntaxInvalid",
        "DIR/kernels.yaml:2:1: `chip::struct` cannot be a name in C++: `struct` is a word of C++\n"
        "  remedy: write the class with its namespace, like at_npu::native::NPUNativeFunctions",
    ),
    Case(
        "torchgen namespace called like a word of C++",
        "chip.yaml",
        "backend: Chip\ncpp_namespace: chip::private\nsupported: []\n",
        "SyntaxInvalid",
        "DIR/chip.yaml:2:1: `chip::private` cannot be a name in C++: `private` is a word of C++\n"
        "  remedy: write the kernels' namespace like at_npu::native",
    ),
    Case(
        "torchgen implementation called like a word of C++",
        "chip.yaml",
        "backend: Chip\ncpp_namespace: chip\nsupported:\n  - {func: relu, wrap_impl: typename}\n",
        "SyntaxInvalid",
        "DIR/chip.yaml:4:6: `op_plugin::typename` is not a C++ function's qualified name: `typename` is a word of C++\n"
        "  remedy: write `wrap_impl` as the function's name alone, like abs_out",
    ),
    Case(
        "executorch kernel called like a word of C++",
        "functions.yaml",
        "- op: relu.out\n  kernels:\n    - {arg_meta: null, kernel_name: chip::register}\n",
        "SyntaxInvalid",
        "DIR/functions.yaml:3:24: `chip::register` is not a kernel's name with at most 3 namespaces: `register` is a "
        "word of C++\n"
        "  remedy: write it like torch::executor::add_out; the function itself is then "
        "torch::executor::native::add_out",
    ),
    Case(
        "executorch manifest with others' operators in a word of C++",
        "kernels.yaml",
        "library: chiplib\nabi: executorch\ndefined_by:\n  union: [torch]\nkernels: []\n",
        "SyntaxInvalid",
        "DIR/kernels.yaml:4:3: `union` is no namespace of custom operators: `union` is a word of C++\n"
        "  remedy: write `defined_by: {their_namespace: [python.module]}`",
    ),
    Case(
        "executorch manifest whose module is a word of Python",
        "kernels.yaml",
        "library: chiplib\nabi: executorch\ndefined_by:\n  theirs: [their.import]\nkernels: []\n",
        "SyntaxInvalid",
        "DIR/kernels.yaml:4:3: `their.import` cannot be the name of a Python module\n"
        "  remedy: name the modules whose import defines the operators, like "
        "torch.ao.quantization.fx._decomposed",
    ),
    *(
        Case(
            f"executorch operator called {head}",
            "kernels.yaml",
            f'{_EXECUTORCH}{{func: "{head}(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", kernel_name: f}}\n',
            "SchemaInvalid",
            f"DIR/kernels.yaml:4:6: `{head}` is not an operator's name\n"
            "  remedy: write it like mylib::scale.out: a namespace and two colons, the name, a dot and the overload",
        )
        for head in [
            "my:op.out",
            "::op.out",
            "my::op:out",
            "my::op..out",
            "my::.out",
            "my.op.out",
            "my::op out",
            "my:: op",
        ]
    ),
    # ---- YAML that stands for more than it says
    Case(
        "chain of aliases",
        "kernels.yaml",
        "library: chiplib\na0: &a0 [1]\n"
        + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 600)),
        "SyntaxInvalid",
        "DIR/kernels.yaml:2:5: more than 64 lists and mappings stand in each other here, counting what aliases (`*…`) "
        "stand for and `<<` merges\n"
        "  remedy: write the values out instead of aliases of aliases",
    ),
    Case(
        "chain of merges inside one another",
        "kernels.yaml",
        "".join(f"{'  ' * i}? &a{i}\n" for i in range(0))
        + "library: chiplib\na0: &a0 {x: [1]}\n"
        + "".join(f"a{i}: &a{i} {{x: {{<<: *a{i - 1}}}}}\n" for i in range(1, 900)),
        "SyntaxInvalid",
        "DIR/kernels.yaml:2:13: more than 64 lists and mappings stand in each other here, counting what aliases (`*…`) "
        "stand for and `<<` merges\n"
        "  remedy: write the values out instead of aliases of aliases",
    ),
    Case(
        "merges of many keys",
        "kernels.yaml",
        "a: &a {"
        + ", ".join(f"k{i}: 0" for i in range(1000))
        + "}\nb: {<<: ["
        + "*a, " * 200
        + "]}\n",
        "SyntaxInvalid",
        "DIR/kernels.yaml:1:4: the aliases of this file stand for more than 200,000 values\n"
        "  remedy: write the values out, or fewer of them",
    ),
    *(
        Case(
            f"number of too many {what}",
            "functions.yaml",
            f"- op: add.out\n  dim_order_alias: {{Rows: [0, {number}]}}\n",
            "SyntaxInvalid",
            f"DIR/functions.yaml:2:31: the number `{shown}` does not fit into 64 bits\n"
            "  remedy: write a smaller one, or put it in quotes where it is meant as text",
        )
        for what, number, shown in [
            ("bits", "0x10000000000000000", "0x10000000000000000"),
            ("digits", "9" * 5000, "9" * 40 + "…"),
            ("sixties", "1" + ":59" * 50_000, "1" + ":59" * 13 + "…"),
            ("hexadecimal digits", "0x" + "f" * 5000, "0x" + "f" * 38 + "…"),
        ]
    ),
    Case(
        "executorch with two mistakes in one entry",
        "functions.yaml",
        "- op: add.out\n  dim_order_alias: {Rows: [0, 1], Any: [0, 2, null]}\n  kernels: null\n",
        "SyntaxInvalid",
        "DIR/functions.yaml:2:47: `0.dim_order_alias.Any.2` has the wrong type: expected `int | string`, got `null`\n"
        "  remedy: see docs/describe/description.md for what each key takes",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_bad_description(case: Case, tmp_path: Path, catalogue: Catalogue) -> None:
    (tmp_path / "driver.c").touch()
    backend = tmp_path / "backend.yaml"
    backend.write_text(f"backend: chip\ndriver: sim\nlibraries: [{case.file}]\n")
    (tmp_path / case.file).write_bytes(
        case.text.encode("latin-1" if "\xff" in case.text else "utf-8")
    )
    with pytest.raises(OpsmithError) as caught:
        resolve(read_backend(backend, catalogue), catalogue)
    expected = case.error.replace("TORCH", catalogue.torch)
    if case.struct is not None:
        keys = (field.encode_name for field in msgspec.structs.fields(case.struct))
        expected = expected.replace("KEYS", ", ".join(keys))
    assert str(caught.value).replace(str(tmp_path), "DIR") == expected
    assert type(caught.value).__name__ == case.kind


def test_there_are_many_cases_and_each_has_a_place() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 60
    # Only a file that is empty, or that cannot be read, has no line.
    assert [case.name for case in CASES if not case.error.startswith(f"DIR/{case.file}:")] == [
        "not UTF-8"
    ]
