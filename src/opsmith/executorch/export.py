"""A module → a program of ExecuTorch, with what ``run`` needs to compare it with eager kept beside it.

Operators for which the backend's libraries have kernels are preserved where ExecuTorch's own lowering
would decompose them: ``linear`` always.  Where the module calls operators that the libraries declare, the
backend is loaded, which defines them.  Batch norm is folded into convolutions.  Nothing is written where
nobody will serve a call.  Called by ``opsmith executorch export``.
"""

from __future__ import annotations

import io
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opsmith.base.cache_folder import cache_root
from opsmith.base.output_files import check_writable, write_output
from opsmith.build.executorch import INSTALL
from opsmith.build.progress import OnProgress, Progress
from opsmith.description import Backend
from opsmith.errors import ExecutorchMissing, InputsRejected, OperatorsUnserved, ProgramInvalid
from opsmith.executorch.graph_nodes import GraphNode, graph_nodes, nodes_calling
from opsmith.executorch.own_operators import BACKEND_FILE, misses_own_operator
from opsmith.executorch.program import ExecutorchProgram, graph_beside, parsed_program
from opsmith.executorch.quiet import quiet
from opsmith.executorch.runtime import installed_runtime
from opsmith.executorch.shifts import name_shifts
from opsmith.plan import OpenedBackend
from opsmith.plan.executorch.resolver import Runtime, ServedForm, serve_forms
from opsmith.runtime.defining_modules import import_defining_modules
from opsmith.runtime.load import load
from opsmith.schema import Catalogue, with_operators

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.nn import Module

_SHOWN_NODES = 4
# Kernels read weights by vectors of as many bytes, which cost twice as much where they lie across two lines.
_CACHE_LINE = 64
_MISSING_OUT = re.compile(r"Missing out variants: \{(.*)\}")

# Remedies for an operator that has no out variant.
_OF_CUSTOM = (
    "write it with operators that have out variants; a custom operator needs `<name>.out` beside "
    "`<name>`"
)
_OF_TORCHAO = (
    "torchao's operators run in no program, but layers of Int8DynamicActivationIntxWeightConfig with weights "
    "of torch.int4, symmetric, and asymmetric activations become opsmith_quantized::linear_8da4w: where "
    "`libraries` has quantized, and without `--without fuse-quantized`"
)

# The wheel has a kernel of its own for it, and decomposed it is a transposition and a matrix product.
_ALWAYS_PRESERVED = ("linear",)


@dataclass(frozen=True)
class ModuleToExport:
    """A module with the inputs to export it for; ``dynamic_shapes`` as ``torch.export`` takes them."""

    name: str
    module: Module
    inputs: tuple[Any, ...]
    keywords: Mapping[str, Any]
    dynamic_shapes: Any = None


class ExportPass(Enum):
    """A pass over a graph on its way to a program, which runs unless it is left out."""

    FOLD_BATCH_NORM = "fold-batch-norm"
    """Batch norm is folded into the convolution before it."""
    PACK_WEIGHTS = "pack-weights"
    """Weights of linear layers and convolutions are packed, for kernels that take them so."""
    CHANNELS_LAST = "channels-last"
    """Convolutions with packed weights, which give channels-last images, and what follows them."""
    FUSE_ACTIVATIONS = "fuse-activations"
    """Sums and activations after a layer with a packed weight become part of it."""
    FUSE_QUANTIZED = "fuse-quantized"
    """Quantized layers are single calls on integers, where the libraries have kernels for them."""
    KEEP_WHOLE = "keep-whole"
    """Operators that the libraries have kernels for are not decomposed: hardswish, gelu, silu."""


@dataclass(frozen=True)
class Exported:
    """The files of an export: the program, and beside it the exported graph with its example inputs.

    ``forms`` says who will serve its calls, ``preserved`` which operators were not decomposed, ``folded`` how
    many batch norms are part of convolutions, ``quantized`` how many quantized layers are single calls,
    ``packed`` how many layers have packed weights, and ``fused`` how many calls are part of these.  The graph
    is that of the module as it is.
    """

    program: Path
    graph: Path
    preserved: tuple[str, ...]
    folded: int
    quantized: int
    packed: int
    fused: int
    forms: tuple[ServedForm, ...]


