"""The objects that every backend may need, compiled for the installed torch: see :mod:`ready_built`."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from opsmith.build.backend import Installed, library_of
from opsmith.build.cache import usable_cache
from opsmith.build.compile import Compilation
from opsmith.build.progress import OnProgress
from opsmith.build.stored import seal_of
from opsmith.build.toolchain import find_compiler
from opsmith.description import read_backend, shipped_libraries

_DESCRIPTION = """\
backend: runtime
driver: {{library: driver.so}}
libraries: [{libraries}]
"""


def collect_runtime_objects(folder: Path, progress: OnProgress | None = None) -> None:
    """Compiles the runtime and the shipped libraries, and copies their objects, sealed, into ``folder``.

    Raises a :class:`~opsmith.errors.BuildError`.
    """
    cache = usable_cache()
    installed = Installed.found(cache)
    compiler = installed.compiler or find_compiler(cache)
    with tempfile.TemporaryDirectory(prefix="opsmith-runtime-") as empty:
        description = Path(empty) / "backend.yaml"
        (Path(empty) / "driver.so").touch()  # it is not looked into
        description.write_text(_DESCRIPTION.format(libraries=", ".join(shipped_libraries())))
        library = library_of(read_backend(description, None), Path(empty), installed, compiler)
        compilation = Compilation([library], compiler, cache, only_objects=True)
        compilation.run(cache / "logs" / "runtime.log", progress or (lambda step: None))
    folder.mkdir(parents=True, exist_ok=True)
    for name, path in compilation.named_objects().items():
        shutil.copyfile(path, folder / name)
        shutil.copyfile(seal_of(path), seal_of(folder / name))
