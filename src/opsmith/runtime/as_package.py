"""A backend as its installed package loads it: with the kernels that the package registers in Python.

opsmith's own commands choose their backend themselves, so that at their ``import torch`` packages load none.
Here the entry point of the package is called that brings the backend, and where it fails, that is raised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from opsmith.description import entry_point, has_python_kernels, package_of_description
from opsmith.errors import LoadError, OpsmithError
from opsmith.plan import OpenedBackend, open_backend
from opsmith.runtime.vendor_autoload import called_for

if TYPE_CHECKING:
    from pathlib import Path

    from opsmith.build.progress import OnProgress
    from opsmith.runtime.loaded import LoadedBackend

_SHOWN_KERNELS = 8


def load_as_package(name: str, *, progress: OnProgress | None = None) -> LoadedBackend:
    """As :func:`opsmith.load`, and calls the entry point of the installed package that brings the backend.

    Raises :class:`~opsmith.errors.LoadError` for an entry point that raises.
    """
    from opsmith.runtime.load import load  # few commands load what they open

    loaded = load(name, progress=progress)
    point = entry_point(loaded.description)
    if point is None:
        return loaded
    try:
        with called_for(loaded.description):
            point.load()()
    except OpsmithError:
        raise
    except Exception as error:
        raise LoadError(
            f"{package_of_description(loaded.description)} raises where it loads `{loaded.name}`: "
            f"{type(error).__name__}: {error}",
            remedy="correct its entry point, or the modules that it names",
        ) from error
    return loaded


def open_as_loaded(
    name: str, *, progress: OnProgress | None = None
) -> tuple[OpenedBackend, LoadedBackend | None]:
    """The backend ``name`` with the plan that a process has in which its package has loaded it.

    It is loaded only where the package registers kernels in Python; a plan says the rest by itself.
    """
    opened = open_backend(name)
    if entry_point(opened.path) is None or not has_python_kernels(opened.path.parent):
        return opened, None
    loaded = load_as_package(name, progress=progress)
    return loaded.opened, loaded


def why_not_loaded(description: Path) -> str:
    """Why a command that is to build nothing does not load the backend; empty where it does.

    What a stranger has described, or sent ready built, runs only where that is asked for.
    """
    from opsmith.build.backend import find_built  # torch's package alone is enough for the rest

    built = find_built(description)
    if built is None:
        return "it is not built"
    if package_of_description(description):
        return ""
    if built.package:
        return "its libraries came with it, and no installed package brings it"
    if built.python_driver or built.calls_python:
        return "it runs Python that is beside it, and no installed package brings it"
    return ""


def how_loaded(loaded: LoadedBackend) -> str:
    """The line on how ``loaded`` came, and which operators have kernels in Python.

    Empty where no package brings it and there is nothing but its description.
    """
    package = package_of_description(loaded.description)
    how = f"as {package} does" if package else f"from {loaded.description}"
    if names := loaded.python_kernels:
        listed = ", ".join(names[:_SHOWN_KERNELS])
        more = f" and {len(names) - _SHOWN_KERNELS} more" if len(names) > _SHOWN_KERNELS else ""
        kernels = f"with kernels in Python: {listed}{more}"
    elif note := left_out(loaded.description):
        kernels = note
    elif package:
        kernels = "without kernels in Python"
    else:
        return ""
    return f"loaded `{loaded.name}` {how}, {kernels}"


def left_out(description: Path) -> str:
    """A note on kernels in Python beside ``description`` that nothing loads; empty where there are none."""
    if entry_point(description) is not None or not has_python_kernels(description.parent):
        return ""
    return (
        "without the kernels in Python beside it, as no installed package brings it: "
        "`pip install -e` its project"
    )