def export_program(
    what: ModuleToExport,
    path: Path,
    description: Path,
    *,
    without: Collection[ExportPass] = (),
    allow_unserved: bool = False,
    progress: OnProgress | None = None,
) -> Exported:
    """Exports ``what`` to ``path``, for the kernels of the backend described by the file ``description``.

    ``without`` names what is not done.  ``allow_unserved`` is for calls that another library will serve.
    Raises :class:`~opsmith.errors.ProgramInvalid` where it cannot be exported,
    :class:`~opsmith.errors.OperatorsUnserved` where neither a library nor ExecuTorch has kernels for all,
    :class:`~opsmith.errors.InputsRejected` for inputs that no program takes, and
    :class:`~opsmith.errors.OutputRejected`.
    """
    report = progress or (lambda step: None)
    graph = graph_beside(path)
    if path == graph:
        raise ProgramInvalid(
            f"`{path}` is to hold the exported graph, and cannot be the program too",
            remedy=f"name it {path.with_suffix('.pte').name}",
        )
    check_writable(path)
    check_writable(graph)
    _check_inputs(what)
    opened = OpenedBackend(description, cache_root())
    backend = opened.description
    catalogue = with_operators(opened.catalogue, backend.operators)
    runtime = installed_runtime(cache_root())
    import_defining_modules(
        each for library in backend.libraries for each in library.external_namespaces
    )
    report(Progress(f"exporting {what.name}"))
    extra_files = {}
    try:
        exported = _exported(what)
    except ProgramInvalid as error:
        if not misses_own_operator(error, backend):
            raise
        load(str(description), progress=progress)
        exported = _exported(what)
        extra_files[BACKEND_FILE] = str(description.resolve())
    saved = _saved(exported, extra_files)
    name_shifts(exported)
    folded = 0
    if ExportPass.FOLD_BATCH_NORM not in without:
        from opsmith.executorch.batch_norm import fold_batch_norm

        folded = fold_batch_norm(exported)
    quantized = 0
    if ExportPass.FUSE_QUANTIZED not in without:
        from opsmith.executorch.quantized_layers import fuse_quantized_layers

        exported, quantized = fuse_quantized_layers(exported, backend, catalogue)
    packed = fused = 0
    # Not before, since these import PyTorch.
    from opsmith.executorch import packed_layers
    from opsmith.executorch.channels_last import settle_layouts
    from opsmith.executorch.lowering_operators import define_for_lowering

    own = {} if ExportPass.PACK_WEIGHTS in without else dict(packed_layers.RESULTS)
    if ExportPass.CHANNELS_LAST in without:
        own.pop(packed_layers.CONVOLUTION, None)
    operators = define_for_lowering(packed_layers.NAMESPACE, own, backend, catalogue)
    if operators:
        fuse = ExportPass.FUSE_ACTIVATIONS not in without
        packed, fused = packed_layers.pack_layers(exported, operators, fuse=fuse)
        settle_layouts(exported)
    preserved = _preserved(backend, catalogue, ExportPass.KEEP_WHOLE not in without)
    keeps_layouts = bool(packed)
    for _ in range(3):
        report(Progress("lowering it to ExecuTorch"))
        content, nodes = _lowered(exported, preserved, what.name, keeps_layouts=keeps_layouts)
        forms = _served(parsed_program(path, content), backend, catalogue, runtime)
        # ExecuTorch's own kernels want one layout: what is left to them gets contiguous images.
        unsettled = keeps_layouts and any(map(_is_left_with_images, forms))
        # Operators that no kernel takes with these dtypes are decomposed after all.
        needless = _unserved_operators(forms, catalogue) & set(preserved)
        if not needless and not unsettled:
            break
        if unsettled:
            settle_layouts(exported, everywhere=False)
            keeps_layouts = False
        preserved = tuple(name for name in preserved if name not in needless)
    if not allow_unserved:
        _check_served(forms, nodes, what.name, backend, runtime)
    write_output(path, content)
    write_output(graph, saved)
    called = {_functional(each, catalogue) for each in forms}
    kept = tuple(name for name in preserved if name in called)
    return Exported(path, graph, kept, folded, quantized, packed, fused, forms)


def _served(
    program: ExecutorchProgram, backend: Backend, catalogue: Catalogue, runtime: Runtime
) -> tuple[ServedForm, ...]:
    return serve_forms(backend, catalogue, runtime, (call.form for call in program.calls))


