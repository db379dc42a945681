"""Plans on disk, so that planning the same thing twice costs milliseconds.

The key is everything that a plan depends on: torch's version, opsmith's own planning code and the
bytes of every YAML file that was read.  A stale or damaged file is planned anew, never trusted.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from opsmith.description import find_backend, read_backend
from opsmith.plan.model import Plan
from opsmith.plan.resolver import resolve
from opsmith.schema import read_catalogue, torch_version

_PACKAGE = Path(__file__).resolve().parent.parent
_PLANNING_ROOMS = ("schema", "description", "plan")


class _Record(msgspec.Struct):
    """A plan with the digests of the files that it was made from."""

    files: dict[str, str]
    plan: Plan


def plan_backend(name: str, cache: Path | None) -> Plan:
    """The plan for the backend ``name`` (shipped, or a path), from ``cache`` where it is fresh.

    Raises a :class:`DescriptionError` where the description is wrong.
    """
    path = find_backend(name)
    record_path = None
    if cache is not None:
        key = _digest_text(f"{torch_version()}\n{planning_code_digest()}\n{path}")
        record_path = cache / "plans" / f"{key}.json"
        if plan := _read(record_path):
            return plan
    catalogue = read_catalogue()
    backend = read_backend(path, catalogue)
    plan = resolve(backend, catalogue)
    if record_path is not None:
        digests = {str(file): _digest_file(file) for file in backend.files}
        _write(record_path, _Record(digests, plan))
    return plan


def planning_code_digest() -> str:
    """A digest of the code that makes plans, so that a changed rule never meets an old plan."""
    sources = sorted(
        path
        for room in _PLANNING_ROOMS
        for path in (_PACKAGE / room).iterdir()
        if path.suffix in {".py", ".yaml"}
    )
    return _digest_text("".join(_digest_file(path) for path in sources))


def _read(path: Path) -> Plan | None:
    try:
        record = msgspec.json.decode(path.read_bytes(), type=_Record, dec_hook=_decode)
        if all(_digest_file(Path(file)) == digest for file, digest in record.files.items()):
            return record.plan
    except (OSError, msgspec.DecodeError):
        pass
    return None


def _write(path: Path, record: _Record) -> None:
    """Best effort: a plan that cannot be stored is still a plan."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(msgspec.json.encode(record, enc_hook=_encode))
        os.replace(file.name, path)
    except OSError:
        pass


def _encode(value: Any) -> str:
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(type(value))


def _decode(kind: type, value: Any) -> Any:
    if issubclass(kind, Path):
        return Path(value)
    raise NotImplementedError(kind)


def _digest_file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _digest_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
