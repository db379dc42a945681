"""The code that ``torch.compile`` generates for a device, and the operators that it leaves to kernels.

Inductor makes loops over elements of what it decomposes, and fuses them.  Fusion wins where an operator is
such loops: each element from those at its place, reductions, and what only moves elements.  Any other
operator with a kernel of its own is called as it is.  Called by the resolver.
"""

from __future__ import annotations

from collections.abc import Iterable

from opsmith.description import Backend, Inductor
from opsmith.errors import InductorRejected
from opsmith.plan.model import Compiling, Entry, Route
from opsmith.schema import Catalogue

# Routes on which a kernel of the backend's own serves.
_OWN = frozenset({Route.KERNEL, Route.STRUCTURED, Route.STUB, Route.DERIVED})

# Operators that are loops over elements and have no tag `pointwise`: those that reduce, those that normalise,
# losses, what makes Tensors and what moves elements.
_LOOPS = frozenset(
    """
    all amax amin aminmax any argmax argmin count_nonzero linalg_vector_norm logsumexp max mean min
    nansum norm
    prod std std_mean sum var var_mean
    _batch_norm_no_update _batch_norm_with_update _batch_norm_with_update_functional _fused_rms_norm
    _fused_rms_norm_backward _log_softmax _log_softmax_backward_data _native_batch_norm_legit
    _native_batch_norm_legit_functional _native_batch_norm_legit_no_training _safe_softmax _softmax
    _softmax_backward_data batch_norm_backward native_batch_norm native_batch_norm_backward native_group_norm
    native_group_norm_backward native_layer_norm native_layer_norm_backward
    binary_cross_entropy binary_cross_entropy_backward huber_loss huber_loss_backward mse_loss
    mse_loss_backward smooth_l1_loss smooth_l1_loss_backward soft_margin_loss soft_margin_loss_backward
    _prelu_kernel _prelu_kernel_backward elu_backward gelu_backward glu glu_backward hardsigmoid
    hardsigmoid_backward hardswish hardswish_backward hardtanh hardtanh_backward leaky_relu_backward
    log_sigmoid_backward log_sigmoid_forward
    logit_backward mish_backward native_dropout native_dropout_backward sigmoid_backward silu_backward
    softplus_backward softshrink_backward tanh_backward threshold_backward
    _to_copy _unsafe_index _unsafe_view alias_copy arange cat clone constant_pad_nd copy detach_copy
    diag_embed
    diagonal_copy diagonal_scatter embedding empty_like expand_copy eye fill flip full full_like gather index
    index_select linspace masked_fill narrow_copy new_empty new_full new_ones new_zeros ones ones_like
    permute_copy pixel_shuffle pixel_unshuffle reflection_pad1d reflection_pad2d reflection_pad3d repeat
    replication_pad1d replication_pad2d replication_pad3d roll rsub scalar_tensor select_copy select_scatter
    slice_copy slice_scatter split_with_sizes_copy squeeze_copy stack t_copy transpose_copy tril triu
    unbind_copy
    unfold_copy unsqueeze_copy view_copy where zero zeros zeros_like
    """.split()
)

# Inductor's C++ for these looks up another map for each element, and is vectorised for channels-last alone.
_LOOKING_UP = frozenset("avg_pool2d_backward max_pool2d_with_indices_backward".split())

# Operators that a fused kernel cannot compute: C has no such functions, or no type for the result.
_NOT_IN_C = frozenset(
    """
    angle complex conj_physical digamma erfinv frexp i0 igamma igammac imag ldexp mvlgamma nan_to_num polar
    polygamma real resolve_conj resolve_neg sgn special_bessel_j0 special_bessel_j1 special_entr
    special_erfcx special_i0e special_i1 special_i1e special_log_ndtr special_ndtri special_zeta
    view_as_complex
    view_as_real
    """.split()
)


def compiling(backend: Backend, catalogue: Catalogue, entries: Iterable[Entry]) -> Compiling:
    """The :class:`Compiling` of ``backend``, whose plan has ``entries``.

    Raises :class:`InductorRejected` for a way that its driver cannot go.
    """
    inductor, reason = _way(backend)
    aten = {name: each for name, each in catalogue.operators.items() if each.namespace == "aten"}
    pointwise = {_base(each) for each, known in aten.items() if "pointwise" in known.tags}
    # Operators on lists do the same to each tensor.
    loops = {name for name in aten if _base(name).removeprefix("_foreach_") in pointwise | _LOOPS}
    own = [
        entry.name
        for entry in entries
        if entry.route in _OWN and "!" not in catalogue.operators[entry.name].schema
    ]
    # Inductor brings convolutions to channels-last, as PyTorch's own libraries are fastest with.
    keeps_layouts = "convolution" in own
    fused = next((each.fused_kernel for each in backend.libraries if each.fused_kernel), None)
    if inductor is Inductor.EAGER_KERNELS and fused is None:
        return Compiling(inductor, reason, tuple(own), keeps_layouts=keeps_layouts)
    kept = tuple(name for name in own if name not in loops)
    if inductor is Inductor.TRITON:
        return Compiling(inductor, reason, kept, triton=backend.triton)
    if inductor is Inductor.CPP:
        called = tuple(name for name in kept if _base(name) in _LOOKING_UP)
        return Compiling(inductor, reason, kept, called, keeps_layouts=keeps_layouts)
    calculated = sorted(name for name in loops if _base(name) not in _NOT_IN_C)
    return Compiling(
        inductor,
        reason,
        kept,
        fused_kernel=fused,
        fused=tuple(calculated),
        keeps_layouts=keeps_layouts,
    )


def _base(name: str) -> str:
    return name.partition(".")[0]


def _way(backend: Backend) -> tuple[Inductor, str]:
    has_window = backend.driver.host_window
    asked = backend.inductor
    wanted = f"the description says `inductor: {asked.value}`" if asked else ""
    if asked is Inductor.CPP and not has_window and not backend.driver.window_is_hidden:
        raise InductorRejected(
            "`inductor: cpp` generates C++ that reads and writes through a host window, which `host_window: "
            "off` says the driver has not",
            location=backend.inductor_location,
            remedy="leave `inductor` out, or write `inductor: eager-kernels`",
        )
    if asked is Inductor.CPP and has_window:
        return asked, wanted
    if asked is None and has_window:
        return Inductor.CPP, "the driver has a host window, on which Inductor's C++ runs"
    if asked in (Inductor.EAGER_KERNELS, Inductor.TRITON):
        return asked, wanted
    return Inductor.EAGER_KERNELS, "the driver has no host window"
