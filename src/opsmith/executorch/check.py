"""Before a program is deployed: who will serve each of its calls, who nobody, and how much memory it takes.

Reads the program and the libraries, and runs neither.  Called by ``opsmith executorch check``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from opsmith.base.cache_folder import cache_root
from opsmith.build.progress import OnProgress, Progress
from opsmith.errors import OperatorsUnserved, nearest
from opsmith.executorch.named_libraries import (
    NamedLibrary,
    check_served,
    check_together,
    named_libraries,
)
from opsmith.executorch.program import ExecutorchProgram, read_program
from opsmith.executorch.runtime import installed_runtime
from opsmith.plan.executorch.built_libraries import BuiltForm, serve_built
from opsmith.plan.executorch.resolver import Runtime


@dataclass(frozen=True)
class NeededMemory:
    """The bytes that a program takes: ``planned`` for the Tensors of each method, and ``data``.

    ``data`` are the weights, and what its delegates are given.  What kernels and delegates allocate while
    they run is the runtime's to grant, and not in the file.
    """

    planned: Mapping[str, int]
    data: int

    @property
    def peak(self) -> int:
        """Of the method that needs most, with the data."""
        return max(self.planned.values(), default=0) + self.data


@dataclass(frozen=True)
class ProgramCheck:
    """The check of a program: who serves each form of call, and how often it is called.

    ``missing_delegates`` are those that the runtime has not.
    """

    program: ExecutorchProgram
    libraries: tuple[NamedLibrary, ...]
    runtime: Runtime
    forms: tuple[BuiltForm, ...]
    calls: tuple[int, ...]
    missing_delegates: tuple[str, ...]
    memory: NeededMemory

    @property
    def is_complete(self) -> bool:
        """Whether everything is served."""
        return not self.missing_delegates and all(each.is_served for each in self.forms)

    def require_complete(self) -> None:
        """Raises :class:`~opsmith.errors.OperatorsUnserved` for what nobody serves, all of it."""
        check_served(self.program.path, self.forms, self.libraries, self.runtime)
        if self.missing_delegates:
            known = sorted(self.runtime.delegates)
            names = ", ".join(f"{each}{nearest(each, known)}" for each in self.missing_delegates)
            raise OperatorsUnserved(
                f"`{self.program.path}` leaves a part to delegates that ExecuTorch {self.runtime.version} "
                f"has not here: {names}",
                remedy="export it without that partitioner, or run it where the delegate is; here are "
                + (", ".join(known) or "none"),
            )


def check_program(
    path: Path,
    libraries: Sequence[Path] = (),
    *,
    runtime_kernels: bool = True,
    progress: OnProgress | None = None,
) -> ProgramCheck:
    """Checks who would serve the calls of the program ``path`` with ``libraries``, files or folders with one.

    Without ``runtime_kernels`` ExecuTorch's own are left out, as by a runner that links the runtime alone.
    Raises :class:`~opsmith.errors.ProgramInvalid` and :class:`~opsmith.errors.LibraryRejected`.
    """
    report = progress or (lambda step: None)
    report(Progress(f"reading {path.name}"))
    program = read_program(path)
    # Nothing is loaded: what is deployed elsewhere is asked about here.
    named = named_libraries(libraries, anywhere=True)
    installed = installed_runtime(cache_root())
    runtime = installed if runtime_kernels else installed.without_kernels()
    counts = Counter(call.form for call in program.calls)
    check_together(named, runtime, counts)
    forms = serve_built([each.description for each in named], runtime, sorted(counts, key=str))
    missing = set(program.delegates) - installed.delegates
    return ProgramCheck(
        program,
        named,
        runtime,
        forms,
        tuple(counts[each.form] for each in forms),
        tuple(sorted(missing)) if runtime_kernels else (),
        NeededMemory(
            {method: sum(sizes) for method, sizes in program.buffers.items()}, program.data.total
        ),
    )
