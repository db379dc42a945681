"""Facts about operators that opsmith needs, as immutable values.

An :class:`Operator` is one overload with its schema; a :class:`Group` holds the variants of one
operator.  They carry facts from ``native_functions.yaml`` only and no decision: those are the plan's.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Variant(Enum):
    """How an operator hands back its result; torchgen's ``SchemaKind``."""

    FUNCTIONAL = "functional"
    INPLACE = "in-place"
    OUT = "out"
    MUTABLE = "mutable"
    SCRATCH = "scratch"

    # Members are compared by identity; Enum's own hash is a function in Python, and plans look up millions.
    __hash__ = object.__hash__

    @property
    def returns_new(self) -> bool:
        """Whether what it returns is newly made; a mutable operator writes to other arguments beside that."""
        return self in (Variant.FUNCTIONAL, Variant.MUTABLE)


class Composite(Enum):
    """The composite kernel with which PyTorch serves an operator on any backend, by dispatch key."""

    NONE = ""
    IMPLICIT = "CompositeImplicitAutograd"
    EXPLICIT = "CompositeExplicitAutograd"
    NON_FUNCTIONAL = "CompositeExplicitAutogradNonFunctional"


# The tag of an operator that nobody wrote: a variant that was made from another.
GENERATED = "generated"


def qualified(name: str) -> str:
    """The operator's name with its namespace: ``add.Tensor`` → ``aten::add.Tensor``."""
    return name if "::" in name else f"aten::{name}"


@dataclass(frozen=True, slots=True)
class Result:
    """One thing that an operator gives back: a Tensor, or ``many`` in a list.

    ``name`` is the argument that holds it: one of ``out``, or what is changed in place; of a functional
    operator, the name of the return, which is often empty.
    """

    name: str
    many: bool = False


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator: one overload of one schema.

    ``name`` is the overload name (``add.Tensor``), with its namespace where that is not ``aten``
    (``myop::scale.out``); ``schema`` the text of ``native_functions.yaml``, without the namespace;
    ``tags`` PyTorch's tags (``core``, ``pointwise``, …).
    ``factory``: it takes dtype, layout and device of its result.
    ``results`` are the Tensors and lists of Tensors that it gives back, or ``None`` where it gives back
    anything else.  The variants of a group have the same ones in the same order: first what is returned,
    ``out`` or ``self``, then the other arguments that the operator changes, of which a functional variant
    returns new versions (``_fused_adam``, ``rrelu_with_noise``).
    ``tensor_arguments`` names the arguments that are Tensors or hold some, outputs last.
    ``meta``: PyTorch has a kernel for the meta device, which tells the shapes and dtypes of the results.
    ``one_device``: PyTorch checks that all of these are on the same device.
    ``composed_layouts``: the dispatch keys of PyTorch's kernels that take or make nested, sparse or quantized
    tensors and are made of other operators, so that they serve any device.
    ``host_layouts``: the keys of the CPU's kernels on such tensors that stand beside a composite kernel,
    which does not do for them.
    """

    name: str
    schema: str
    variant: Variant
    composite: Composite = Composite.NONE
    view: bool = False
    factory: bool = False
    tags: tuple[str, ...] = ()
    results: tuple[Result, ...] | None = None
    tensor_arguments: tuple[str, ...] = ()
    namespace: str = "aten"
    meta: bool = True
    one_device: bool = True
    composed_layouts: tuple[str, ...] = ()
    host_layouts: tuple[str, ...] = ()

    @property
    def qualified_name(self) -> str:
        """The name by which the dispatcher knows it, e.g. ``aten::add.Tensor``."""
        return qualified(self.name)


@dataclass(frozen=True, slots=True)
class Group:
    """The variants of one operator, by operator name (torchgen: ``NativeFunctionsGroup``).

    ``mutable``: one that returns new results as the functional does, and writes to arguments of which
    that returns new versions.  No other variant is derived from it, so it is none of the members.
    ``structured``: PyTorch has a ``meta`` for it that checks and shapes;
    ``iterator``: that meta builds a ``TensorIteratorBase``.
    """

    functional: str | None = None
    inplace: str | None = None
    out: str | None = None
    mutable: str | None = None
    structured: bool = False
    iterator: bool = False

    def members(self) -> tuple[tuple[Variant, str], ...]:
        """The variants that exist, functional first."""
        members = []
        if self.functional is not None:
            members.append((Variant.FUNCTIONAL, self.functional))
        if self.out is not None:
            members.append((Variant.OUT, self.out))
        if self.inplace is not None:
            members.append((Variant.INPLACE, self.inplace))
        return tuple(members)
