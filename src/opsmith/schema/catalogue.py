"""All ATen operators of the installed torch, read through torchgen.

Reads the ``native_functions.yaml`` that torch's wheel ships; never imports torch itself, which would
cost more than a second.  Called by ``description`` to validate names and by ``plan`` to cover every
operator.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
import yaml

from opsmith.errors import LoadError
from opsmith.schema.installed_torch import torch_release, torch_version
from opsmith.schema.kept_catalogue import Stored, stored
from opsmith.schema.operator import Composite, Group, Operator, Result, Variant
from opsmith.schema.recorded import files_of, nearest_release, read_recorded

if TYPE_CHECKING:
    from opsmith.schema.torch_names import (
        FunctionSchema,
        NativeFunction,
        NativeFunctionsGroup,
        ParsedYaml,
        Type,
    )


@dataclass(frozen=True)
class Catalogue:
    """Every ATen operator of one torch, and the groups they form.

    ``group_of`` maps an operator's name to its group; operators without variants are absent.
    """

    torch: str
    operators: Mapping[str, Operator]
    groups: tuple[Group, ...]
    group_of: Mapping[str, Group]

    def variants_of(self, name: str) -> tuple[str, ...]:
        """The operators in the group of ``name``, functional first; itself, where it has no group."""
        group = self.group_of.get(name)
        members = () if group is None else tuple(member for _, member in group.members())
        return members if name in members else (name, *members)


@functools.cache
def _parsed_yaml() -> ParsedYaml:
    from opsmith.schema.torch_names import parse_native_yaml

    functions, tags = _aten_yaml()
    return parse_native_yaml(str(functions), str(tags))


def _aten_yaml() -> tuple[Path, Path]:
    """The operators, and the tags that they may have."""
    native = torchgen_folder() / "packaged" / "ATen" / "native"
    return native / "native_functions.yaml", native / "tags.yaml"


def torchgen_folder() -> Path:
    """The package torchgen, which comes with torch's wheel and holds its YAML files."""
    spec = importlib.util.find_spec("torchgen")
    if spec is None or spec.origin is None:
        raise LoadError(
            "the package torchgen, which ships with PyTorch, is missing",
            remedy="pip install --force-reinstall torch==2.13.0",
        )
    return Path(spec.origin).parent


@functools.cache
def _native_functions() -> tuple[NativeFunction, ...]:
    return tuple(_parsed_yaml().native_functions)


def native_names() -> frozenset[str]:
    """The operators of ``native_functions.yaml``, with those that torchgen generates."""
    return frozenset(_functions_by_name())


def cpu_kernels() -> Mapping[str, str]:
    """PyTorch's own CPU kernel of each operator that has one: a function, or a structured class."""
    from opsmith.schema.torch_names import TorchgenKey

    parsed = _parsed_yaml()
    kernels = {}
    for function in parsed.native_functions:
        metadata = parsed.backend_indices[TorchgenKey.CPU].get_kernel(function)
        if metadata is not None:
            prefix = "structured_" if metadata.structured else ""
            kernels[str(function.func.name)] = (
                f"{metadata.cpp_namespace}::{prefix}{metadata.kernel}"
            )
    return kernels


def composite_kernels() -> Mapping[str, str]:
    """PyTorch's composite kernel of each operator that has one: its dispatch key and its function."""
    from opsmith.schema.torch_names import TorchgenKey

    kernels = {}
    for function in _native_functions():
        composite = _composite_of(function)
        if composite is not Composite.NONE:
            index = _parsed_yaml().backend_indices[TorchgenKey.parse(composite.value)]
            metadata = index.get_kernel(function)
            # A structured delegate's is torchgen's own.
            kernel = metadata.kernel if metadata is not None else str(function.structured_delegate)
            kernels[str(function.func.name)] = f"{composite.value}: {kernel}"
    return kernels


@functools.cache
def native_function(name: str) -> NativeFunction:
    """torchgen's own model of the ATen operator ``name``, for ``emit``."""
    return _functions_by_name()[name]


@functools.cache
def custom_function(operator: Operator) -> NativeFunction:
    """torchgen's model of a custom operator."""
    return native_function_of(operator.namespace, operator.schema, operator.tags)


# The names that torchgen has rules for.
_READ_BY_TORCHGEN = re.compile(
    r"^new_|_like$|^_foreach|^__|^resize|rand|dropout|backward|functional"
)


