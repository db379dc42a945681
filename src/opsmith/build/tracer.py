"""The library that records what goes through PyTorch's dispatcher, built on first use.

A library of its own: a program that is not traced does not load it, and it needs no backend.  ``runtime``
loads it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from opsmith.build.cache import usable_cache
from opsmith.build.compile import Compilation, SharedLibrary
from opsmith.build.progress import Progress
from opsmith.build.toolchain import find_compiler, find_torch

_CSRC = Path(__file__).resolve().parent.parent / "csrc"


def build_tracer(*, progress: Callable[[Progress], None] | None = None) -> Path:
    """The recorder for the installed torch, compiled where that is needed: some twenty seconds, once.

    Raises a :class:`~opsmith.errors.BuildError`.
    """
    cache = usable_cache()
    library = SharedLibrary(
        name="opsmith_trace",
        sources=tuple(sorted((_CSRC / "trace").glob("*.cpp"))),
        include_dirs=(_CSRC,),
        torch=find_torch(),
    )
    compilation = Compilation([library], find_compiler(cache), cache)
    compilation.run(cache / "logs" / "opsmith_trace.log", progress or (lambda step: None))
    return compilation.outputs()[0]
