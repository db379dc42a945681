"""Loads a kernel library into the ExecuTorch runtime of this process.

The runtime must be there first, and programs are loaded afterwards: kernels are bound when a method is.
Called by users who run programs themselves, and by ``runtime_worker``.
"""

from __future__ import annotations

import ctypes
import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opsmith.base.trusted_files import open_library
from opsmith.build.executorch import find_executorch
from opsmith.errors import LibraryRejected
from opsmith.executorch.library_file import LibraryFile, check_fits, read_library_file
from opsmith.executorch.program import ExecutorchProgram
from opsmith.plan.executorch.built_libraries import registered_on_demand
from opsmith.plan.executorch.kernel_keys import CallForm


class LoadedLibrary:
    """A library whose kernels the runtime of this process has."""

    def __init__(self, file: LibraryFile) -> None:
        self.file = file
        try:
            self._library = open_library(file.path.resolve(), os.RTLD_NOW)
        except OSError as error:
            raise _rejection(file.path, str(error)) from None
        for name in ("error", "register", "server"):
            getattr(self._library, f"opsmith_executorch_{name}").restype = ctypes.c_char_p
        self._library.opsmith_executorch_register.argtypes = [ctypes.c_size_t, ctypes.c_char_p]
        if reason := self._library.opsmith_executorch_error():
            raise _rejection(file.path, reason.decode())

    def register_for(self, forms: Sequence[CallForm]) -> None:
        """Registers the kernels that take ``forms`` and are not registered for them yet.

        A library that was built for programs has registered what it can.  Raises
        :class:`~opsmith.errors.LibraryRejected` where another library has a kernel for one of the keys.
        """
        for place, key in registrations(self.file, forms):
            self.register(place, key)

    def register(self, place: int, key: str) -> None:
        """Registers the kernel at ``place`` in the file's description for ``key``.

        Not where one of its library is registered for that already, for an earlier program.  Raises as
        :meth:`register_for`.
        """
        kernel = self.file.description.kernels[place]
        if self.server(kernel.operator, key) == kernel.library:
            return
        if reason := self._library.opsmith_executorch_register(place, key.encode()):
            raise _rejection(self.file.path, reason.decode())

    def server(self, operator: str, key: str) -> str | None:
        """The kernel library that serves a call, if it is one of this file's.

        Empty where another kernel serves it, the runtime's own for instance; None where none does.
        """
        found = self._library.opsmith_executorch_server(operator.encode(), key.encode())
        return None if found is None else str(found.decode())


class PlainLibrary:
    """A library that registers its kernels itself, as ``EXECUTORCH_LIBRARY`` has them do.

    The runtime ends the process where one of them is there already.  ``operators`` are those that it brought.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        before = set(runtime_module()._get_operator_names())
        try:
            open_library(path.resolve(), os.RTLD_NOW)
        except OSError as error:
            raise _rejection(path, str(error)) from None
        self.operators = set(runtime_module()._get_operator_names()) - before

    def server(self, operator: str, key: str) -> str | None:
        """The library's name where it brought the operator; None where it did not."""
        return self.path.stem.removeprefix("lib") if operator in self.operators else None


def load_library(path: Path | str, programs: Sequence[ExecutorchProgram] = ()) -> LoadedLibrary:
    """Loads the library in the file ``path``, or in the folder, and registers what ``programs`` need of it.

    Loads ExecuTorch's runtime first, where that is not there, and has it refuse inputs of another layout
    than those of the programs that it loads then.  Raises
    :class:`~opsmith.errors.FileMissing` and :class:`~opsmith.errors.LibraryRejected`, where it was built for
    something else or its kernels are there already.
    """
    from opsmith.executorch.input_layouts import check_layouts  # with torch

    file = read_library_file(library_path(Path(path)))
    check_fits(file)
    check_layouts(runtime_module())
    loaded = LoadedLibrary(file)
    loaded.register_for([call.form for program in programs for call in program.calls])
    return loaded


def runtime_module() -> Any:
    """ExecuTorch's runtime, loaded into this process.

    The extension module itself: ``portable_lib``, which stands in front of it, imports all of the exporter.
    """
    import torch  # noqa: F401  # its libraries must be there first

    return importlib.import_module(find_executorch().extension_module)


def library_path(path: Path) -> Path:
    """The library's file; of a folder, the one that is in it."""
    if not path.is_dir():
        return path
    found = sorted(path.glob("*.so"))
    if len(found) == 1:
        return found[0]
    raise LibraryRejected(
        f"`{path}` holds {len(found) or 'no'} shared libraries, and one is wanted",
        remedy="name a file, or a folder that `opsmith executorch build` wrote",
    )


def registrations(file: LibraryFile, forms: Sequence[CallForm]) -> list[tuple[int, str]]:
    """The kernels, by place, and keys that a library built for any program registers for ``forms``."""
    found = {
        (form.operator, form.key): registered_on_demand(file.description, form) for form in forms
    }
    return [(place, key) for (_, key), place in found.items() if place is not None]


def _rejection(path: Path, reason: str) -> LibraryRejected:
    return LibraryRejected(
        f"`{path}` cannot be loaded: {reason}",
        remedy="load each library once, and beside no other that has its operators, as "
        "executorch.kernels.quantized has; build it anew where it was built for something else",
    )
