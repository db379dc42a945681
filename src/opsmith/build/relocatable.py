"""A backend's libraries as a package carries them: the same objects, linked so that they work anywhere.

They find their driver from their own folder on and torch in the process that loads them, and nothing in them
tells where they were built.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from opsmith.build.backend import Installed, compiled
from opsmith.build.cache import usable_cache
from opsmith.build.generated import generated_for
from opsmith.build.progress import OnProgress, Progress
from opsmith.build.python_adapter import adapter_of, compiled_adapter
from opsmith.build.shared_library import Relocatable
from opsmith.build.toolchain import find_compiler
from opsmith.description import Backend
from opsmith.plan import OpenedBackend, Plan


@dataclass(frozen=True)
class RelocatableBuild:
    """The libraries of ``backend`` for the installed torch, and the plan that they were generated from.

    ``driver`` is None where the description names one that is ready built, ``adapter`` where none was
    asked for.
    """

    backend: Backend
    plan: Plan
    library: Path
    driver: Path | None
    adapter: Path | None


def build_relocatable(
    description: Path, libraries_in: str, *, with_adapter: bool, progress: OnProgress | None = None
) -> RelocatableBuild:
    """Builds the backend described by ``description`` for a package.

    ``libraries_in`` is the folder that they will be in, from the description's on.  Raises a
    :class:`~opsmith.errors.DescriptionError` or a :class:`~opsmith.errors.BuildError`.
    """
    report = progress or (lambda step: None)
    cache = usable_cache()
    folder = description.parent
    opened = OpenedBackend(description, cache)
    report(Progress("planning every operator"))
    backend, plan = opened.outline, opened.plan
    installed = Installed.found(cache)
    compiler = installed.compiler or find_compiler(cache)
    report(Progress("generating C++"))
    # Refusals name places: in a package they are those of its own files.
    generated = generated_for(opened.compiled_plan.relative_to(folder), cache)
    relocatable = Relocatable(folder, folder / libraries_in)
    library, driver = compiled(opened, generated, installed, compiler, cache, report, relocatable)
    adapter = None
    if with_adapter:
        wanted = replace(adapter_of(library, cache), relocatable=relocatable)
        adapter = compiled_adapter(wanted, cache, report)
    return RelocatableBuild(backend, plan, library, driver, adapter)
