"""The extension module that calls Python kernels, built on first use.

A library of its own, because a backend's library has to load where there is no Python: it links to
that library, to libtorch_python and to nothing else.  ``runtime`` loads it.
"""

from __future__ import annotations

from pathlib import Path

from opsmith.build.cache import is_usable
from opsmith.build.compile import Compilation
from opsmith.build.csrc import CSRC, INCLUDE_DIRS
from opsmith.build.generated import write_generated
from opsmith.build.progress import OnProgress
from opsmith.build.shared_library import SharedLibrary
from opsmith.build.toolchain import find_compiler, find_python, find_torch
from opsmith.build.units import CALLS, generated_units, together
from opsmith.description.built import BuiltBackend
from opsmith.emit import emit_structured_metas
from opsmith.schema import read_catalogue

MODULE = "opsmith_adapter"
"""The name under which Python imports it."""


def build_adapter(built: BuiltBackend, *, progress: OnProgress | None = None) -> Path:
    """The adapter for the backend ``built``: compiled where that is needed: a minute, once.

    Raises :class:`~opsmith.errors.PythonHeadersMissing` or another
    :class:`~opsmith.errors.BuildError`.
    """
    library = adapter_of(built.library, built.cache)
    return compiled_adapter(library, built.cache, progress or (lambda step: None))


def find_adapter(built: BuiltBackend) -> Path | None:
    """The adapter that :func:`build_adapter` would return without building; None where it would build.

    Raises as it does.
    """
    cache = built.cache
    compilation = Compilation([adapter_of(built.library, cache)], find_compiler(cache), cache)
    (path,) = compilation.outputs()
    return path if is_usable(path) else None


def adapter_of(library: Path, cache: Path) -> SharedLibrary:
    """The adapter for the backend whose library is ``library``; raises as :func:`build_adapter`."""
    return SharedLibrary(
        name=MODULE,
        sources=(),
        units=(
            *generated_units([_structured_metas(cache)]),
            *together("python", sorted((CSRC / "python").rglob("*.cpp")), CALLS),
        ),
        include_dirs=INCLUDE_DIRS,
        torch=find_torch(),
        python=find_python(),
        libraries=(library,),
    )


def compiled_adapter(library: SharedLibrary, cache: Path, report: OnProgress) -> Path:
    compilation = Compilation([library], find_compiler(cache), cache)
    compilation.run(cache / "logs" / f"{MODULE}.log", report)
    return compilation.outputs()[0]


def _structured_metas(cache: Path) -> Path:
    """The generated source, under a name that tells its contents."""
    file = emit_structured_metas(read_catalogue())
    return write_generated("adapter", {file.name: file.text}, cache) / file.name
