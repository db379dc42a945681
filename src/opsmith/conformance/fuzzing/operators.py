"""The operators of ATen that random programs call, and why the others are left out."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from opsmith.conformance.fuzzing.execution import call_of
from opsmith.schema import GENERATED, Catalogue, Operator, Variant, read_catalogue

LEFT_OUT = {
    "its values are what the memory held": (
        "empty", "empty_*", "new_empty*", "resize*",
    ),
    "its memory or its device is the caller's affair": (
        "set_", "set_data", "from_file", "pin_memory", "is_pinned", "record_stream", "data", "copy_sparse*",
        "is_set_to", "sym_constrain*", "get_device", "output_nr", "retain*", "is_inference",
        "is_distributed", "is_vulkan*", "cudnn_is_acceptable", "get_gradients", "requires_grad_",
    ),
    "it is about other layouts than strided ones": (
        "*sparse*", "*_bs[rc]*", "*_cs[rc]*", "c*_indices*", "row_indices*", "indices", "indices_copy",
        "values", "values_copy", "coalesce", "is_coalesced", "dense_dim", "to_dense*", "hspmm", "smm",
        "sspaddmm", "*nested*", "*padded_tensor*", "*mkldnn*",
    ),
    "it quantizes": (
        "*quantize*", "*quant*", "fbgemm*", "q_*", "qscheme", "int_repr", "dequantize", "choose_qparams*",
    ),
    "it belongs to another device": (
        "*cudnn*", "*miopen*", "*mps*", "*overrideable", "batch_norm_*", "*thnn*", "conv_depthwise3d",
    ),
    "nobody calls it but linalg_vector_norm": ("linalg__powsum",),
    "nobody calls it but group_norm, with operands that it has made contiguous": ("native_group_norm",),
    "a text says what it computes": ("einsum",),
    "it takes weights of recurrent cells, as OpInfo makes them": ("*rnn*", "*lstm*", "*gru*"),
    "it is called by gradients, with what the forward operator has checked": (
        "*_backward", "*_backward_*", "*_jvp", "slow_conv*_forward", "*dropout*",
    ),
    "PyTorch's CPU crashes on arguments that it does not check, or reads memory that is not theirs": (
        "segment_reduce", "multi_margin_loss", "multilabel_margin_loss*", "flatten_dense_tensors",
        "unflatten_dense_tensors", "*ctc_loss*", "native_norm", "affine_grid_generator",
        "embedding_bag", "embedding_renorm_", "fractional_max_pool*", "max_unpool*", "geqrf", "ormqr",
        "orgqr", "linalg_householder_product", "lu_unpack", "linalg_lu_solve", "linalg_ldl_solve", "lu_solve",
        "slow_conv*", "histogramdd*", "stft", "istft", "slice_inverse", "lift*",
    ),
    "decompositions have more than one right result": (
        "linalg_eig*", "linalg_svd", "svd", "qr", "linalg_qr", "linalg_ldl*", "linalg_lstsq",
    ),
}  # fmt: skip
"""By their names without the overload; each pattern's reason stands above it."""

_INTERNAL = {
    "_softmax", "_log_softmax", "_to_copy", "_conj", "_conj_physical",
    "_unsafe_view",
}  # fmt: skip
"""The internal operators that are called all the same: those that ordinary programs reach most."""

_HOST_OPERANDS = {"tensor_split.tensor_indices_or_sections"}

_INTERNAL_REASON = "it is internal: who calls it has checked the arguments"


@dataclass(frozen=True)
class Parameter:
    """One parameter of a schema: its type as PyTorch writes it, ``Optional[List[int]]``."""

    name: str
    type: str
    optional: bool
    keyword: bool
    is_out: bool
    is_written: bool
    default: object = None

    @property
    def kind(self) -> str:
        """The type without its ``Optional``."""
        return self.type[9:-1] if self.type.startswith("Optional[") else self.type


