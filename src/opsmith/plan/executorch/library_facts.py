"""The description of a built kernel library for ExecuTorch: the JSON that is written into its file.

``emit`` writes it, ``executorch`` reads it without loading the library, and chooses by it which of the
kernels are registered for a program that was not known when the library was built.
"""

from __future__ import annotations

from dataclasses import dataclass

from opsmith.description import ArgMeta, DimOrder
from opsmith.plan.executorch.resolver import ExecutorchPlan

FORMAT = 1


@dataclass(frozen=True)
class BuiltFor:
    """The target of a library: it serves in the same ExecuTorch, Python and processor only.

    ``python`` is the tag of CPython's extension modules (``cpython-311``), which is in the file name of the
    runtime; ``machine`` is ``uname``'s, ``x86_64``.
    """

    executorch: str
    python: str
    machine: str


@dataclass(frozen=True)
class DescribedKernel:
    """A kernel of the library, as :class:`~opsmith.plan.executorch.resolver.LibraryKernel` has it.

    ``arguments`` are the names of the schema's arguments, in its order.  ``compiled_for`` are the keys of the
    calls that it knows; empty where it knows all that the rest names.
    """

    operator: str
    arguments: tuple[str, ...]
    library: str
    symbol: str
    keys: tuple[str, ...]
    unkeyed: bool
    dtypes: tuple[tuple[str, tuple[str, ...]], ...]
    dim_order: DimOrder
    arg_meta: tuple[ArgMeta, ...]
    compiled_for: tuple[str, ...] = ()


@dataclass(frozen=True)
class LibraryDescription:
    """The content of the file; ``selected``: its kernels know the dtypes and dim orders of their keys only.

    ``instruction_sets`` are those that the compiler could use everywhere, separated by spaces, as
    ``/proc/cpuinfo`` names them; they come last, since the compiler writes them.
    """

    format: int
    backend: str
    built_for: BuiltFor
    selected: bool
    kernels: tuple[DescribedKernel, ...]
    instruction_sets: str


def library_description(plan: ExecutorchPlan, built_for: BuiltFor) -> LibraryDescription:
    """The description of the library of ``plan``, before the compiler adds its instruction sets."""
    kernels = tuple(
        DescribedKernel(
            operator=each.operator.name,
            arguments=tuple(argument.name for argument in each.operator.arguments),
            library=each.kernel.library,
            symbol=each.kernel.symbol,
            keys=each.keys,
            unkeyed=each.unkeyed,
            dtypes=each.kernel.dtypes,
            dim_order=each.kernel.dim_order,
            arg_meta=each.kernel.arg_meta,
            # Keys say it too, where it has some.
            compiled_for=each.compiled_for if each.unkeyed else (),
        )
        for each in plan.kernels
    )
    return LibraryDescription(FORMAT, plan.backend, built_for, bool(plan.forms), kernels, "")
