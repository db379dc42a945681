"""The record of `opsmith new` in a project: the version, the choices and the files as they were written.

The files are kept whole, so that what a newer opsmith would write otherwise can be told from what the
user has edited.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import msgspec

from opsmith.base.json_files import JsonFile
from opsmith.base.output_files import write_output
from opsmith.description import check_device_name
from opsmith.errors import OpsmithError, ProjectInvalid
from opsmith.vendor.scaffold.choices import Choices, DriverLanguage, KernelLanguage
from opsmith.vendor.scaffold.rendering import opsmith_version

FILE = ".opsmith-new.json"
_FORMAT = 1


class _RecordJson(msgspec.Struct):
    format: int
    about: str
    opsmith: str
    name: str
    driver: DriverLanguage | None
    kernels: KernelLanguage
    executorch: bool
    files: dict[str, str]


_JSON = JsonFile(
    _RecordJson,
    _FORMAT,
    "the record of `opsmith new`",
    "name the folder of a project that `opsmith new` wrote",
)


class _VersionJson(msgspec.Struct):
    opsmith: str


@dataclass(frozen=True)
class Record:
    """The version of opsmith that wrote a project, what it was asked for, and what it wrote: text by path."""

    opsmith: str
    choices: Choices
    files: Mapping[str, str]


def record_text(choices: Choices, files: Mapping[str, str]) -> str:
    """The text of the record of what this opsmith writes."""
    record = _RecordJson(
        _FORMAT,
        "What `opsmith new` wrote, for `opsmith new --upgrade`. Keep it with the project.",
        opsmith_version(),
        choices.name,
        choices.driver,
        choices.kernels,
        choices.executorch,
        {
            path: base64.b64encode(zlib.compress(text.encode(), 9)).decode()
            for path, text in files.items()
        },
    )
    return msgspec.json.format(msgspec.json.encode(record), indent=1).decode() + "\n"


def write_record(folder: Path, choices: Choices, files: Mapping[str, str]) -> None:
    """Writes the record of ``folder``.  Raises :class:`~opsmith.errors.OutputRejected`."""
    write_output(folder / FILE, record_text(choices, files).encode())


def read_record(folder: Path) -> Record:
    """The record of the project in ``folder``.

    Raises :class:`~opsmith.errors.FileMissing` where it has none, :class:`~opsmith.errors.ProjectInvalid`
    where a newer opsmith wrote it or it was altered, and :class:`~opsmith.errors.ResultsInvalid` where the
    file holds something else.
    """
    path = folder / FILE
    content = _JSON.read_bytes(path)
    _check_version(folder, content)
    raw = _JSON.decode(content, path)
    try:
        files = {
            name: zlib.decompress(base64.b64decode(text)).decode()
            for name, text in raw.files.items()
        }
        check_device_name(raw.name, None)
        choices = Choices(raw.name, raw.driver, raw.kernels, raw.executorch)
    except (ValueError, zlib.error, OpsmithError) as error:
        reason = error.message if isinstance(error, OpsmithError) else str(error)
        raise _altered(path, reason) from None
    for name in files:
        parts = PurePosixPath(name)
        if parts.is_absolute() or ".." in parts.parts or not parts.parts:
            raise _altered(path, f"`{name}` is no path in the project")
    return Record(raw.opsmith, choices, files)


def _altered(path: Path, reason: str) -> ProjectInvalid:
    return ProjectInvalid(
        f"`{path}` was altered: {reason}", remedy=f"take it back, e.g. git checkout {path.name}"
    )


def _check_version(folder: Path, content: bytes) -> None:
    try:
        wrote = msgspec.json.decode(content, type=_VersionJson).opsmith
    except msgspec.DecodeError:
        return  # what is wrong with it is told by who reads all of it
    if _ordered(wrote) > _ordered(opsmith_version()):
        raise ProjectInvalid(
            f"`{folder}` was written by opsmith {wrote}, and this is opsmith {opsmith_version()}",
            remedy="update opsmith: pip install --upgrade opsmith",
        )


def _ordered(version: str) -> tuple[int, ...]:
    """The numbers of a version's release, for comparing; what stands behind them counts for nothing."""
    release = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, release[0].split("."))) if release else ()
