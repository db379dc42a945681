"""``opsmith.autoload``: what a vendor's package calls at the end of ``import torch``.

It loads the device that the package describes, where that is built.  It never makes ``import torch`` fail,
nor wait for a compiler unasked: why the device is not there is one line on stderr, with the command that goes
on from there.  Where the program or ``OPSMITH_AUTOLOAD`` asks for another backend it steps aside, as it does
in processes of opsmith's own, which choose their backend themselves.
"""

from __future__ import annotations

import importlib
import json
import os
import shlex
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from opsmith.errors import NotBuilt, OpsmithError, SlotTaken
from opsmith.runtime.autoload import VARIABLE

if TYPE_CHECKING:
    from opsmith.description.built import BuiltBackend

BUILD_VARIABLE = "OPSMITH_BUILD_ON_IMPORT"

_told: set[Path] = set()

# The description whose entry point a command calls, once it has loaded it.
_called_for: Path | None = None


@contextmanager
def called_for(description: Path) -> Iterator[None]:
    """While the block runs, :func:`autoload` of ``description`` imports its modules and raises as they do."""
    global _called_for
    before, _called_for = _called_for, description
    try:
        yield
    finally:
        _called_for = before


def autoload(description: Path | str, *, modules: Sequence[str] = ()) -> None:
    """Loads the backend that the file ``description`` describes; for entry points of ``torch.backends``.

    ``modules`` are imported once it is loaded: those that register kernels in Python.  Who calls
    ``opsmith.load`` before torch is imported imports them too.
    Libraries that lie ready built beside the description are used where they fit this process, and those of
    the cache otherwise.  What is not built is built only where ``OPSMITH_BUILD_ON_IMPORT`` is 1, or
    ``OPSMITH_AUTOLOAD`` names this backend.  Raises nothing: whatever keeps the device from being loaded is
    told once, in a line on stderr.
    """
    path = Path(description).absolute()
    if _called_for == path.resolve():
        for module in modules:
            importlib.import_module(module)
        return
    if _is_own_process():
        return
    outcome = "is not loaded"
    try:
        if _is_wanted(path.resolve()) and _is_loaded(path.resolve(), with_adapter=bool(modules)):
            outcome = "is loaded without its kernels in Python"
            for module in modules:
                importlib.import_module(module)
    except NotBuilt as error:
        _tell(path, outcome, f"{error.message}; to build it: {error.remedy}")
    except SlotTaken as error:
        remedy = error.remedy.replace(str(path.resolve()), _name(path))
        _tell(path, outcome, f"{error.message}; {remedy}")
    except Exception as error:
        kind = "" if isinstance(error, OpsmithError) else f"{type(error).__name__}: "
        first = next(iter(str(error).splitlines()), "")
        _tell(path, outcome, f"{kind}{first}; {_way_to_the_whole_error(path, modules)}")


def _is_wanted(description: Path) -> bool:
    """Whether nobody has asked for another backend: the environment, or the program by ``opsmith.load``."""
    from opsmith.description import find_backend
    from opsmith.runtime.loaded import description_in_hand, is_loaded_by_package

    named = os.environ.get(VARIABLE)
    asked_for = {find_backend(named)} if named else set()
    if (in_hand := description_in_hand()) and not is_loaded_by_package():
        asked_for.add(in_hand)
    return asked_for <= {description}


def _is_loaded(description: Path, *, with_adapter: bool) -> bool:
    """Loads the backend.  False within ``opsmith.load``, where that imports torch: it goes on by itself."""
    from opsmith.runtime.load import found_or_built, load_found
    from opsmith.runtime.loaded import description_in_hand, loaded_if_any

    def found() -> BuiltBackend:
        if os.environ.get(BUILD_VARIABLE) == "1" or os.environ.get(VARIABLE):
            return found_or_built(_name(description), description, None)
        return _found(description, with_adapter=with_adapter)

    if description_in_hand() != description:
        load_found(str(description), description, found, by_package=True)
    return loaded_if_any() is not None


def _found(description: Path, *, with_adapter: bool) -> BuiltBackend:
    """The libraries that lie built, and what calls Python kernels, if wanted.  Raises :class:`NotBuilt`."""
    from opsmith.description.built import carried_backend
    from opsmith.errors import PackageUnfit

    built, reason = None, "it is not built for this environment"
    try:
        built = carried_backend(description)
    except PackageUnfit as unfit:
        if not unfit.has_sources:
            raise
        reason = unfit.message
    if built is None:
        # Here: a package that carries its libraries does without what builds.
        from opsmith.build.backend import find_built

        built = find_built(description)
    if built is None:
        raise NotBuilt(reason, remedy=f"opsmith build {shlex.quote(_name(description))}")
    if with_adapter and built.adapter is None:
        from opsmith.build.python_adapter import find_adapter

        adapter = find_adapter(built)
        if adapter is None:
            # `opsmith build` builds it only where it sees the decorators of kernels.
            raise NotBuilt(
                "what calls its kernels in Python is not built for this environment",
                remedy=f"{BUILD_VARIABLE}=1 python -c 'import torch'",
            )
        built = replace(built, adapters={str(sysconfig.get_config_var("EXT_SUFFIX")): adapter})
    return built


def _is_own_process() -> bool:
    """Whether this is a command of opsmith's, or a process that one has started for itself."""
    started = getattr(sys.modules.get("__main__"), "__spec__", None)
    return "opsmith.cli.main" in sys.modules or (
        started is not None and started.name.partition(".")[0] == "opsmith"
    )


def _name(description: Path) -> str:
    """The name for commands and ``opsmith.load``: that of its package's entry point, or the path."""
    from opsmith.description import find_backend, installed_backends

    found = description.resolve()
    for name, path in installed_backends().items():
        # A shipped backend or a folder may have the same name.
        if path == found and find_backend(name) == found:
            return name
    return str(description)


def _way_to_the_whole_error(description: Path, modules: Sequence[str]) -> str:
    load = f"opsmith.load({json.dumps(_name(description))})"
    script = "; ".join(["import opsmith", load, *(f"import {module}" for module in modules)])
    return "the whole error: TORCH_DEVICE_BACKEND_AUTOLOAD=0 python -c " + shlex.quote(script)


def _tell(description: Path, outcome: str, reason: str) -> None:
    if description in _told:
        return
    _told.add(description)
    # A process without a console may have no stderr.
    with suppress(AttributeError, OSError, ValueError):
        sys.stderr.write(f"opsmith: the backend `{_name(description)}` {outcome}: {reason}\n")
