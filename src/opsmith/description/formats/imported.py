"""Turns a kernel library in a YAML of torchgen, op-plugin or ExecuTorch into a manifest of opsmith's own.

Reading the manifest gives the kernels that reading the original gives.  What a manifest cannot hold, and what
is wrong in the original, is listed in its comments and handed back with the reason.  Called by the command
``import``.
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from opsmith.description.document import Document, parse_document, read_document
from opsmith.description.formats.flag_gems import FLAG_GEMS, INSTALL, find_flag_gems, read_flag_gems
from opsmith.description.formats.known import YamlFormat, format_of
from opsmith.description.library import read_document_as_library
from opsmith.description.model import Derive, Kernel, Library, Unserved
from opsmith.errors import DescriptionError, FileMissing, FormatUnknown
from opsmith.schema import Catalogue, Operator

_WIDTH = 100


@dataclass(frozen=True)
class Imported:
    """A manifest's text, and what of the original it does not hold."""

    text: str
    unserved: tuple[Unserved, ...]

    def by_reason(self) -> dict[str, list[Unserved]]:
        """``unserved`` by reason: a file for lazy tensors has a hundred items with the same one."""
        return _by_reason(self.unserved)


def import_library(path: Path, catalogue: Catalogue) -> Imported:
    """The manifest for the kernel library in the file ``path``.

    An entry that is wrong is among the unserved.  Raises :class:`FormatUnknown` for a file that is opsmith's
    own, and what reading raises where the file as a whole is wrong.
    """
    document = read_document(path)
    kind = format_of(document)
    if kind not in _WRITERS:
        raise FormatUnknown(
            f"this is {kind.value} already",
            location=document.locate(),
            remedy="import turns the YAML of torchgen, op-plugin and ExecuTorch into manifests",
        )
    library = read_document_as_library(document, catalogue, keep_faults=True)
    return Imported(_WRITERS[kind](document, library), library.unserved)


def import_flag_gems(catalogue: Catalogue) -> Imported:
    """The manifest for the operators of the installed FlagGems.  Raises as :func:`read_flag_gems` does."""
    if (path := find_flag_gems()) is None:
        raise FileMissing("FlagGems is not installed", remedy=INSTALL)
    library = read_flag_gems(path, catalogue)
    rows = (
        f"  - {{op: {each.operator}, launcher: {each.launch.name}}}"
        for each in library.kernels
        if each.launch
    )
    header = (
        f"library: {FLAG_GEMS}\nabi: triton\nmodule: {FLAG_GEMS}\non_error: fallback\nkernels:\n"
    )
    return Imported(header + "\n".join(rows) + "\n", library.unserved)


def _manifest_of_executorch(document: Document, library: Library) -> str:
    """The file's own text below a header: the entries of such a manifest are ExecuTorch's."""
    lines = document.text.splitlines()
    top = _leading_comments(lines)
    header = "\n".join(
        [
            *_top(top, document),
            f"library: {_quoted(library.name)}",
            "abi: executorch",
            _SOURCES_HINT,
            "kernels:\n",
        ]
    )
    places = {operator.location for operator in library.executorch}
    left_out = [
        index
        for index, entry in enumerate(document.data)
        if not any(document.locate(index, key) in places for key in ("func", "op"))
    ]
    body = "\n".join(
        f"  {line}".rstrip()
        for line in _without_markers(_entries_commented(document, left_out)[len(top) :])
    )
    text = header + body.strip("\n") + "\n"
    taken = [entry for index, entry in enumerate(document.data) if index not in left_out]
    if _entries(text, document) != taken:
        # Rare YAML that does not survive being indented.
        dumped = yaml.safe_dump(
            taken,
            sort_keys=False,
            width=_WIDTH,
            allow_unicode=True,
            default_flow_style=None,
        )
        text = header + "".join(f"  {line}\n" for line in dumped.splitlines())
    return "\n".join([text.rstrip("\n"), *_not_carried_over(library)]) + "\n"


def _entries_commented(document: Document, indices: Sequence[int]) -> list[str]:
    """The lines of a list with the entries at ``indices`` made comments."""
    lines = document.text.splitlines()
    starts = [document.locate(index).line - 1 for index in range(len(document.data))]
    for index in indices:
        for number in range(starts[index], [*starts, len(lines)][index + 1]):
            if not _is_comment_or_blank(lines[number]):
                lines[number] = f"# {lines[number]}"
    return lines


def _entries(text: str, document: Document) -> Any:
    try:
        return parse_document(text, document.path).data["kernels"]
    except DescriptionError:
        return None


def _manifest_of_lists(document: Document, library: Library) -> str:
    lines = document.text.splitlines()
    guard = any(kernel.device_guard for kernel in library.kernels)
    classes = {kernel.class_name for kernel in library.kernels if kernel.class_name}
    derives = Counter(kernel.derive for kernel in library.kernels)
    derive = max(derives, key=lambda each: derives[each], default=Derive.CHEAPEST)
    guards = all(kernel.device_guard for kernel in library.kernels)
    header = [
        *_top(_leading_comments(lines), document),
        f"library: {_quoted(library.name)}",
        _SOURCES_HINT,
        *(f"class_name: {name}  # the kernels are its static members" for name in classes),
    ]
    if not guard and library.kernels:
        header.append("device_guard: false  # the kernels make their operands' device current")
    if library.kernels and (not guards or derive is not Derive.CHEAPEST):
        header.append(f"derive: {derive.value}  # {_DERIVE_WORDS[derive]}")
    header.append("kernels:" if library.kernels else "kernels: []")
    body: list[str] = []
    comments = _Comments(lines)
    own = {declared.operator.name: declared.operator for declared in library.operators}
    for kernel in library.kernels:
        above, beside = comments.at(kernel.location.line)
        body += [f"  {comment}" for comment in above]
        body += _kernel_lines(kernel, own.get(kernel.operator), guard, derive, beside)
    return "\n".join([*header, *body, *_not_carried_over(library)]) + "\n"