def _is_left_with_images(each: ServedForm) -> bool:
    """Whether ExecuTorch's runtime is to serve a call with Tensors that are not contiguous."""
    return (
        each.kernel is None
        and not each.form.operator.startswith("dim_order_ops::")
        and any(list(meta.dim_order) != sorted(meta.dim_order) for meta in each.form.tensors)
    )


def _check_served(
    forms: Iterable[ServedForm],
    nodes: Sequence[GraphNode],
    name: str,
    backend: Backend,
    runtime: Runtime,
) -> None:
    """Raises :class:`OperatorsUnserved` for all that nobody serves, with where it is in the module."""
    missing = [each for each in forms if not each.is_served]
    if not missing:
        return
    lines = "".join(
        f"\n  {each.form}: {each.nearest or each.why}{_places(each.form.operator, nodes)}"
        for each in missing
    )
    raise OperatorsUnserved(
        f"`{name}` calls operators for which neither a library of `{backend.name}` nor ExecuTorch "
        f"{runtime.version} has a kernel:{lines}",
        remedy="write it with others, or add a kernel to a library; where a library of your own will serve "
        "it: --allow-unserved",
    )


def _places(operator: str, nodes: Iterable[GraphNode]) -> str:
    """One line for each node that calls ``operator``, below that on the operator."""
    found = nodes_calling(operator, nodes)
    more = f"\n    and {len(found) - _SHOWN_NODES:,} more" if len(found) > _SHOWN_NODES else ""
    return "".join(f"\n    {each}" for each in found[:_SHOWN_NODES]) + more


def _check_inputs(what: ModuleToExport) -> None:
    """Raises :class:`InputsRejected` for Tensors in an order in which the runtime takes none."""
    import torch

    from opsmith.schema.torch_names import tree_leaves

    for place, value in enumerate(tree_leaves((what.inputs, dict(what.keywords)))):
        if not isinstance(value, torch.Tensor) or value.is_contiguous():
            continue
        layouts = {4: torch.channels_last, 5: torch.channels_last_3d}
        layout = layouts.get(value.dim())
        if layout is None or not value.is_contiguous(memory_format=layout):
            raise InputsRejected(
                f"example input {place} of `{what.name}` has the strides {list(value.stride())}, and "
                "ExecuTorch takes contiguous and channels-last Tensors only",
                remedy="give x.contiguous(): a program keeps the layout of its example inputs",
            )


# ---- what is not decomposed


def _preserved(backend: Backend, catalogue: Catalogue, keep_whole: bool) -> tuple[str, ...]:
    """The functional operators whose out variants the libraries have kernels for, and those always."""
    names = dict.fromkeys(_ALWAYS_PRESERVED)
    for library in backend.executorch_libraries if keep_whole else ():
        for kernel in library.kernels:
            group = catalogue.group_of.get(kernel.operator)
            if group is not None and group.functional and "::" not in kernel.operator:
                names[group.functional] = None
    decomposed = {str(operator) for operator in _decompositions()}
    return tuple(name for name in names if _overload(name) in decomposed)


def _unserved_operators(forms: Iterable[ServedForm], catalogue: Catalogue) -> set[str | None]:
    """The functional operators of the forms that nobody serves."""
    return {_functional(each, catalogue) for each in forms if not each.is_served}


def _functional(each: ServedForm, catalogue: Catalogue) -> str | None:
    """The functional variant of the out variant that a program calls."""
    group = catalogue.group_of.get(each.form.operator.removeprefix("aten::"))
    return group.functional if group else None


def _overload(name: str) -> str:
    """``linear`` → ``aten.linear.default``, as PyTorch prints it."""
    return f"aten.{name}" if "." in name else f"aten.{name}.default"


def _decompositions() -> Mapping[Any, Any]:
    from torch.export import default_decompositions

    return default_decompositions()


# ---- torch.export and ExecuTorch


def _exported(what: ModuleToExport) -> ExportedProgram:
    import torch

    with quiet():
        try:
            return torch.export.export(
                what.module,
                what.inputs,
                dict(what.keywords),
                dynamic_shapes=what.dynamic_shapes,
            )
        except Exception as error:  # whatever the module, or torch.export, raises
            raise ProgramInvalid(
                f"torch.export cannot export `{what.name}`: {_said(error)}",
                remedy="mend the module until torch.export.export(module, inputs) works",
            ) from error


