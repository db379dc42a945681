"""Which kernels take scaled dot-product attention as one call, and which calls.

PyTorch asks ``_fused_sdp_choice`` of a device by which of its ways a call is to be computed: as one
operator, ``_scaled_dot_product_fused_attention_overrideable``, or by its parts.  A library has a kernel for
that operator, or, since its results are not all Tensors, one on lean tensors for
``opsmith_fused::attention``, around which opsmith's runtime has a kernel for PyTorch's.  Called by the
resolver, and by ``emit`` for what the runtime answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from opsmith.description import Abi, AttentionFeature, AttentionLimits, Kernel, Library
from opsmith.errors import KernelRejected
from opsmith.plan.model import Entry, Route
from opsmith.schema import Catalogue

ATTENTION = "scaled_dot_product_attention"
CHOICE = "_fused_sdp_choice"
FORWARD = "_scaled_dot_product_fused_attention_overrideable"
BACKWARD = "_scaled_dot_product_fused_attention_overrideable_backward"
SAFE_SOFTMAX = "_safe_softmax"

FUSED_NAMESPACE = "opsmith_fused"
FUSED = {
    FORWARD: "opsmith_fused::attention",
    BACKWARD: "opsmith_fused::attention_backward",
    SAFE_SOFTMAX: "opsmith_fused::safe_softmax",
}
"""The operators of opsmith's own that kernels on lean tensors are given for, by those that they serve."""

# Their schemas: what the runtime calls.
_SCHEMAS = {
    f"opsmith_fused::{schema.partition('(')[0]}": schema
    for schema in (
        "attention.out(Tensor query, Tensor key, Tensor value, Tensor? bias, bool is_causal, float scale, *, "
        "Tensor(a!) out, Tensor(b!) logsumexp) -> (Tensor(a!), Tensor(b!))",
        "attention_backward.out(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor? bias, "
        "Tensor out, Tensor logsumexp, bool is_causal, float scale, *, Tensor(a!) grad_query, Tensor(b!) "
        "grad_key, Tensor(c!) grad_value) -> (Tensor(a!), Tensor(b!), Tensor(c!))",
        "safe_softmax.out(Tensor self, int dim, *, Tensor(a!) out) -> Tensor(a!)",
    )
}
_LIMITED = frozenset({FORWARD, BACKWARD, *_SCHEMAS})

# Features that the schema of `opsmith_fused::attention` cannot express.
_NEVER_FUSED = (AttentionFeature.DROPOUT, AttentionFeature.MASK_GRADIENT)

_NOT = {
    AttentionFeature.DROPOUT: "dropout",
    AttentionFeature.MASK: "a mask",
    AttentionFeature.MASK_GRADIENT: "a mask's gradient",
    AttentionFeature.CAUSAL: "`is_causal`",
    AttentionFeature.GROUPED_HEADS: "fewer heads of keys than of queries",
    AttentionFeature.OTHER_VALUE_DIM: "values of another dim",
}


@dataclass(frozen=True)
class AttentionKernel:
    """A kernel and the calls that it takes: of ``dtypes`` (empty: all), within ``limits``."""

    kernel: Kernel
    dtypes: tuple[str, ...]
    limits: AttentionLimits

    @property
    def claims(self) -> str:
        """The calls that it takes, in words."""
        parts = ["/".join(self.dtypes)] if self.dtypes else []
        if self.limits.most_head_dim is not None:
            parts.append(f"head dims up to {self.limits.most_head_dim}")
        if self.limits.head_dim_multiple > 1:
            parts.append(f"multiples of {self.limits.head_dim_multiple}")
        if self.limits.without:
            parts.append(f"without {' or '.join(_NOT[each] for each in self.limits.without)}")
        return ", ".join(parts)


@dataclass(frozen=True)
class FusedAttention:
    """The kernels of a plan, in the order in which they are asked, and the dtypes of `_safe_softmax`'s."""

    forward: tuple[AttentionKernel, ...]
    backward: tuple[AttentionKernel, ...]
    safe_softmax: tuple[str, ...]

    @property
    def why(self) -> str:
        """The answer of the device, in words."""
        if not self.forward:
            return (
                "answers that attention is computed by its parts: no library has a kernel for "
                f"`{FORWARD}` or `{FUSED[FORWARD]}`"
            )
        taken = "; ".join(
            f"`{each.kernel.symbol}` ({each.kernel.location}) takes {each.claims or 'every call'}"
            for each in self.forward
        )
        gradients = (
            "" if self.backward else "; where no gradient is needed: no library has its backward"
        )
        return (
            f"answers `overrideable`, PyTorch's word for one call, where {taken}{gradients}; else that it is "
            "computed by its parts"
        )


