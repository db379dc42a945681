"""A backend's kernel libraries → one shared library for ExecuTorch's runtime, whole or for some programs.

Plans, emits and compiles, or finds all of it in the cache; what is selected is compiled anew, with its
dtype switches cut down, of those sources that it needs.  Called by ``opsmith executorch build``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from opsmith.base.output_files import write_output
from opsmith.build.cache import usable_cache
from opsmith.build.compile import Compilation
from opsmith.build.csrc import CSRC, INCLUDE_DIRS
from opsmith.build.executorch import (
    ExecutorchInstallation,
    check_machine,
    find_target_executorch,
)
from opsmith.build.generated import write_generated
from opsmith.build.lean import OWN_SECTIONS, distinct_sources, lean_sources
from opsmith.build.own_options import own_link_flags
from opsmith.build.progress import OnProgress, Progress
from opsmith.build.shared_library import LeanSources, SharedLibrary
from opsmith.build.toolchain import Compiler, find_any_compiler
from opsmith.build.undefined import WantedFunction, located_undefined
from opsmith.description import Backend
from opsmith.emit.executorch import emit_executorch, kernel_declaration
from opsmith.errors import OperatorsUnserved, OutputRejected, SymbolUndefined
from opsmith.executorch.elf import ElfFile
from opsmith.executorch.program import ExecutorchProgram
from opsmith.executorch.runtime import installed_runtime
from opsmith.executorch.sizes import KernelSize, kernel_sizes, needed_objects, text_size
from opsmith.plan import OpenedBackend
from opsmith.plan.executorch.library_facts import BuiltFor
from opsmith.plan.executorch.resolver import (
    ExecutorchPlan,
    ServedForm,
    plan_executorch,
)

_REGISTRATION = tuple(sorted((CSRC / "executorch_library").glob("*.cpp")))


@dataclass(frozen=True)
class BuiltLibrary:
    """The library that :func:`build_library` wrote, and how large it is.

    ``text`` and ``full_text`` are bytes of code and constants, as ``size`` counts them: of this library,
    and of the one with all kernels of the backend.  ``forms`` says who serves what of the programs.
    """

    library: Path
    kernels: tuple[KernelSize, ...]
    forms: tuple[ServedForm, ...]
    text: int
    full_text: int


def build_library(
    description: Path,
    programs: Sequence[ExecutorchProgram],
    folder: Path,
    *,
    name: str = "",
    runtime_kernels: bool = True,
    progress: OnProgress | None = None,
) -> BuiltLibrary:
    """Builds the library of the backend described by the file ``description`` into ``folder``.

    With ``programs`` it holds what these call, for the dtypes that they have, and registers it when it
    is loaded; without, every kernel of the backend.  ``folder`` is made where it is missing, and has one
    shared library afterwards, ``lib<name>.so``: by default that of the backend.  Without ``runtime_kernels``
    it is for a runtime that has no kernels of its own, and serves all or is refused.  Raises a
    :class:`~opsmith.errors.DescriptionError`, a :class:`~opsmith.errors.BuildError`, or
    :class:`~opsmith.errors.OutputRejected`.
    """
    report = progress or (lambda step: None)
    builder = _Builder(description, report, name, runtime_kernels)
    file = f"lib{builder.name}.so"
    _check_folder(folder, file)
    full = builder.plan(None)
    full_library, objects = builder.build(full, builder.sources())
    plan, library = full, full_library
    if programs:
        plan = builder.plan(programs)
        library, objects = builder.build(plan, builder.selected(plan, objects))
    path = folder / file
    _write(path, library.read_bytes())
    return BuiltLibrary(
        path,
        kernel_sizes(plan.kernels, [path for _, path in objects]),
        plan.forms,
        text_size(library),
        text_size(full_library),
    )


class _Builder:
    """The building of one backend's libraries with what is installed."""

    def __init__(
        self, description: Path, report: OnProgress, name: str, runtime_kernels: bool
    ) -> None:
        self.report = report
        self.cache = usable_cache()
        self.compiler: Compiler = find_any_compiler(self.cache)
        self.executorch: ExecutorchInstallation = find_target_executorch()
        check_machine(
            self.executorch,
            self.compiler.machine,
            ElfFile.read(self.executorch.runtime).machine,
            self.compiler.command[0],
        )
        report(Progress("planning the kernels of ExecuTorch"))
        opened = OpenedBackend(description, self.cache)
        self.catalogue, self.backend = opened.catalogue, opened.description
        installed = installed_runtime(self.cache)
        self.runtime = installed if runtime_kernels else installed.without_kernels()
        self.name = name or f"{self.backend.name}_executorch"
        if not self.backend.executorch_libraries:
            raise OperatorsUnserved(
                f"no library of `{self.backend.name}` has kernels for ExecuTorch",
                location=self.backend.location,
                remedy="list one whose manifest says `abi: executorch`, such as portable",
            )

    def plan(self, programs: Sequence[ExecutorchProgram] | None) -> ExecutorchPlan:
        if programs is None:
            return plan_executorch(self.backend, self.catalogue, self.runtime)
        forms = [call.form for program in programs for call in program.calls]
        plan = plan_executorch(self.backend, self.catalogue, self.runtime, forms)
        if not plan.kernels:
            reasons = "".join(f"\n  {each.form}: {each.why}" for each in plan.forms)
            names = ", ".join(f"`{program.path}`" for program in programs)
            raise OperatorsUnserved(
                f"no library of `{self.backend.name}` serves anything that {names} calls{reasons}",
                location=self.backend.location,
                remedy="run it without a library: ExecuTorch has kernels for all of it",
            )
        return plan

    # ---- what is compiled

    def sources(self, flags: Sequence[str] = ()) -> tuple[LeanSources, ...]:
        """All sources of the backend's libraries."""
        return tuple(
            distinct_sources(
                sources
                for library in self.backend.executorch_libraries
                for sources in lean_sources(
                    library, self.executorch.headers, flags, self.compiler.machine
                )
            )
        )

    def selected(
        self, plan: ExecutorchPlan, objects: Sequence[tuple[Path, Path]]
    ) -> tuple[LeanSources, ...]:
        """The sources that ``plan`` needs, by the ``objects`` of all of them, compiled for it."""
        header = next(path for path in self._generated(plan) if path.suffix == ".h")
        flags = (*OWN_SECTIONS, f'-DOPSMITH_SELECTION_HEADER="{header.name}"')
        needed = needed_objects(
            [each.kernel.symbol for each in plan.kernels], [path for _, path in objects]
        )
        pending = iter(objects)
        chosen = []
        for group in self.sources(flags):
            places = [next(pending) for _ in group.sources]
            kept = tuple(source for source, path in places if path in needed)
            if kept:
                include_dirs = (*group.include_dirs, header.parent)
                chosen.append(replace(group, sources=kept, include_dirs=include_dirs))
        return tuple(chosen)

    def build(
        self, plan: ExecutorchPlan, sources: Sequence[LeanSources]
    ) -> tuple[Path, tuple[tuple[Path, Path], ...]]:
        """The built library, and the objects of its kernels' ``sources``."""
        self.report(Progress("generating C++"))
        registrations = [path for path in self._generated(plan) if path.suffix == ".cpp"]
        own = LeanSources((*registrations, *_REGISTRATION), self.executorch.headers, INCLUDE_DIRS)
        library = SharedLibrary(
            name=self.name,
            sources=(),
            lean=(*sources, own),
            libraries=self.executorch.libraries,
            own_link_flags=(
                *self.executorch.kernel_link_flags(self.name),
                *self._link_flags(),
                *own_link_flags(),
            ),
            own_libraries=tuple(
                dict.fromkeys(
                    name
                    for each in self.backend.executorch_libraries
                    for name in each.options.libraries
                )
            ),
        )
        compilation = Compilation([library], self.compiler, self.cache)
        try:
            log = self.cache / "logs" / f"{plan.backend}_executorch.log"
            compilation.run(log, self.report)
        except SymbolUndefined as error:
            raise located_undefined(error, _wanted(plan, self.backend)) from None
        count = len(own.sources)
        return compilation.outputs()[0], compilation.objects()[0][:-count]

    def _link_flags(self) -> Iterator[str]:
        for library in self.backend.executorch_libraries:
            yield from library.options.link_flags

    def _generated(self, plan: ExecutorchPlan) -> list[Path]:
        built_for = BuiltFor(self.executorch.version, self.executorch.python, self.compiler.machine)
        files = emit_executorch(plan, built_for)
        texts = {file.name: file.text for file in files}
        folder = write_generated(f"executorch-{plan.backend}", texts, self.cache)
        return [folder / file.name for file in files]


def _wanted(plan: ExecutorchPlan, backend: Backend) -> Iterator[WantedFunction]:
    libraries = {library.name: library for library in backend.libraries}
    for each in plan.kernels:
        yield WantedFunction(
            each.kernel.symbol,
            f"`{each.operator.name}`",
            each.kernel.location,
            libraries[each.kernel.library],
            partial(kernel_declaration, each),
        )


# ---- the folder


def _check_folder(folder: Path, name: str) -> None:
    """Raises :class:`~opsmith.errors.OutputRejected` where ``folder`` cannot hold the one library."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        others = [path for path in _shared_libraries(folder) if path.name != name]
    except OSError as error:
        raise OutputRejected(
            f"`{folder}` cannot hold the library: {error.strerror or error}",
            remedy="name a folder of yours with -o",
        ) from None
    if others:
        raise OutputRejected(
            f"`{folder}` holds another shared library, `{others[0].name}`, and is to hold exactly one",
            remedy="remove it, or name another folder with -o",
        )


def _shared_libraries(folder: Path) -> Iterable[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix == ".so")


def _write(path: Path, content: bytes) -> None:
    if path.is_file() and path.read_bytes() == content:
        return  # whoever links it has nothing to do
    write_output(path, content)
    path.chmod(0o755)
