"""Options in the environment for compiling and linking a user's own sources.

``CFLAGS``, ``CXXFLAGS``, ``CPPFLAGS`` and ``LDFLAGS`` as everywhere; ``OPSMITH_OPTIMIZE``; ``OPSMITH_DEBUG``
and ``OPSMITH_SANITIZE``, which ``opsmith build --debug`` and ``--sanitize`` stand for.  What comes with
opsmith, and what it generates, is compiled as always, but for ``OPSMITH_OPTIMIZE=0``: then a build is to be
quick: :class:`opsmith.build.units.Level` says what is optimised how, and the instruction sets that this
processor lacks are left out.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

from opsmith.build.toolchain import Compiler
from opsmith.errors import SettingInvalid

OPTIMIZE = "OPSMITH_OPTIMIZE"
DEBUG = "OPSMITH_DEBUG"
SANITIZE = "OPSMITH_SANITIZE"

_FASTEST = "-O3"
_DEBUGGED = "-Og"
_LEVELS = ("0", "1", "2", "3", "g", "s")
_SANITIZERS = ("address", "undefined", "thread")
# Those whose runtime has to be in a process before everything else, by its library: gcc's and clang's.
_RUNTIMES = {"address": ("libasan.so", "asan"), "thread": ("libtsan.so", "tsan")}
_FLAGS = {".c": "CFLAGS"}
_SETTINGS = (OPTIMIZE, DEBUG, SANITIZE, "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS")


def own_optimization() -> str:
    """The compiler's option for a user's own sources.  Raises :class:`~opsmith.errors.SettingInvalid`."""
    level = os.environ.get(OPTIMIZE, "")
    if not level:
        return _DEBUGGED if _is_debugged() else _FASTEST
    if level not in _LEVELS:
        raise SettingInvalid(
            f"{OPTIMIZE} is `{level}`, which is no level of optimisation",
            remedy=f"set it to one of {', '.join(_LEVELS)}, or unset it",
        )
    return f"-O{level}"


def is_quick_build() -> bool:
    """Whether the build is to be over soon, however slow what it makes is: ``OPSMITH_OPTIMIZE=0``."""
    return os.environ.get(OPTIMIZE) == "0"


def own_compile_flags(source: Path) -> tuple[str, ...]:
    """The options for ``source`` of a user.  Raises :class:`~opsmith.errors.SettingInvalid`."""
    flags = ["-g", "-fno-omit-frame-pointer"] if _is_debugged() or own_sanitizers() else []
    if own_sanitizers():
        flags += [_sanitized(), "-fno-sanitize-recover=undefined"]
    return (*flags, *_words("CPPFLAGS"), *_words(_FLAGS.get(source.suffix, "CXXFLAGS")))


def own_link_flags() -> tuple[str, ...]:
    """The options for linking a user's sources.  Raises :class:`~opsmith.errors.SettingInvalid`."""
    return (*([_sanitized()] if own_sanitizers() else []), *_words("LDFLAGS"))


def own_settings() -> str:
    """All that the environment says of it, for digests.  Raises as the others."""
    own_optimization(), own_compile_flags(Path(".cpp")), own_link_flags()
    return " ".join(f"{name}={value}" for name in _SETTINGS if (value := os.environ.get(name)))


def own_sanitizers() -> tuple[str, ...]:
    """The sanitizers that ``OPSMITH_SANITIZE`` names.  Raises :class:`~opsmith.errors.SettingInvalid`."""
    names = tuple(filter(None, os.environ.get(SANITIZE, "").replace(" ", "").split(",")))
    for name in names:
        if name not in _SANITIZERS:
            raise SettingInvalid(
                f"{SANITIZE} names `{name}`, which is no sanitizer that opsmith builds with",
                remedy=f"name some of {', '.join(_SANITIZERS)}, with commas, or unset it",
            )
    if {"address", "thread"} <= {*names}:
        raise SettingInvalid(
            f"{SANITIZE} names `address` and `thread`, and a process has room for one of them",
            remedy="build and run twice, with one of them each",
        )
    return tuple(name for name in _SANITIZERS if name in names)


def preloads(compiler: Compiler) -> tuple[Path, ...]:
    """The libraries that a process has to begin with where own sources are sanitized; raises as above.

    A sanitizer that counts every access stands before all other libraries, which Python's own program
    does not load.
    """
    found = []
    for name in own_sanitizers():
        if name not in _RUNTIMES:
            continue
        file, runtime = _RUNTIMES[name]
        if compiler.is_clang:
            file = f"libclang_rt.{runtime}-{platform.machine()}.so"
        path = Path(_said(compiler.command, f"-print-file-name={file}"))
        if not path.is_absolute():
            raise SettingInvalid(
                f"{SANITIZE} names `{name}`, and {compiler.command[0]} comes without {file}",
                remedy="install it: it comes with gcc, and with clang in libclang-rt-dev (Debian, Ubuntu)",
            )
        found.append(path)
    return tuple(found)


def run_hint(compiler: Compiler) -> str:
    """The text before a program's command that makes it run with what was built; empty for nothing."""
    words = [
        f"{name}={shlex.quote(value)}"
        for name in _SETTINGS
        if (value := os.environ.get(name)) and name != OPTIMIZE
    ]
    if libraries := preloads(compiler):
        words.append(f"LD_PRELOAD={shlex.quote(' '.join(map(str, libraries)))}")
    if "address" in own_sanitizers():
        # Python keeps what it allocates until the end.
        words.append("ASAN_OPTIONS=detect_leaks=0")
    return " ".join(words)


def _is_debugged() -> bool:
    chosen = os.environ.get(DEBUG) or "0"
    if chosen not in {"0", "1"}:
        raise SettingInvalid(f"{DEBUG} is `{chosen}`", remedy="set it to 1, or unset it")
    return chosen == "1"


def _sanitized() -> str:
    return f"-fsanitize={','.join(own_sanitizers())}"


def _words(variable: str) -> tuple[str, ...]:
    text = os.environ.get(variable, "")
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise SettingInvalid(
            f"{variable} cannot be split into options: {error}: {text}",
            remedy="close its quotation marks, or unset it",
        ) from None
    for word in words:
        if re.fullmatch(r"-[IL](?!/).*", word):
            raise SettingInvalid(
                f"{variable} has `{word}`, and compilers run in a folder of the cache",
                remedy="give it an absolute path, or name the folder in `include_dirs` of a manifest",
            )
    return words


def _said(command: Sequence[str], option: str) -> str:
    try:
        done = subprocess.run([*command, option], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()
