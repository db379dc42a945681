"""A new project: whether its name will do, and its folder, which is written whole or not at all."""

from __future__ import annotations

import ctypes
import errno
import importlib.metadata
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from opsmith.description import check_device_name, shipped_backends
from opsmith.errors import FolderUnusable, NameRejected
from opsmith.schema import read_catalogue
from opsmith.vendor.scaffold.choices import Choices
from opsmith.vendor.scaffold.record import FILE, record_text
from opsmith.vendor.scaffold.rendering import rendered_files


def check_project_name(name: str) -> None:
    """Whether ``name`` can name a device, the package that brings it, and what it has in C and C++.

    Raises :class:`~opsmith.errors.SyntaxInvalid` for what cannot name a device of PyTorch, and
    :class:`~opsmith.errors.NameRejected` for what is something else here.
    """
    check_device_name(name, None)
    if obstacle := _obstacle(name):
        raise NameRejected(
            f"`{name}` cannot name a new device: {obstacle}",
            remedy=f"choose another name, e.g. `{name}chip`",
        )


def _obstacle(name: str) -> str:
    if name.endswith("_"):
        return "a package's name ends with a letter or a digit"
    if name in ("src", "tests"):
        return "a folder of the project is called that"
    if any(operator.partition(".")[0] == name for operator in read_catalogue().operators):
        return f"PyTorch has an operator `{name}`"
    if name in shipped_backends():
        return "a backend of that name comes with opsmith"
    if name in sys.stdlib_module_names:
        return f"Python has a module `{name}`"
    try:
        found = importlib.metadata.distribution(name)
        return f"a package of that name is installed, {found.metadata['Name']} {found.version}"
    except importlib.metadata.PackageNotFoundError:
        pass
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.origin is not None:
        return f"a module of that name is installed, {spec.origin}"
    if name in _IN_C or hasattr(ctypes.CDLL(None), name):
        return f"C has something else called `{name}`, and the kernels are in a namespace `{name}`"
    return ""


# Its own words and macros, where they are none of C++'s; functions are asked for.
_IN_C = frozenset("errno i386 linux restrict stderr stdin stdout unix".split())


def write_project(choices: Choices, parent: Path) -> Path:
    """Writes the project that was chosen to a new folder in ``parent``, or to an empty one; returns it.

    Raises what :func:`check_project_name` raises, and :class:`~opsmith.errors.FolderUnusable` for a folder
    that has something in it or cannot be written.
    """
    check_project_name(choices.name)
    folder = parent / choices.name
    if folder.is_symlink() or (folder.exists() and not (folder.is_dir() and _is_empty(folder))):
        raise FolderUnusable(
            f"`{folder}` exists already",
            remedy="choose another name, or another folder to run this in; `opsmith new --upgrade` brings a "
            "project up to date",
        )
    files = rendered_files(choices)
    try:
        temporary = Path(tempfile.mkdtemp(prefix=f".{choices.name}-", dir=parent))
        try:
            _write(temporary, {**files, FILE: record_text(choices, files)})
            temporary.chmod(0o777 & ~_umask())  # mkdtemp's is for the user alone
            os.replace(temporary, folder)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    except OSError as error:
        reason = os.strerror(error.errno or errno.EIO)
        raise FolderUnusable(
            f"`{folder}` cannot be written: {reason}", remedy="run this in a folder of yours"
        ) from None
    return folder


def _is_empty(folder: Path) -> bool:
    try:
        return not any(folder.iterdir())
    except OSError:
        return False


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask
