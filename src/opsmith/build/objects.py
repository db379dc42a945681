"""The objects of a library, named by digests of all that goes into them.

An object's digest covers the compiler, the flags, torch's minor release, the sources and every header of ours
that they include, so an object is compiled once for all checkouts, environments and backends.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from opsmith.build.csrc import PACKAGE
from opsmith.build.etensor_headers import ETensorHeaders
from opsmith.build.flags import (
    FLAGS,
    LEAN_FLAGS,
    compile_flags,
    lean_compile_flags,
    named_link_flags,
    standard,
)
from opsmith.build.ready_built import has_ready_built, ready_built
from opsmith.build.shared_library import SharedLibrary
from opsmith.build.toolchain import Compiler, TorchInstallation
from opsmith.build.units import (
    KERNELS,
    VECTORISED,
    Unit,
    generated_unit,
    generated_units,
    own_units,
    single,
)

# A macro may name the header that a computed include takes.
_INCLUDE = re.compile(
    rb'^[ \t]*#[ \t]*(?:include|define[ \t]+\w+)[ \t]*["<]([^">\n]+)[">]', re.MULTILINE
)
# `#include NAME`: a flag says which header that is, or only the compiler knows.
_COMPUTED_INCLUDE = re.compile(rb"^[ \t]*#[ \t]*include[ \t]+([A-Za-z_]\w*)", re.MULTILINE)
_COMMENT_LINE = re.compile(rb"^[ \t]*//[^\n]*\n?", re.MULTILINE)
# A file's name has 255 bytes at most, of which digests take eighty.
_LONGEST_STEM = 40


@dataclass(frozen=True)
class Prelude:
    """Headers that sources of ours include, and that may be compiled ahead: of what, and the text.

    What it is compiled to may serve other builds, too, where ``is_kept``.
    """

    name: str
    text: str
    is_kept: bool


LEAN_PRELUDE = Prelude(
    "lean tensors", "#include <executorch/runtime/kernel/kernel_includes.h>\n", is_kept=False
)


def torch_prelude(torch: TorchInstallation) -> Prelude | None:
    """The headers of ``torch``; None for one that was built from source, whose headers may change."""
    if "git" in torch.version:
        return None
    includes = (f"#include <{name}>\n" for name in _TORCH_HEADERS)
    return Prelude("torch", f"// {torch.version}\n{''.join(includes)}", is_kept=True)


_TORCH_HEADERS = (
    "ATen/core/Tensor.h", "ATen/core/dispatch/Dispatcher.h", "ATen/ExpandUtils.h", "ATen/Parallel.h",
    "ATen/TensorIterator.h", "ATen/TensorOperators.h", "ATen/native/Resize.h", "torch/library.h",
)  # fmt: skip


@dataclass(frozen=True)
class Object:
    """An object file: its sources, what they are compiled with, and where it is kept.

    ``name`` tells it from every object but those that other compilers make of the same.  ``prelude`` is what
    its sources include first where they are ours.
    """

    unit: Unit
    flags: tuple[str, ...]
    name: str
    path: Path
    prelude: Prelude | None = None

    @property
    def prelude_flags(self) -> tuple[str, ...]:
        """The flags of its prelude.  Where PyTorch's headers lie is no matter of a backend's own folders."""
        if self.prelude is LEAN_PRELUDE:
            return self.flags
        return tuple(flag for flag in self.flags if not flag.startswith("-I"))


class Objects:
    """The objects that ``compiler`` makes of sources, in ``cache``; headers are read once."""

    def __init__(self, compiler: Compiler, cache: Path) -> None:
        self._compiler = compiler
        self._cache = cache
        self._headers: dict[Path, tuple[bytes, tuple[str, ...]]] = {}

    @cached_property
    def _generated(self) -> Path:
        return (self._cache / "generated").resolve()

    @cached_property
    def _common(self) -> str:
        return f"{self._compiler.machine} {self._compiler.options} {' '.join(FLAGS)}"

    def of(self, library: SharedLibrary) -> list[Object]:
        """The object of each unit; its digest names what its flags add to the package's own."""
        version = library.torch.compiled_for if library.torch else ""
        if library.python:
            version += f" {library.python.version}"

        def named(unit: Unit) -> str:
            own = " ".join(
                (unit.optimize, standard(unit), *unit.flags, *library.flags, *unit.own_flags)
            )
            return self._name(unit, library.include_dirs, f"{version} {own}")

        alone = (
            [generated_unit(source) for source in library.generated] if has_ready_built() else []
        )
        ready = [unit for unit in alone if ready_built(named(unit))]
        found = {source for unit in ready for source in unit.sources}
        rest = [source for source in library.generated if source not in found]
        of_torch = torch_prelude(library.torch) if library.torch else None
        objects = []
        for unit in (*own_units(library.sources), *library.units, *ready, *generated_units(rest)):
            name = named(unit)
            prelude = None if self.is_own(unit) else of_torch
            flags = tuple(compile_flags(unit, library))
            objects.append(Object(unit, flags, name, self._path(name), prelude))
        for lean in library.lean:
            for source in lean.sources:
                is_package = source.is_relative_to(PACKAGE)
                level = VECTORISED if lean.is_vectorised else KERNELS
                (unit,) = (single(source, level),) if is_package else own_units([source])
                own = " ".join((unit.optimize, *LEAN_FLAGS, *lean.flags, *unit.own_flags))
                name = self._name(unit, lean.include_dirs, own, lean.headers)
                flags = (unit.optimize, *lean_compile_flags(lean), *unit.own_flags)
                prelude = LEAN_PRELUDE if is_package and not lean.is_vectorised else None
                objects.append(Object(unit, flags, name, self._path(name), prelude))
        return objects

    def _name(
        self,
        unit: Unit,
        include_dirs: Sequence[Path],
        made_with: str,
        headers: ETensorHeaders | None = None,
    ) -> str:
        digest = hashlib.sha256()
        digest.update(f"{self._common} {made_with}\n".encode())
        # Names count as well as contents: __FILE__ is part of error messages.
        waiting = [source.resolve() for source in reversed(unit.sources)]
        seen = set(waiting)
        while waiting:
            path = waiting.pop()
            content, included = self._scanned(path)
            # A generated one has the backend's.
            called = "" if path.is_relative_to(self._generated) else path.name
            digest.update(os.fsencode(called) + f" {len(content)}\n".encode())
            digest.update(content)
            resolved = [_resolved(name, path, include_dirs) for name in included]
            if headers and any(name.startswith("executorch/") for name in included):
                digest.update(headers.version.encode())
            if headers and not headers.version:
                # Not torch's: its releases agree on the types of c10 that these headers take.
                resolved += [_resolved(name, path, headers.include_dirs[:1]) for name in included]
            for macro in _COMPUTED_INCLUDE.findall(content):
                if named := re.search(rf'-D{macro.decode()}="([^"]+)"', made_with):
                    resolved.append(_resolved(named[1], path, include_dirs))
                elif not path.is_relative_to(
                    PACKAGE
                ):  # ours ask for what flags define, and only that
                    resolved += _every_header(path, include_dirs)
            for found in resolved:
                if found is not None and found not in seen:
                    seen.add(found)
                    waiting.append(found)
        stem = Path(unit.name).stem[:_LONGEST_STEM]
        return f"{stem}-{digest.hexdigest()[:32]}.o"

    def _path(self, name: str) -> Path:
        """Where the object ``name`` is kept: installed, or in the cache as this compiler's."""
        if ready := ready_built(name):
            return ready
        stem, _, _ = name.rpartition("-")
        digest = hashlib.sha256(os.fsencode(f"{self._compiler.identity} {name}")).hexdigest()
        return self._cache / "objects" / f"{stem}-{digest[:32]}.o"

    def _scanned(self, path: Path) -> tuple[bytes, tuple[str, ...]]:
        if path not in self._headers:
            content = path.read_bytes()
            if path.is_relative_to(self._generated):
                # Generated comments give places in manifests, which change when a line is added above
                # them, and are broken into more lines where a folder has a longer name.
                content = _COMMENT_LINE.sub(b"", content)
            names = tuple(os.fsdecode(name) for name in _INCLUDE.findall(content))
            self._headers[path] = (content, names)
        return self._headers[path]

    def library_path(self, library: SharedLibrary, objects: Sequence[Object]) -> Path:
        names = (each.path.name for each in objects)
        driver = [f"{library.driver.parent.name}/{library.driver.name}"] if library.driver else []
        own = [
            # The linker notes where it is, but where it is to be found from the library's own folder on.
            f"{each.name if library.relocatable else each} {hashlib.sha256(each.read_bytes()).hexdigest()}"
            if isinstance(each, Path)
            else each
            for each in library.own_libraries
        ]
        text = "\n".join([library.name, *named_link_flags(library), *driver, *own, *names])
        digest = hashlib.sha256(os.fsencode(text)).hexdigest()[:32]
        return self._cache / "libraries" / digest / f"lib{library.name}.so"

    def is_own(self, unit: Unit) -> bool:
        """Whether ``unit`` is made of a user's own sources."""
        made_by_us = (PACKAGE, self._generated)
        return not any(
            source.is_relative_to(folder) for source in unit.sources for folder in made_by_us
        )


def _resolved(name: str, includer: Path, include_dirs: Sequence[Path]) -> Path | None:
    """The header of ours that ``#include name`` means; None for the system's and torch's."""
    for folder in (includer.parent, *include_dirs):
        path = folder / name
        # Unlike Path.is_file, which raises for a name that is too long.
        if os.path.isfile(path):
            return path.resolve()
    return None


def _every_header(includer: Path, include_dirs: Sequence[Path]) -> list[Path]:
    """All headers that a source could include from its own directory and the include directories."""
    folders = (includer.parent, *include_dirs)
    return [path.resolve() for folder in folders for path in sorted(folder.rglob("*.h*"))]
