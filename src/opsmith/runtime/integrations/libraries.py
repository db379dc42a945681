"""Which modules of a library are changed for the device, and when: as soon as each has been imported.

Nothing is imported for it, but by the function that is named for a library and called for it.
"""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Callable, Mapping
from types import ModuleType

from opsmith.base.switches import is_switched_off
from opsmith.errors import DeviceMissing, LibraryMissing, OpsmithError
from opsmith.runtime.integrations import (
    for_accelerate,
    for_lightning,
    for_safetensors,
    for_transformers,
)
from opsmith.runtime.integrations.imported import when_imported

VARIABLE = "OPSMITH_INTEGRATIONS"

# A function that makes a module know the device of a name.
Change = Callable[[ModuleType, str], None]

_LIBRARIES: dict[str, Mapping[str, Change]] = {
    "accelerate": for_accelerate.CHANGES,
    "safetensors": for_safetensors.CHANGES,
    "transformers": for_transformers.CHANGES,
    "lightning": for_lightning.CHANGES["lightning"],
    "pytorch_lightning": for_lightning.CHANGES["pytorch_lightning"],
    "lightning_fabric": for_lightning.CHANGES["lightning_fabric"],
}

# A module is changed once, by the environment or by a call.
_changed: set[str] = set()


class IntegrationWarning(UserWarning):
    """A library that has just been imported will not find the device; the message says why."""


def are_wanted() -> bool:
    """Whether ``OPSMITH_INTEGRATIONS`` lets libraries be changed unasked, as they are by default.

    Raises :class:`~opsmith.errors.SettingInvalid`.
    """
    return not is_switched_off(
        VARIABLE, "set it to off, to leave libraries as they are, or unset it"
    )


def follow_imports(device: str) -> None:
    """Makes the libraries know ``device``: those that are imported now, the others when they will be.

    A library whose parts are not as expected is left as it is, with an :class:`IntegrationWarning`.
    """
    for changes in _LIBRARIES.values():
        for name, change in changes.items():
            when_imported(name, _warning(change, device))


def accelerate() -> None:
    """Makes accelerate know the loaded device: ``Accelerator()``, ``device_map="auto"``, fp16 and bf16.

    Imports it.  Raises :class:`~opsmith.errors.LibraryMissing` where it is not installed,
    :class:`~opsmith.errors.LibraryChanged` where its parts are not as expected, and
    :class:`~opsmith.errors.DeviceMissing` before :func:`opsmith.load`.
    """
    _integrate("accelerate")


def transformers() -> None:
    """Makes transformers know the loaded device: ``Trainer``, ``pipeline``, ``torch_device`` of its tests.

    Imports it, and accelerate where that is installed, which computes its ``device_map="auto"``.  Raises
    what :func:`accelerate` does.
    """
    if importlib.util.find_spec("accelerate") is not None:
        _integrate("accelerate")
    _integrate("transformers")


def safetensors() -> None:
    """Makes safetensors know the loaded device: ``load_file(…, device="<name>")``.

    Imports it.  Raises what :func:`accelerate` does.
    """
    _integrate("safetensors")


def lightning() -> None:
    """Makes Lightning know the loaded device: ``Trainer()`` and ``Fabric()``, ``accelerator="<name>"``.

    For the packages ``lightning``, ``pytorch_lightning`` and ``lightning_fabric``, whichever are
    installed; imports them.  Raises what :func:`accelerate` does.
    """
    packages = ["lightning", "pytorch_lightning", "lightning_fabric"]
    installed = [each for each in packages if importlib.util.find_spec(each) is not None]
    for package in installed or packages[:1]:
        _integrate(package)


def _integrate(library: str) -> None:
    device = _loaded_device()
    try:
        importlib.import_module(library)
    except ModuleNotFoundError as error:
        if error.name != library:
            raise
        raise LibraryMissing(
            f"{library} is not installed", remedy=f"pip install {library}"
        ) from None
    for name, change in _LIBRARIES[library].items():
        # Modules that the library imports only when asked for, such as its test utilities, are not asked for.
        when_imported(name, _once(change, device))


def _loaded_device() -> str:
    from opsmith.schema.torch_names import _get_privateuse1_backend_name

    name: str = _get_privateuse1_backend_name()
    if name == "privateuseone":
        raise DeviceMissing(
            "no device is loaded that a library could be told of",
            remedy='call opsmith.load("sim"), or another backend, first',
        )
    return name


def _once(change: Change, device: str) -> Callable[[ModuleType], None]:
    def apply(module: ModuleType) -> None:
        if module.__name__ not in _changed:
            change(module, device)
            _changed.add(module.__name__)

    return apply


def _warning(change: Change, device: str) -> Callable[[ModuleType], None]:
    apply = _once(change, device)

    def apply_or_warn(module: ModuleType) -> None:
        try:
            apply(module)
        except OpsmithError as error:
            warnings.warn(str(error), IntegrationWarning, stacklevel=2)

    return apply_or_warn
