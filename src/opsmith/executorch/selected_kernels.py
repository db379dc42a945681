"""The kernels that a library needs for some programs: operators, by dtypes and dim orders, exactly.

Made of the programs' own calls, so that nothing is in it that no instruction asks for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from opsmith.executorch.program import ExecutorchProgram, KernelCall
from opsmith.plan.executorch.kernel_keys import TensorMeta, kernel_key


@dataclass(frozen=True)
class KernelUse:
    """One operator with Tensors of certain dtypes and dim orders, and who calls it how often.

    ``key`` is that of a kernel which would serve these calls alone.  ``programs`` are the files' names.
    """

    operator: str
    tensors: tuple[TensorMeta, ...]
    key: str
    calls: int
    programs: tuple[str, ...]


@dataclass(frozen=True)
class KernelSelection:
    """All that the ``programs`` use, sorted by operator; ``delegates`` run the rest of them."""

    programs: tuple[str, ...]
    kernels: tuple[KernelUse, ...]
    delegates: tuple[str, ...]

    @property
    def operators(self) -> tuple[str, ...]:
        """The operators, each once."""
        return tuple(dict.fromkeys(use.operator for use in self.kernels))


def select(programs: Iterable[ExecutorchProgram]) -> KernelSelection:
    """The kernels that ``programs`` use together."""
    uses: dict[tuple[str, tuple[TensorMeta, ...]], list[tuple[str, KernelCall]]] = {}
    listed = list(programs)
    for program in listed:
        for call in program.calls:
            uses.setdefault((call.form.operator, call.form.tensors), []).append(
                (str(program.path), call)
            )
    return KernelSelection(
        tuple(str(program.path) for program in listed),
        tuple(
            KernelUse(
                operator,
                tensors,
                kernel_key(tensors),
                len(calls),
                tuple(dict.fromkeys(path for path, _ in calls)),
            )
            for (operator, tensors), calls in sorted(uses.items())
        ),
        tuple(sorted({delegate for program in listed for delegate in program.delegates})),
    )
