"""The objects that every backend may need, compiled for the installed torch: see :mod:`ready_built`."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from opsmith.build.backend import Installed, library_of
from opsmith.build.cache import usable_cache
from opsmith.build.compile import Compilation
from opsmith.build.generated import generated_for
from opsmith.build.progress import OnProgress
from opsmith.build.stored import seal_of
from opsmith.build.toolchain import find_compiler
from opsmith.build.units import generated_unit
from opsmith.description import read_backend, shipped_libraries
from opsmith.plan import OpenedBackend

_DESCRIPTION = """\
backend: runtime
driver: {{library: driver.so, host_window: {host_window}}}
libraries: [{libraries}]
fallback: cpu
"""
# Those that `opsmith new` writes below the own library.
_REGISTERED = ("random", "portable")


def collect_runtime_objects(folder: Path, progress: OnProgress | None = None) -> None:
    """Compiles the runtime, the shipped libraries and their registrations; puts the objects into ``folder``.

    Registrations are those of backends with these libraries alone: one with kernels of its own shares the
    generated files in which none of its operators stand.  Raises a :class:`~opsmith.errors.BuildError`.
    """
    cache = usable_cache()
    installed = Installed.found(cache)
    compiler = installed.compiler or find_compiler(cache)
    with tempfile.TemporaryDirectory(prefix="opsmith-runtime-") as made:
        described = _described(Path(made), shipped_libraries(), "on")
        libraries = [library_of(read_backend(described, None), Path(made), installed, compiler)]
        for host_window in ("on", "off"):
            opened = OpenedBackend(_described(Path(made), _REGISTERED, host_window), cache)
            generated = generated_for(opened.compiled_plan, cache)
            library = library_of(opened.outline, generated, installed, compiler)
            units = tuple(map(generated_unit, library.generated))
            libraries.append(replace(library, generated=(), units=units, lean=()))
        compilation = Compilation(libraries, compiler, cache, only_objects=True)
        compilation.run(cache / "logs" / "runtime.log", progress or (lambda step: None))
    folder.mkdir(parents=True, exist_ok=True)
    for name, path in compilation.named_objects().items():
        shutil.copyfile(path, folder / name)
        shutil.copyfile(seal_of(path), seal_of(folder / name))


def _described(folder: Path, names: Iterable[str], host_window: str) -> Path:
    """A description of a backend with the shipped libraries ``names``."""
    description = folder / "backend.yaml"
    (folder / "driver.so").touch()  # it is not looked into
    description.write_text(_DESCRIPTION.format(host_window=host_window, libraries=", ".join(names)))
    return description