@dataclass(frozen=True)
class Signature:
    """An operator that programs call: ``name`` is its base name, ``operator`` the whole one."""

    operator: str
    base: str
    parameters: tuple[Parameter, ...]
    variant: Variant
    functional: str | None
    is_pointwise: bool
    is_data_dependent: bool
    is_factory: bool

    @property
    def takes_host_scalars(self) -> bool:
        """Whether its second operand may be a number in a Tensor on the CPU, as on other devices."""
        tensors = [each for each in self.parameters if each.kind == "Tensor" and not each.is_out]
        return self.is_pointwise and len(tensors) == 2


def reason_left_out(operator: Operator) -> str:
    """Why no program calls ``operator``; empty where some do."""
    base = operator.name.partition(".")[0]
    if GENERATED in operator.tags:
        return "nobody wrote it: PyTorch makes it of another variant"
    if "nondeterministic_seeded" in operator.tags:
        return "it is random"
    for reason, patterns in LEFT_OUT.items():
        if any(fnmatchcase(base, pattern) for pattern in patterns):
            return reason
    if base.startswith("_") and base not in _INTERNAL:
        return _INTERNAL_REASON
    if "Dimname" in operator.schema:
        return "it names dimensions"
    if operator.name in _HOST_OPERANDS:
        return "it wants an operand on the CPU"
    return ""


@functools.cache
def signatures() -> Mapping[str, tuple[Signature, ...]]:
    """The overloads that programs call, by base name, in the order of the names."""
    catalogue = read_catalogue()
    found: dict[str, list[Signature]] = {}
    for name in sorted(catalogue.operators):
        operator = catalogue.operators[name]
        if operator.namespace == "aten" and not reason_left_out(operator):
            signature = _signature(operator, catalogue)
            if all(_can_be_drawn(parameter) for parameter in signature.parameters):
                found.setdefault(signature.base, []).append(signature)
    return {base: tuple(overloads) for base, overloads in found.items()}


STRINGS = {
    "rounding_mode": ("floor", "trunc"),
    "approximate": ("none", "tanh"),
    "indexing": ("ij", "xy"),
    "reduce": ("sum", "prod", "mean", "amax", "amin", "add", "multiply"),
    "interpolation": ("linear", "lower", "higher", "midpoint", "nearest"),
    "side": ("left", "right"),
    "mode": ("constant", "reflect", "replicate", "circular"),
    "norm": ("backward", "forward", "ortho"),
    "ord": ("fro", "nuc"),
    "p": ("fro", "nuc"),
    "padding_side": ("left", "right"),
    "padding": ("same", "valid"),
}
"""The values of string arguments, by the parameter's name."""


def _can_be_drawn(parameter: Parameter) -> bool:
    if parameter.optional and parameter.type != parameter.kind:
        return True
    return parameter.name in STRINGS if parameter.kind == "str" else parameter.kind in _KINDS


_KINDS = {
    "Tensor", "List[Tensor]", "List[Optional[Tensor]]", "int", "List[int]", "bool", "List[bool]", "float",
    "List[float]", "number", "List[number]", "ScalarType", "Device", "Layout", "MemoryFormat",
}  # fmt: skip


def _signature(operator: Operator, catalogue: Catalogue) -> Signature:
    group = catalogue.group_of.get(operator.name)
    return Signature(
        operator.name,
        operator.name.partition(".")[0],
        tuple(
            Parameter(
                argument.name,
                str(argument.real_type),
                argument.has_default_value() or str(argument.real_type).startswith("Optional"),
                argument.kwarg_only,
                argument.is_out,
                argument.is_write,
                argument.default_value if argument.has_default_value() else None,
            )
            for argument in call_of(operator.name)._schema.arguments
        ),
        operator.variant,
        group.functional if group else None,
        "pointwise" in operator.tags,
        bool({"dynamic_output_shape", "data_dependent_output"} & {*operator.tags}),
        operator.factory,
    )
