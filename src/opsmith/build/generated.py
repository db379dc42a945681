"""Generated files on disk, in a folder of the cache that is named for what is in them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from opsmith.base.cache_folder import mark_used
from opsmith.base.trusted_files import read_trusted
from opsmith.build.cache import write_whole
from opsmith.plan import Plan
from opsmith.plan.kept_plans import planning_code_digest

_EMIT = Path(__file__).resolve().parent.parent / "emit"


def write_generated(name: str, texts: Mapping[str, str], cache: Path) -> Path:
    """The folder that holds the files ``texts``, by name, written where they are missing or damaged.

    Its name begins with ``name``.  Raises :class:`~opsmith.errors.CacheUnusable`.
    """
    folder = cache / "generated" / f"{name}-{_digest(texts)}"
    for file, text in texts.items():
        if not _holds(folder / file, text.encode()):
            write_whole(folder / file, text.encode())
    return folder


def generated_for(plan: Plan, cache: Path) -> Path:
    """The folder of what is generated for ``plan``: the compiler's, where people read `opsmith gen`'s.

    Written where no process has done so before: an edit of a kernel generates nothing.
    """
    record = cache / "generated" / f"{_key(plan)}.json"
    with suppress(OSError, ValueError):
        folder = cache / "generated" / Path(str(json.loads(read_trusted(record)))).name
        texts = {path.name: read_trusted(path).decode() for path in folder.iterdir()}
        if folder.name.endswith(_digest(texts)):
            mark_used(record, folder)
            return folder
    # Here, because whoever finds what it needs does without.
    from opsmith.emit import class_name, emit

    texts = {file.name: file.text for file in emit(plan, laid_out=False)}
    folder = write_generated(class_name(plan.backend), texts, cache)
    write_whole(record, json.dumps(folder.name).encode())
    return folder


def _key(plan: Plan) -> str:
    """A digest of the plan, and of the code that makes plans and generates from them."""
    digest = hashlib.sha256(msgspec.json.encode(plan, enc_hook=str))
    digest.update(planning_code_digest().encode())
    for path in sorted(_EMIT.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:32]


def says(folder: Path, text: str) -> bool:
    """Whether ``text`` is in the code that is generated in ``folder``, and not only in its comments."""
    return any(
        text in line
        for path in folder.glob("*.cpp")
        for line in path.read_text(encoding="utf-8").splitlines()
        if not line.lstrip().startswith("//")
    )


def _digest(texts: Mapping[str, str]) -> str:
    return hashlib.sha256(repr(sorted(texts.items())).encode()).hexdigest()[:32]


def _holds(path: Path, content: bytes) -> bool:
    try:
        return read_trusted(path) == content
    except OSError:
        return False
