"""Where the cache is and how it is written; :mod:`opsmith.build.cache` says what lies in it."""

from __future__ import annotations

import hashlib
import os
import secrets
from contextlib import suppress
from pathlib import Path

VARIABLE = "OPSMITH_CACHE_DIR"


def cache_root() -> Path:
    """The cache directory: ``OPSMITH_CACHE_DIR``, or ``opsmith`` in the user's own, as XDG has it."""
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen).absolute()
    return Path(
        os.path.expanduser(os.environ.get("XDG_CACHE_HOME") or "~/.cache"), "opsmith"
    ).absolute()


def replace_file(path: Path, content: bytes) -> None:
    """Writes ``path``, of the cache, so that it is either as before or whole; raises OSError.

    Others may read it as the umask says: a cache may be shared.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".tmp-{secrets.token_hex(8)}")
    try:
        with temporary.open("xb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def sealed(content: bytes) -> bytes:
    """``content`` with a digest before it, by which :func:`unsealed` tells whether it is what was written."""
    return hashlib.sha256(content).hexdigest().encode() + b"\n" + content


def unsealed(text: bytes) -> bytes:
    """The content of a :func:`sealed` text; raises ValueError where it is not as it was."""
    digest, _, content = text.partition(b"\n")
    if digest != hashlib.sha256(content).hexdigest().encode():
        raise ValueError("not what was written")
    return content
