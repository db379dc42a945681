"""A description's options for compiling and linking, and its libraries, each checked at its place."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from opsmith.description.document import Document, Step
from opsmith.description.model import BuildOptions
from opsmith.description.paths import files_of
from opsmith.errors import SyntaxInvalid

# Options that decide over a build's files and steps, which is opsmith's part.
_OURS = re.compile(r"-(o|c|E|S|x|M[A-Z]*|shared|save-temps)\b.*")
_WITH_PATH = re.compile(r"-(?P<option>I|isystem|iquote|idirafter|L|B)(?P<path>.*)")
_INSTEAD = {"L": "`libraries: [lib/libmysdk.so]` names a file"}
_FILE = re.compile(r".*(/|\.(a|o|so)(\.[0-9.]+)?$)")


class WrittenOptions(Protocol):
    """The options that manifests, drivers and entries of ``libraries`` may all have."""

    compile_flags: list[str]
    link_flags: list[str]
    libraries: list[str]


def build_options(document: Document, written: WrittenOptions, *steps: Step) -> BuildOptions:
    """The build options in ``written``, at ``steps``.

    Raises :class:`~opsmith.errors.SyntaxInvalid` for an option that cannot be one, and
    :class:`~opsmith.errors.FileMissing` for a library given by its path that does not exist.
    """
    libraries: list[str | Path] = []
    for index, name in enumerate(written.libraries):
        place = (*steps, "libraries", index)
        if _FILE.fullmatch(name):
            libraries += files_of(document, [name], *steps, "libraries", start=index)
        elif re.fullmatch(r"[\w.+-]+", name) and not name.startswith("-"):
            libraries.append(name)
        else:
            raise SyntaxInvalid(
                f"`{name}` is no library",
                location=document.locate(*place),
                remedy="write its name as after -l (`mysdk` for libmysdk.so), or its path",
            )
    return BuildOptions(
        _flags(document, written.compile_flags, *steps, "compile_flags"),
        _flags(document, written.link_flags, *steps, "link_flags"),
        tuple(libraries),
    )


def _flags(document: Document, flags: Sequence[str], *steps: Step) -> tuple[str, ...]:
    for index, flag in enumerate(flags):
        reason = remedy = ""
        if not flag.startswith("-") or len(flag) < 2:
            reason = "is no option"
            remedy = "an option begins with `-`, and is one entry together with its value: -I/opt/include"
        elif re.search(r"\s-\w", flag):
            reason, remedy = "is more than one option", "make each an entry of its own"
        elif _OURS.fullmatch(flag):
            reason = "decides what opsmith decides: which files a build makes, and how"
            remedy = "leave it out"
        elif (found := _WITH_PATH.fullmatch(flag)) and not Path(found["path"]).is_absolute():
            reason = "has no absolute path, and compilers run in a folder of the cache"
            option = _INSTEAD.get(found["option"], "`include_dirs` are relative to this file")
            remedy = f"{option}"
        if reason:
            raise SyntaxInvalid(
                f"`{flag}` {reason}", location=document.locate(*steps, index), remedy=remedy
            )
    return tuple(flags)