def stand_in(operator: Operator) -> Operator:
    """The custom operator of another name for which torchgen finds all that it finds for ``operator``.

    torchgen takes a millisecond for a schema, and a library of thousands of operators has few signatures:
    what is asked about the stand-in, which such operators share, is read once.
    """
    return with_base_name(operator, stand_in_name(base_name(operator)))


def stand_in_name(base: str) -> str:
    """The :func:`base_name` of the stand-in for an operator whose own is ``base``."""
    return base if _READ_BY_TORCHGEN.search(base) else "op"


def base_name(operator: Operator) -> str:
    """The name that all variants of a custom operator share: ``scale`` of ``myop::scale_.Scalar``."""
    return _base_name(operator.schema)


@functools.cache
def _base_name(schema: str) -> str:
    return schema.partition("(")[0].partition(".")[0].removesuffix("_")


def with_base_name(operator: Operator, base: str) -> Operator:
    """The custom ``operator`` with ``base`` for its :func:`base_name`."""
    if base == (own := base_name(operator)):
        return operator
    rest = operator.schema[len(own) :]
    name = f"{operator.namespace}::{base}{rest.partition('(')[0]}"
    return Operator(name, base + rest, *_FACTS_BEYOND_THE_NAME(operator))


# Of thousands of operators: four times as fast as `replace`.
_FACTS_BEYOND_THE_NAME = attrgetter(*(each.name for each in fields(Operator)[2:]))


def native_function_of(namespace: str, schema: str, tags: Sequence[str] = ()) -> NativeFunction:
    """torchgen's model of ``schema``; raises what torchgen does where that is not one."""
    from opsmith.schema.torch_names import FunctionSchema, Location, NativeFunction

    # from_yaml takes every `::` for a namespace's, in a default too: str mode="a::b".
    declared: dict[str, object] = {"func": f"{namespace}::{schema.replace('::', '.')}"}
    if tags:
        declared["tags"] = list(tags)
    function, _ = NativeFunction.from_yaml(declared, Location("", 0), set(tags))
    return replace(function, func=FunctionSchema.parse(schema)) if "::" in schema else function


def function_schema(operator: Operator) -> FunctionSchema:
    """torchgen's model of any operator's schema: 0.1 ms, where :func:`torch_function` parses all of ATen.

    That of a custom operator has the name of its :func:`stand_in`.
    """
    return parsed_schema(stand_in_schema(operator))


def stand_in_schema(operator: Operator) -> str:
    """The schema of an operator of ATen, or that of the :func:`stand_in` for any other."""
    return operator.schema if operator.namespace == "aten" else _stand_in_schema(operator.schema)


@functools.cache
def _stand_in_schema(schema: str) -> str:
    base = _base_name(schema)
    return stand_in_name(base) + schema[len(base) :]


@functools.cache
def parsed_schema(schema: str) -> FunctionSchema:
    """torchgen's model of a schema without its namespace."""
    from opsmith.schema.torch_names import FunctionSchema

    return FunctionSchema.parse(schema)


def torch_function(operator: Operator) -> NativeFunction:
    """torchgen's model of any operator."""
    return (
        native_function(operator.name)
        if operator.namespace == "aten"
        else custom_function(operator)
    )


def result_types(operator: Operator) -> tuple[str, ...]:
    """The types that a schema says the operator returns, such as ``Tensor`` and ``Tensor[]``."""
    return _result_types(stand_in_schema(operator))


@functools.cache
def _result_types(schema: str) -> tuple[str, ...]:
    return tuple(str(result.type) for result in parsed_schema(schema).returns)


@functools.cache
def tag_names() -> frozenset[str]:
    """The tags that an operator of the installed torch may have, from its ``tags.yaml``."""
    _, tags = _aten_yaml()
    return frozenset(entry["tag"] for entry in yaml.safe_load(tags.read_text(encoding="utf-8")))


@functools.cache
def _functions_by_name() -> Mapping[str, NativeFunction]:
    return {str(function.func.name): function for function in _native_functions()}


@functools.cache
def _functions_by_base() -> Mapping[str, Sequence[NativeFunction]]:
    by_base: dict[str, list[NativeFunction]] = {}
    for function in _native_functions():
        by_base.setdefault(function.func.name.name.base, []).append(function)
    return by_base


@functools.cache
def structured_group(out_name: str) -> NativeFunctionsGroup:
    """torchgen's group of the structured operator whose out variant is ``out_name``."""
    from opsmith.schema.torch_names import NativeFunctionsGroup, pre_group_native_functions

    function = native_function(out_name)
    members = _functions_by_base()[function.func.name.name.base]
    variants = pre_group_native_functions(list(members))[function.func.signature()]
    group = NativeFunctionsGroup.from_dict(dict(variants))
    assert group is not None and group.structured
    return group