def _not_carried_over(library: Library) -> Iterator[str]:
    for reason, items in _by_reason(library.unserved).items():
        names = ", ".join(f"{_one_line(each.name)} (line {each.location.line})" for each in items)
        yield from ("", *_commented(f"Not carried over: {names}"), *_commented(reason))


def _kernel_lines(
    kernel: Kernel, own: Operator | None, guard: bool, derive: Derive, beside: str
) -> Iterator[str]:
    """The entry of ``kernel``, which declares the operator ``own``, if any."""
    key, named = ("func", f"{own.namespace}::{own.schema}") if own else ("op", kernel.operator)
    yield f"  - {key}: {_quoted(named)}{f'  {beside}' if beside else ''}"
    if own and own.tags:
        yield f"    tags: [{', '.join(own.tags)}]"
    if kernel.symbol:
        yield f"    kernel_name: {kernel.symbol}"
    if kernel.structured:
        yield "    structured: true"
    if kernel.meta_symbol:
        yield f"    structured_meta: override  # by {kernel.meta_symbol}"
    if kernel.symint:
        yield "    symint: true"
    if kernel.device_guard is not guard:
        yield f"    device_guard: {'true' if kernel.device_guard else 'false'}"
    if kernel.derive is not derive:
        yield f"    derive: {kernel.derive.value}"
    if kernel.autograd:
        yield f"    autograd: {kernel.autograd}"


_WRITERS: Mapping[YamlFormat, Callable[[Document, Library], str]] = {
    YamlFormat.TORCHGEN: _manifest_of_lists,
    YamlFormat.OP_PLUGIN: _manifest_of_lists,
    YamlFormat.EXECUTORCH: _manifest_of_executorch,
}

_SOURCES_HINT = '# sources: ["*.cpp"]  # the files that define the kernels'
_DERIVE_WORDS = {
    Derive.CHEAPEST: "variants without a kernel are built on the cheapest one of their group",
    Derive.FUNCTIONAL: "use_out_as_primary was false",
    Derive.OUT: "use_out_as_primary was true",
    Derive.NOTHING: "no variant is built",
}


class _Comments:
    """The comments of a file, by the line of the value that they stand above or beside."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self._taken = len(_leading_comments(lines))

    def at(self, line: int) -> tuple[list[str], str]:
        """The whole-line comments above ``line`` (from 1) and the one at its end, each once."""
        first = line - 1
        while first > self._taken and _is_comment_or_blank(self.lines[first - 1]):
            first -= 1
        above = [text.strip() for text in self.lines[first : line - 1] if text.strip()]
        beside = re.search(r"(?:^|\s)(#.*)$", self.lines[line - 1]) if line > self._taken else None
        self._taken = max(self._taken, line)
        return above, beside[1].strip() if beside else ""


def _is_comment_or_blank(line: str) -> bool:
    return not line.strip() or line.strip().startswith("#")


def _leading_comments(lines: list[str]) -> list[str]:
    """The comments at the top of the file, with the empty lines between them."""
    count = 0
    for index, line in enumerate(lines):
        if line.startswith("#"):
            count = index + 1
        elif line.strip():
            break
    return lines[:count]


def _top(comments: list[str], document: Document) -> list[str]:
    """How a manifest begins: the original's own first comments, and where it comes from."""
    return [
        *comments,
        *[""] * bool(comments),
        f"# Imported by opsmith from {_one_line(document.path.name)}.",
    ]


def _without_markers(lines: list[str]) -> Iterator[str]:
    """``lines`` less YAML's directives and document marks, which cannot stand inside a document."""
    for line in lines:
        if line.startswith("%") or line.rstrip() in {"---", "..."}:
            continue
        yield line.removeprefix("--- ")


def _by_reason(unserved: Iterable[Unserved]) -> dict[str, list[Unserved]]:
    grouped: dict[str, list[Unserved]] = {}
    for each in unserved:
        grouped.setdefault(each.reason, []).append(each)
    return grouped


def _commented(text: str) -> list[str]:
    wrapped = textwrap.wrap(_one_line(text), _WIDTH, break_long_words=False)
    return [f"# {line}" for line in wrapped]


def _one_line(text: str) -> str:
    """``text`` as it may stand in a comment: nothing in it ends the line, or is no YAML."""
    return "".join(each if each.isprintable() else " " for each in text)


def _quoted(text: str) -> str:
    """``text`` as YAML reads it back: in quotes where it would be a number or a boolean."""
    plain = re.fullmatch(r"[A-Za-z_][\w.:-]*", text, re.ASCII) and not text.endswith(":")
    resolver: Any = yaml.resolver.Resolver()
    tag = resolver.resolve(yaml.ScalarNode, text, (True, False))
    if plain and tag == "tag:yaml.org,2002:str":
        return text
    return "'{}'".format(text.replace("'", "''"))
