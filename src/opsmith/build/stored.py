"""Files of the store that are finished: made once, whole, and sealed with a digest of their bytes.

ninja runs this file as a program, one for each step of a build: it takes the lock of the file that is to be
made, makes it under another name unless somebody else has meanwhile, seals it and renames it.  So builds
run side by side, each file is compiled by one of them, and a file that was cut short is told by its seal.
Where a file system has no locks a file may be made twice, and is as whole.
It imports nothing but the standard library: it starts in a few milliseconds.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

UNWRITTEN = "opsmith: the store cannot be written: "
"""How the line begins with which a step says why its file cannot be kept."""

_NOTHING_MADE = (
    "opsmith: nothing was made of it; the name of a source ends in .c, .cc, .cpp or .cxx"
)
_SEAL = ".sha256"
_LOCKS = "locks"  # one byte of this file for each file of the store
_PR_SET_PDEATHSIG = 1
_SIGTERM = 15


def seal_of(path: Path) -> Path:
    """Where the digest of ``path`` is kept."""
    return path.with_name(path.name + _SEAL)


def seal(path: Path, finished: Path) -> None:
    """Writes the digest of ``finished``, which is about to become ``path``."""
    temporary = seal_of(finished)
    temporary.write_text(_digest(finished))
    os.replace(temporary, seal_of(path))


def is_sound(path: Path) -> bool:
    """Whether ``path`` has the bytes that it was sealed with."""
    try:
        return seal_of(path).read_text() == _digest(path)
    except (OSError, UnicodeDecodeError):
        return False


def is_being_made(path: Path, cache: Path) -> bool:
    """Whether another process makes ``path``, of the store in ``cache``."""
    try:
        with (cache / _LOCKS).open("rb") as locks:
            # Shared: two that ask at the same time do not take each other for one that makes it.
            fcntl.lockf(locks, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, _place(path))
            return False
    except BlockingIOError:
        return True
    except OSError:
        return False


def make(
    path: Path, cache: Path, partial: Path, command: list[str], *, is_sealed: bool = True
) -> int:
    """Makes ``path`` by ``command``, which writes ``partial``; the command's exit status.

    Raises OSError where the store cannot be written.
    """
    with ExitStack() as held:
        with suppress(OSError):
            locks = held.enter_context((cache / _LOCKS).open("ab"))
            fcntl.lockf(locks, fcntl.LOCK_EX, 1, _place(path))
        if is_sound(path) if is_sealed else path.exists():
            return 0
        status = _status_of(command)
        if status == 0 and not partial.exists():
            print(_NOTHING_MADE, file=sys.stderr)
            return 1
        if status == 0:
            if is_sealed:
                seal(path, partial)
            os.replace(partial, path)
        else:
            with suppress(OSError):
                partial.unlink()
        return status


def _status_of(command: list[str]) -> int:
    try:
        return subprocess.call(command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return 127


def _place(path: Path) -> int:
    name = f"{path.parent.name}/{path.name}"
    return int.from_bytes(hashlib.sha256(os.fsencode(name)).digest()[:6], "big")


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_step(step: Path, path: Path, cache: Path, partial: Path, command: list[str]) -> None:
    """Writes to ``step`` what :func:`main` reads: paths may have any character that no shell would take."""
    words = (str(path), str(cache), str(partial), *command)
    step.write_bytes(b"\0".join(map(os.fsencode, words)))


def _made(step: Path, *, is_sealed: bool) -> int:
    path, cache, partial, *command = map(os.fsdecode, step.read_bytes().split(b"\0"))
    try:
        return make(Path(path), Path(cache), Path(partial), command, is_sealed=is_sealed)
    except OSError as error:
        print(f"{UNWRITTEN}{error.strerror or error}", file=sys.stderr)
        return 1


def _attached(parent: int, command: list[str]) -> None:
    """Becomes ``command``, which ends with its parent, however that ends."""
    with suppress(ImportError, AttributeError):  # a Python without it, a system without it
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SIGTERM)
    if os.getppid() == parent:  # else it was too late to be told
        os.execv(command[0], command)


def main(arguments: list[str]) -> int:
    """``make STEP``; ``try STEP``, which may fail and is not sealed; or ``attached PARENT COMMAND…``."""
    if arguments[0] == "make":
        return _made(Path(arguments[1]), is_sealed=True)
    if arguments[0] == "try":
        _made(Path(arguments[1]), is_sealed=False)
        return 0
    _attached(int(arguments[1]), arguments[2:])
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