def _composite_of(function: NativeFunction) -> Composite:
    if function.namespace != "aten":
        # torchgen takes what names no kernel for a composite, since that is what it means in ATen.
        return Composite.NONE
    # In the dispatcher's order of precedence.  A structured delegate's composite kernel is written by
    # torchgen itself: meta, at::empty, then the out variant.
    if (
        function.structured_delegate is not None
        or function.has_composite_explicit_autograd_non_functional_kernel
    ):
        return Composite.NON_FUNCTIONAL
    if function.has_composite_explicit_autograd_kernel:
        return Composite.EXPLICIT
    if function.has_composite_implicit_autograd_kernel:
        return Composite.IMPLICIT
    return Composite.NONE


def results_of(function: NativeFunction) -> tuple[Result, ...] | None:
    """The :attr:`Operator.results` of torchgen's model of an operator."""
    from opsmith.schema.torch_names import SchemaKind

    kind = function.func.kind()
    if kind is SchemaKind.functional:
        kinds = [_holds_tensors(ret.type) for ret in function.func.returns]
        names = [ret.name or "" for ret in function.func.returns]
    elif kind in (SchemaKind.out, SchemaKind.inplace):
        arguments = function.func.arguments
        changed = [a for a in arguments.flat_non_out if a.annotation and a.annotation.is_write]
        changed = [*arguments.out, *sorted(changed, key=lambda argument: argument.name != "self")]
        kinds = [_holds_tensors(argument.type) for argument in changed]
        names = [argument.name for argument in changed]
    elif kind is SchemaKind.mutable:
        changed = list(function.func.arguments.post_self_positional_mutable)
        kinds = [_holds_tensors(each.type) for each in (*function.func.returns, *changed)]
        names = [*("" for _ in function.func.returns), *(argument.name for argument in changed)]
    else:
        return None
    results = [
        Result(name, many) for name, many in zip(names, kinds, strict=True) if many is not None
    ]
    return tuple(results) if results and len(results) == len(kinds) else None


def _holds_tensors(kind: Type) -> bool | None:
    """Whether a type is a list of Tensors; ``None`` where it is neither that nor a Tensor."""
    from opsmith.schema.torch_names import BaseTy, BaseType, ListType

    tensor = BaseType(BaseTy.Tensor)
    if kind == tensor:
        return False
    return True if isinstance(kind, ListType) and kind.elem == tensor else None


def operator_of(function: NativeFunction) -> Operator:
    """The :class:`Operator` for torchgen's model of one."""
    name = str(function.func.name)
    return Operator(
        name=name if function.namespace == "aten" else f"{function.namespace}::{name}",
        schema=str(function.func),
        variant=Variant[function.func.kind().name.upper()],
        composite=_composite_of(function),
        view=function.is_view_op,
        factory=function.func.arguments.tensor_options is not None,
        tags=tuple(sorted(function.tags)),
        results=results_of(function),
        tensor_arguments=tuple(
            argument.name
            for argument in function.func.arguments.flat_all
            if argument.type.is_tensor_like()
        ),
        namespace=function.namespace,
        meta=function.namespace != "aten" or name not in _dispatcher().without_meta,
        one_device=function.device_check.name == "ExactSame",
        composed_layouts=(composed := _composed_layouts(function)),
        host_layouts=_host_layouts(function, composed),
    )


# Kernels for tensors that are not strided, and made of other operators although CUDA has others: by key.
_COMPOSED = {
    "NestedTensorCPU": frozenset({"bmm", "to_padded_tensor"}),
    "CPU": frozenset(
        {
            "_nested_from_padded",
            "_nested_tensor_from_mask",
            "_nested_tensor_from_mask_left_aligned",
            "_nested_view_from_buffer",
        }
    ),
    # The others make tensors or touch elements of PyTorch's own devices only.
    "QuantizedCPU": frozenset(
        """
        _reshape_alias as_strided q_per_channel_axis q_per_channel_scales q_per_channel_zero_points
        q_scale q_zero_point qscheme set_.source_Storage_storage_offset squeeze squeeze.dim squeeze.dims
        unfold unsqueeze view
        """.split()
    ),
}
# The keys under which kernels are made of other operators where CPU and CUDA share them; but for those that
# reach DispatchStubs, which PyTorch fills for its own devices only.
_SHARED = {
    "NestedTensorCPU": frozenset({"native_layer_norm", "native_layer_norm_backward"}),
    "SparseCPU": frozenset({"_sparse_mask_projection", "sparse_mask"}),
    "SparseCsrCPU": frozenset(
        {"_to_sparse_bsc", "_to_sparse_bsr", "_to_sparse_csc", "_to_sparse_csr"}
    ),
}