def _started(exported: ExportedProgram) -> list[str]:
    """The placeholders of buffers that ``exported`` changes and that do not start with zeros.

    ExecuTorch writes their values to the program only where it is asked to, and else leaves zeros there.
    """
    signature = exported.graph_signature
    changed = set(signature.buffers_to_mutate.values())
    values = {**exported.constants, **exported.state_dict}
    return [
        placeholder
        for placeholder, buffer in signature.inputs_to_buffers.items()
        if buffer in changed and bool(values[buffer].any())
    ]


def _lowered(
    exported: ExportedProgram, preserved: Iterable[str], name: str, *, keeps_layouts: bool
) -> tuple[bytes, tuple[GraphNode, ...]]:
    """The program's bytes, and the nodes of the graph that they are written of.

    Unless it ``keeps_layouts``, images are copied for what ExecuTorch's own kernels take contiguous only,
    whoever serves it.
    """
    import torch

    # Trained parameters require a gradient, and so would the buffers that are written from them.
    with quiet(), torch.no_grad():
        try:
            from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge
            from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass
        except ImportError:
            raise ExecutorchMissing(
                "exporting a program needs ExecuTorch, which is not installed",
                remedy=INSTALL,
            ) from None
        known = {str(operator): operator for operator in _decompositions()}
        config = EdgeCompileConfig(
            preserve_ops=[known[_overload(each)] for each in preserved],
            # Who has kernels is asked afterwards, of operators outside of Core ATen too.
            _core_aten_ops_exception_list=_operators(exported),
        )
        nodes = graph_nodes(exported.graph_module)
        try:
            edge = to_edge(exported, compile_config=config)
            nodes = graph_nodes(edge.exported_program().graph_module)
            config._skip_dim_order = keeps_layouts  # from here on it stands for these copies alone
            started = _started(edge.exported_program())
            program = edge.to_executorch(
                ExecutorchBackendConfig(
                    passes=[InitializedMutableBufferPass(started)] if started else [],
                    constant_tensor_alignment=_CACHE_LINE,
                )
            )
            buffer: bytes = program.buffer
        except Exception as error:  # whatever ExecuTorch's passes raise for what they do not know
            missing = _without_out_variant(error)
            places = "".join(_places(each, nodes) for each in missing)
            raise ProgramInvalid(
                f"ExecuTorch cannot lower `{name}`: {_said(error)}{places}",
                remedy=_remedy(missing),
            ) from error
        return buffer, graph_nodes(program.exported_program().graph_module)


def _operators(exported: ExportedProgram) -> list[Any]:
    """The operators that the graph and those in it call, and the functional ones of in-place calls."""
    import torch

    from opsmith.schema.torch_names import OpOverload

    found = {
        node.target: None
        for module in exported.graph_module.modules()
        if isinstance(module, torch.fx.GraphModule)
        for node in module.graph.nodes
        if isinstance(node.target, OpOverload)
    }
    functional = []
    for operator in found:
        namespace, name, overload = str(operator).split(".")
        packet = getattr(getattr(torch.ops, namespace), name.removesuffix("_"), None)
        functional.append(getattr(packet, overload, operator))
    return [*found, *functional]


def _without_out_variant(error: Exception) -> list[str]:
    """The operators that ExecuTorch's error names: ``Missing out variants: {'chip::scale'}``."""
    names = _MISSING_OUT.search(str(error))
    return re.findall(r"'([\w:.]+)'", names[1]) if names else []


def _remedy(missing: Sequence[str]) -> str:
    """The remedy for an error that says of the operators ``missing`` that they have no out variants."""
    if not missing:
        return "the error is ExecuTorch's own: write the call that it names with other operators"
    return _OF_TORCHAO if any(map(_is_torchao, missing)) else _OF_CUSTOM


def _is_torchao(operator: str) -> bool:
    return operator.startswith("torchao::")


def _saved(exported: ExportedProgram, extra_files: Mapping[str, str]) -> bytes:
    import torch

    content = io.BytesIO()
    with quiet():
        torch.export.save(exported, content, extra_files=dict(extra_files))
    return content.getvalue()


def _said(error: Exception) -> str:
    """The first lines of what an exception says."""
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return f"{type(error).__name__}" + "".join(f"\n  {line}" for line in lines[:4])
