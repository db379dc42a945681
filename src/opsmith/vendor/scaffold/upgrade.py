"""The changes that this opsmith would make to a project that another one wrote.

Files that the user has not edited can be brought up to date; for the others, what has changed between the
templates is told, and taking it over is left to the user.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from opsmith.base.output_files import write_output
from opsmith.errors import ProjectInvalid
from opsmith.vendor.scaffold.choices import Choices
from opsmith.vendor.scaffold.record import read_record, write_record
from opsmith.vendor.scaffold.rendering import opsmith_version, rendered_files


@dataclass(frozen=True)
class FileChange:
    """A file of a project that this opsmith writes differently, or no longer, or for the first time.

    ``edited``: the user has changed or removed it since, so that it is left alone.  ``diff`` is a unified
    diff, of the file where it is not ``edited``, else between the templates of both versions.
    """

    path: str
    edited: bool
    diff: str


@dataclass(frozen=True)
class Upgrade:
    """The differences between what the opsmith that wrote a project and the one that runs now write."""

    folder: Path
    wrote: str
    now: str
    choices: Choices
    files: Mapping[str, str]
    changes: tuple[FileChange, ...]


def find_upgrade(folder: Path) -> Upgrade:
    """The upgrade for the project in ``folder``.  Changes nothing.

    Raises what :func:`~opsmith.vendor.scaffold.record.read_record` raises, and
    :class:`~opsmith.errors.ProjectInvalid` for a file that cannot be read.
    """
    record = read_record(folder)
    files = rendered_files(record.choices)
    changes = []
    for path in sorted({*record.files, *files}):
        before, after = record.files.get(path), files.get(path)
        yours = _text_of(folder / path)
        if after not in (before, yours):
            changes.append(FileChange(path, yours != before, _diff(path, before, after)))
    return Upgrade(folder, record.opsmith, opsmith_version(), record.choices, files, tuple(changes))


def apply_upgrade(upgrade: Upgrade) -> None:
    """Brings the files up to date that the user has not edited, and remembers the new ones.

    Raises :class:`~opsmith.errors.OutputRejected`.
    """
    for change in upgrade.changes:
        if change.edited:
            continue
        target = upgrade.folder / change.path
        if change.path in upgrade.files:
            target.parent.mkdir(parents=True, exist_ok=True)
            write_output(target, upgrade.files[change.path].encode())
        else:
            target.unlink()
    write_record(upgrade.folder, upgrade.choices, upgrade.files)


def _text_of(path: Path) -> str | None:
    """The text of the file ``path``; None where there is none."""
    try:
        return path.read_bytes().decode(errors="surrogateescape")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ProjectInvalid(
            f"`{path}` cannot be read: {error.strerror}",
            remedy="move it away; `opsmith new` writes a file of that name",
        ) from None


def _diff(path: str, before: str | None, after: str | None) -> str:
    lines = difflib.unified_diff(
        (before or "").splitlines(keepends=True),
        (after or "").splitlines(keepends=True),
        "/dev/null" if before is None else f"a/{path}",
        "/dev/null" if after is None else f"b/{path}",
    )
    return "".join(lines)
