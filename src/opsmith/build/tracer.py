"""The library that records what goes through PyTorch's dispatcher, built on first use.

A library of its own: a program that is not traced does not load it, and it needs no backend.  ``runtime``
loads it.
"""

from __future__ import annotations

from pathlib import Path

from opsmith.base.cache_folder import cache_root
from opsmith.build.compile import Compilation
from opsmith.build.csrc import CSRC
from opsmith.build.progress import OnProgress
from opsmith.build.shared_library import SharedLibrary
from opsmith.build.toolchain import find_compiler, find_torch
from opsmith.build.units import CALLS, together


def build_tracer(*, progress: OnProgress | None = None) -> Path:
    """The recorder for the installed torch, compiled where that is needed: some twenty seconds, once.

    Raises a :class:`~opsmith.errors.BuildError`.
    """
    cache = cache_root()
    library = SharedLibrary(
        name="opsmith_trace",
        sources=(),
        units=together("trace", sorted((CSRC / "trace").rglob("*.cpp")), CALLS),
        include_dirs=(CSRC,),
        torch=find_torch(),
    )
    compilation = Compilation([library], find_compiler(cache), cache)
    compilation.run(cache / "logs" / "opsmith_trace.log", progress or (lambda step: None))
    return compilation.outputs()[0]