def _kernel(function: NativeFunction, key: str) -> object:
    from opsmith.schema.torch_names import TorchgenKey

    return _parsed_yaml().backend_indices[TorchgenKey.parse(key)].get_kernel(function)


def _composed_layouts(function: NativeFunction) -> tuple[str, ...]:
    """The :attr:`Operator.composed_layouts` of torchgen's model of an operator."""
    name = str(function.func.name)
    if function.namespace != "aten":
        return ()
    composed = {key for key, names in _COMPOSED.items() if name in names}
    for key, others in _SHARED.items():
        kernel = _kernel(function, key)
        if (
            kernel
            and name not in others
            and kernel == _kernel(function, key.replace("CPU", "CUDA"))
        ):
            composed.add(key)
    return tuple(sorted(composed))


def _host_layouts(function: NativeFunction, composed: tuple[str, ...]) -> tuple[str, ...]:
    """The :attr:`Operator.host_layouts` of torchgen's model of an operator."""
    if _composite_of(function) is Composite.NONE:
        return ()
    keys = "NestedTensorCPU", "QuantizedCPU", "SparseCPU", "SparseCsrCPU"
    return tuple(key for key in keys if key not in composed and _kernel(function, key))


class _Unlisted(msgspec.Struct, forbid_unknown_fields=True):
    func: str
    composite: str = ""


class _Dispatcher(msgspec.Struct, forbid_unknown_fields=True):
    torch: str
    unlisted: dict[str, _Unlisted]
    without_meta: dict[str, Literal[True]]


@functools.cache
def _dispatcher() -> _Dispatcher:
    """The registrations of libtorch that ``native_functions.yaml`` lacks, from ``tools/list_operators``."""
    return read_recorded("dispatcher", _Dispatcher, torch_release())


def _unlisted_operators() -> list[Operator]:
    return [
        Operator(
            name=name,
            schema=unlisted.func,
            variant=Variant.INPLACE if name.endswith("_") else Variant.FUNCTIONAL,
            composite=Composite(unlisted.composite),
        )
        for name, unlisted in _dispatcher().unlisted.items()
    ]


@functools.cache
def read_catalogue() -> Catalogue:
    """All ATen operators of the installed torch; read once a process, and parsed once on a machine.

    The source is ``torchgen/packaged/ATen/native/native_functions.yaml``, with the variants that
    torchgen generates, plus the few operators that libtorch registers elsewhere.
    """
    torch = torch_version()
    # torchgen itself comes with torch, and changes with its version.
    facts = files_of("dispatcher", nearest_release("dispatcher", torch_release()))
    sources = [*_aten_yaml(), *facts, *(Path(__file__).parent / name for name in _MADE_FROM)]
    found = stored(torch, sources, _parsed)
    return Catalogue(
        torch,
        {operator.name: operator for operator in found.operators},
        found.groups,
        {
            name: group
            for group in found.groups
            for name in (group.mutable, *dict(group.members()).values())
            if name is not None
        },
    )


_MADE_FROM = ("catalogue.py", "operator.py", "kept_catalogue.py", "recorded.py")


def _parsed() -> Stored:
    """The operators and groups, by torchgen; about 0.8 s."""
    from opsmith.schema.torch_names import SchemaKind, pre_group_native_functions

    functions = _native_functions()
    operators = {str(function.func.name): operator_of(function) for function in functions}
    for operator in _unlisted_operators():
        operators[operator.name] = operator

    groups = []
    for variants in pre_group_native_functions(functions).values():
        if len(variants) < 2:
            continue
        names = {kind: str(function.func.name) for kind, function in variants.items()}
        out = variants.get(SchemaKind.out)
        groups.append(
            Group(
                functional=names.get(SchemaKind.functional),
                inplace=names.get(SchemaKind.inplace),
                out=names.get(SchemaKind.out),
                mutable=names.get(SchemaKind.mutable),
                structured=out is not None and out.structured,
                iterator=out is not None and out.structured_inherits is not None,
            )
        )
    return Stored(tuple(operators.values()), tuple(groups))
