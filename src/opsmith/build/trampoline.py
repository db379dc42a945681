"""The extension module that calls Python kernels, built on first use.

A library of its own, because a backend's library has to load where there is no Python: it links to
that library, to libtorch_python and to nothing else.  ``runtime`` loads it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from opsmith.build.backend import BuiltBackend
from opsmith.build.compile import Compilation, SharedLibrary
from opsmith.build.generated import write_generated
from opsmith.build.progress import Progress
from opsmith.build.toolchain import find_compiler, find_python, find_torch
from opsmith.emit import emit_structured_metas
from opsmith.schema import read_catalogue

_CSRC = Path(__file__).resolve().parent.parent / "csrc"

MODULE = "opsmith_trampoline"
"""The name under which Python imports it."""


def build_trampoline(
    built: BuiltBackend, *, progress: Callable[[Progress], None] | None = None
) -> Path:
    """The trampoline for the backend ``built``, compiled where that is needed: a minute, once.

    Raises :class:`~opsmith.errors.PythonHeadersMissing` or another
    :class:`~opsmith.errors.BuildError`.
    """
    library = SharedLibrary(
        name=MODULE,
        sources=(_structured_metas(built.cache), *sorted((_CSRC / "python").glob("*.cpp"))),
        include_dirs=(_CSRC,),
        torch=find_torch(),
        python=find_python(),
        libraries=(built.library,),
    )
    compilation = Compilation([library], find_compiler(built.cache), built.cache)
    compilation.run(built.cache / "logs" / f"{MODULE}.log", progress or (lambda step: None))
    return compilation.outputs()[0]


def _structured_metas(cache: Path) -> Path:
    """The generated source, under a name that tells its contents."""
    file = emit_structured_metas(read_catalogue())
    return write_generated("trampoline", {file.name: file.text}, cache) / file.name
