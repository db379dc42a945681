"""Plans on disk, so that planning the same thing twice costs milliseconds.

The key is everything that a plan depends on: torch's version, opsmith's own planning code, and the names
and bytes of the YAML files that were read; not where they lie.  A plan names places in those files, so it
is kept without the folders of the package and of the description, and given those of whoever reads it.
A damaged file is planned anew, never trusted.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from opsmith.base.cache_folder import replace_file, sealed, unsealed
from opsmith.base.trusted_files import read_trusted
from opsmith.description import PlanSources
from opsmith.plan.model import Entry, Plan
from opsmith.schema import torch_version

_PACKAGE = Path(__file__).resolve().parent.parent
_WHOLE = "whole"
_PLANNING_ROOMS = ("schema", "description", "plan")


def kept_plan(
    sources: PlanSources, cache: Path, planned: Callable[[], Plan], kind: str = _WHOLE
) -> Plan:
    """The plan of ``sources`` as ``cache`` has it, or what ``planned`` makes, kept there.

    ``kind`` tells plans of one backend apart.
    """
    key, path = _key(sources, kind), sources.files[0]
    if plan := _known.get((key, path)):
        return plan
    record = cache / "plans" / f"{key}.json"
    plan = read_plan(record, path.parent)
    if plan is None:
        plan = planned()
        _write(record, plan, path.parent)
    _known[key, path] = plan
    return plan


# The plans that this process has made or read.
_known: dict[tuple[str, Path], Plan] = {}


def _key(sources: PlanSources, kind: str = _WHOLE) -> str:
    description = sources.files[0]
    folders = _folders(description.parent)
    lines = [torch_version(), planning_code_digest(), description.name, kind]
    lines.append(f"{sources.window_is_hidden} {sources.triton_is_interpreted}")
    lines += [f"{_with_names(str(file), folders)} {_digest_file(file)}" for file in sources.files]
    return _digest_text("\n".join(lines))


def planning_code_digest() -> str:
    """A digest of the code that makes plans, so that a changed rule never meets an old plan."""
    sources = sorted(
        path
        for room in _PLANNING_ROOMS
        for path in (_PACKAGE / room).rglob("*")
        if path.suffix in {".py", ".yaml"}
    )
    return _digest_text("".join(_digest_file(path) for path in sources))


# ---- places


def _folders(description: Path) -> Mapping[str, Path]:
    """The folders in which a plan's places lie, by the names that stand for them on disk.

    The package comes first: its own descriptions lie in it.
    """
    return {"\x00opsmith": _PACKAGE, "\x00description": description}


def _with_names(text: str, folders: Mapping[str, Path]) -> str:
    for name, folder in folders.items():
        # Not the end of another folder's path; looked for behind it, since no regular expression that
        # begins with the look is searched for fast.
        path = re.escape(f"{_in_json(folder)}/")
        pattern = rf"{path}(?<![\w./-]{path})"
        text = re.sub(pattern, _in_json(name).replace("\\", r"\\") + "/", text)
    return text


def _with_folders(text: str, folders: Mapping[str, Path]) -> str:
    for name, folder in folders.items():
        text = text.replace(f"{_in_json(name)}/", f"{_in_json(folder)}/")
    return text


def _in_json(text: object) -> str:
    return msgspec.json.encode(str(text)).decode()[1:-1]


def read_plan(path: Path, description: Path) -> Plan | None:
    """The plan in the file ``path``, for a description in the folder ``description``; None for no plan."""
    try:
        text = _with_folders(unsealed(read_trusted(path)).decode(), _folders(description))
        return msgspec.json.decode(text.encode(), type=Plan, dec_hook=_decode)
    except (OSError, ValueError):
        return None


def stored_plan(plan: Plan, description: Path) -> bytes:
    """``plan`` as :func:`read_plan` takes it, without the place of its description's folder."""
    text = msgspec.json.encode(plan, enc_hook=_encode).decode()
    return sealed(_with_names(text, _folders(description)).encode())


def encoded_entries(entries: Iterable[Entry]) -> str:
    """``entries`` as JSON, for another process on this machine; :func:`decoded_entries` reads it."""
    return msgspec.json.encode(tuple(entries), enc_hook=_encode).decode()


def decoded_entries(text: str) -> tuple[Entry, ...]:
    """The entries that ``text`` was made of."""
    return msgspec.json.decode(text, type=tuple[Entry, ...], dec_hook=_decode)


def _write(path: Path, plan: Plan, description: Path) -> None:
    """Best effort: a plan that cannot be stored is still a plan."""
    with suppress(OSError):
        replace_file(path, stored_plan(plan, description))


def _encode(value: Any) -> str:
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(type(value))


def _decode(kind: type, value: Any) -> Any:
    if issubclass(kind, Path):
        return _path(value)
    raise NotImplementedError(kind)


# The places of thousands of kernels lie in a few files.
_path = functools.lru_cache(Path)


def _digest_file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _digest_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
