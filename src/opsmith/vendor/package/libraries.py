"""The libraries of one environment's torch, in a folder, as a wheel carries them.

Run as a program it builds them for the environment whose Python runs it: ``python -m
opsmith.vendor.package.libraries REQUEST``.
"""

from __future__ import annotations

import hashlib
import platform
import shutil
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import msgspec

from opsmith.base.cache_folder import cache_root
from opsmith.build.places import places_in
from opsmith.build.progress import OnProgress
from opsmith.build.relocatable import build_relocatable
from opsmith.description.built import CarriedBuild, CarriedFile
from opsmith.description.built.contents import FOLDER
from opsmith.errors import OpsmithError, PackagingError
from opsmith.plan.kept_plans import stored_plan
from opsmith.schema import compiled_for, torch_version

_PLAN = "plan.json"


class Request(msgspec.Struct, frozen=True):
    """A request to build the description at ``description`` into a folder of ``folder``."""

    description: str
    folder: str
    with_adapter: bool


class Answer(msgspec.Struct, frozen=True):
    """The answer of opsmith ``opsmith``: that it was built, and for a device what, or why it was not."""

    opsmith: str
    build: CarriedBuild | None = None
    message: str = ""
    remedy: str = ""


def carried_libraries(request: Request, progress: OnProgress | None = None) -> CarriedBuild:
    """Builds what ``request`` asks for with the running Python's torch.

    Raises a :class:`~opsmith.errors.DescriptionError`, a :class:`~opsmith.errors.BuildError`, or
    :class:`~opsmith.errors.PackagingError` where a library would tell where it was built.
    """
    torch, machine = compiled_for(torch_version()), platform.machine()
    name = f"torch-{torch}-{machine}"
    description = Path(request.description)
    built = build_relocatable(
        description, f"{FOLDER}/{name}", with_adapter=request.with_adapter, progress=progress
    )
    folder = Path(request.folder) / name
    folder.mkdir(parents=True, exist_ok=True)
    adapters = {}
    if built.adapter:
        suffix = str(sysconfig.get_config_var("EXT_SUFFIX"))
        adapters[suffix] = _copied(built.adapter, folder / f"opsmith_adapter{suffix}", description)
    (folder / _PLAN).write_bytes(stored_plan(built.plan, description.parent))
    return CarriedBuild(
        torch=torch,
        machine=machine,
        folder=name,
        library=_copied(built.library, folder / built.library.name, description),
        driver=_copied(built.driver, folder / built.driver.name, description)
        if built.driver
        else None,
        plan=_listed(folder / _PLAN),
        adapters=adapters,
    )


def _copied(library: Path, copy: Path, description: Path) -> CarriedFile:
    if places := places_in(library.read_bytes(), (description.parent, cache_root())):
        raise PackagingError(
            f"{library.name} has paths of this machine in it: {', '.join(places[:3])}",
            remedy="a macro or an option of yours puts them there: give it no path of this machine",
        )
    shutil.copyfile(library, copy)
    return _listed(copy)


def _listed(path: Path) -> CarriedFile:
    content = path.read_bytes()
    return CarriedFile(path.name, len(content), hashlib.sha256(content).hexdigest())


def answer(make: Callable[[OnProgress], CarriedBuild | None]) -> int:
    """Writes the answer of ``make`` to standard output, and its steps as lines to standard error."""
    # Here: what others of this module need is imported without the list of what is installed.
    from importlib.metadata import version

    try:
        build = make(lambda step: print(step, file=sys.stderr, flush=True))
        said = Answer(version("opsmith"), build)
    except OpsmithError as error:
        place = f"{error.location}: " if error.location else ""
        said = Answer(version("opsmith"), None, f"{place}{error.message}", error.remedy)
    sys.stdout.write(msgspec.json.encode(said).decode() + "\n")
    return 0


if __name__ == "__main__":
    request = msgspec.json.decode(sys.argv[1], type=Request)
    sys.exit(answer(lambda progress: carried_libraries(request, progress)))
