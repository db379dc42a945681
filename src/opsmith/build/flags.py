"""The options that compilers and linkers get for a library's sources.

Those that say what is made go into digests; those that say where an environment has its parts do not.
"""

from __future__ import annotations

import os
from pathlib import Path

from opsmith.build.csrc import PACKAGE
from opsmith.build.shared_library import LeanSources, SharedLibrary
from opsmith.build.units import FASTEST, Unit

FLAGS = (
    "-DNDEBUG", "-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden", "-Wall",
    # Without these gcc calls libm for sqrt and leaves loops with comparisons scalar.
    "-fno-math-errno", "-fno-trapping-math",
)  # fmt: skip
_STANDARD = {".c": "-std=c11"}
# As the wheel's own kernels are compiled; without the last but one `parallel_for` is silently serial.
# Errors that a kernel logs are what its caller is told.
LEAN_FLAGS = (
    "-std=c++17", "-DC10_USING_CUSTOM_GENERATED_MACROS", "-DET_USE_THREADPOOL",
    "-DET_LOG_ENABLED=1", "-DET_MIN_LOG_LEVEL=Error",
)  # fmt: skip


def standard(unit: Unit) -> str:
    return _STANDARD.get(unit.sources[0].suffix, "-std=c++20")


def compile_flags(unit: Unit, library: SharedLibrary) -> list[str]:
    language = ["-x", "c"] if unit.sources[0].suffix == ".c" else []
    flags = [*language, standard(unit), unit.optimize, *unit.flags, *FLAGS, *library.flags]
    flags += [f"-ffile-prefix-map={PACKAGE}=opsmith"]
    flags += [f"-I{folder}" for folder in library.include_dirs]
    if library.torch:
        flags += _called(library.torch.root, "torch")
        for folder in library.torch.include_dirs:
            flags += ["-isystem", str(folder)]
    if library.python:
        flags += ["-isystem", str(library.python.include_dir)]
    return [*flags, *unit.own_flags]


def _called(folder: Path, name: str) -> list[str]:
    """The flags that replace ``folder`` by ``name`` in messages and debug information.

    gcc gives the path of a system's header with links followed, where that is shorter.
    """
    places = dict.fromkeys((folder, folder.resolve()))
    return [f"-ffile-prefix-map={place}={name}" for place in places]


def lean_flags() -> tuple[str, ...]:
    """The compiler's options for sources on lean tensors."""
    return (FASTEST, *FLAGS, *LEAN_FLAGS)


def lean_compile_flags(lean: LeanSources) -> list[str]:
    flags = [*FLAGS, *LEAN_FLAGS, *lean.flags, f"-ffile-prefix-map={PACKAGE}=opsmith"]
    flags += _called(lean.headers.root, lean.headers.root_name)
    flags += [f"-I{folder}" for folder in lean.include_dirs]
    for folder in lean.headers.include_dirs:
        flags += ["-isystem", str(folder)]
    return flags


def symbol_flags(library: SharedLibrary) -> list[str]:
    # An extension module finds Python's own symbols in the process that loads it.
    flags = [] if library.python else ["-Wl,--no-undefined"]
    return [*flags, f"-Wl,-soname,lib{library.name}.so"] if library.is_driver else flags


def link_flags(library: SharedLibrary) -> list[str]:
    flags = named_link_flags(library)
    if library.torch:
        folder = library.torch.library_dir
        flags += [f"-L{folder}"]
        if library.relocatable is None:
            # For who loads it without torch: a process that has imported torch has these libraries already.
            flags += [f"-Wl,-rpath,{folder}"]
    for own in library.own_libraries:
        flags += _linked_file(own, library) if isinstance(own, Path) else [f"-l{own}"]
    if (driver := library.driver) is None:
        return flags
    # Needed only where a kernel calls it.
    flags += ["-Wl,--as-needed"]
    if library.driver_is_users:
        return [*flags, *_linked_file(driver, library)]
    if library.relocatable is not None:
        return [*flags, *_by_name(driver)]
    # One of the cache lies beside this library.
    return [*flags, str(driver), f"-Wl,-rpath,$ORIGIN/../{driver.parent.name}"]


def _linked_file(path: Path, library: SharedLibrary) -> list[str]:
    """The flags that link a user's ``path``, and have it found when the library is loaded."""
    if path.suffix == ".a":
        return [str(path)]
    if library.relocatable is None:
        return [str(path), f"-Wl,-rpath,{path.parent}"]
    return _by_name(path)


def _by_name(path: Path) -> list[str]:
    # Without a soname the linker would note the path.
    return [f"-L{path.parent}", f"-l:{path.name}"]


def named_link_flags(library: SharedLibrary) -> list[str]:
    """The linker's options that say what is linked, and not where an environment has it."""
    flags = ["-pthread", "-ldl", *library.flags, *library.own_link_flags]
    if library.torch:
        flags += ["-ltorch", "-ltorch_cpu", "-lc10"]
        flags += ["-ltorch_python"] if library.python else []
    if library.relocatable is not None:
        flags += [f"-Wl,-soname,lib{library.name}.so", "-Wl,-rpath,$ORIGIN"]
        files = [each for each in library.own_libraries if isinstance(each, Path)]
        if library.driver and library.driver_is_users:
            files.append(library.driver)
        places = (os.path.relpath(each.parent, library.relocatable.folder) for each in files)
        flags += [f"-Wl,-rpath,$ORIGIN/{place}" for place in dict.fromkeys(places)]
    return [*flags, *map(str, library.libraries)]