def fused_attention(entry_of: Callable[[str], Entry | None]) -> FusedAttention:
    """The kernels among a plan's entries, which ``entry_of`` gives by name."""
    softmax = entry_of(FUSED[SAFE_SOFTMAX])
    taken = {
        name for link in _links(softmax) if link.kernel for name in _dtypes(link.kernel, "self")
    }
    return FusedAttention(
        tuple(_kernels(FORWARD, entry_of)),
        tuple(_kernels(BACKWARD, entry_of)),
        tuple(sorted(taken)),
    )


def _kernels(name: str, entry_of: Callable[[str], Entry | None]) -> Iterator[AttentionKernel]:
    for link in _links(entry_of(name)):
        assert link.kernel is not None
        if link.route is not Route.KERNEL:
            continue
        if link.kernel.library != "runtime":
            yield _attention_kernel(link.kernel, ())
            continue
        for fused in _links(entry_of(FUSED[name])):
            assert fused.kernel is not None
            yield _attention_kernel(fused.kernel, _NEVER_FUSED)


def _links(entry: Entry | None) -> Iterator[Entry]:
    if entry is not None:
        yield from (link for link in entry.chain if link.kernel is not None)


def _attention_kernel(kernel: Kernel, never: tuple[AttentionFeature, ...]) -> AttentionKernel:
    limits = kernel.attention or AttentionLimits()
    without = tuple(each for each in AttentionFeature if each in {*limits.without, *never})
    return AttentionKernel(kernel, _dtypes(kernel, "query"), replace(limits, without=without))


def _dtypes(kernel: Kernel, argument: str) -> tuple[str, ...]:
    """The dtypes that ``kernel`` takes of ``argument``; empty for all."""
    for name, dtypes in kernel.dtypes:
        if name in ("", argument):
            return dtypes
    return next((meta.dtypes for meta in kernel.arg_meta if meta.argument == argument), ())


def check_attention(kernel: Kernel, catalogue: Catalogue) -> None:
    """Raises :class:`KernelRejected` for a kernel that says of attention what nobody would heed.

    And for one of opsmith's own operators that is declared with another schema.
    """
    if kernel.attention is not None and kernel.operator not in _LIMITED:
        raise KernelRejected(
            f"`attention` says which calls of scaled dot-product attention a kernel takes, and "
            f"`{kernel.operator}` is none",
            location=kernel.location,
            remedy=f"remove `attention`: it belongs to `{FORWARD}` and to `{FUSED[FORWARD]}.out`",
        )
    if not kernel.operator.startswith(f"{FUSED_NAMESPACE}::"):
        return
    operator = catalogue.operators.get(kernel.operator)
    wanted = _SCHEMAS.get(kernel.operator)
    if wanted is None:
        raise KernelRejected(
            f"`{kernel.operator}` is in `{FUSED_NAMESPACE}`, whose operators opsmith's runtime calls, and is "
            "none of them",
            location=kernel.location,
            remedy=f"choose another namespace; those in `{FUSED_NAMESPACE}` are {', '.join(_SCHEMAS)}",
        )
    if operator is not None and operator.schema != wanted:
        raise KernelRejected(
            f"opsmith's runtime calls `{kernel.operator}` with another schema than `{operator.schema}`",
            location=kernel.location,
            remedy=f'write `func: "{FUSED_NAMESPACE}::{wanted}"`',
        )


def has_fused(name: str, libraries: tuple[Library, ...], usable: Callable[[Kernel], bool]) -> bool:
    """Whether some library has a kernel for the operator of opsmith's own that serves ``name``."""
    wanted = f"{FUSED[name]}.out"
    return any(
        kernel.operator == wanted and kernel.abi is Abi.EXECUTORCH and usable(kernel)
        for library in libraries
        for kernel in library.kernels
    )
