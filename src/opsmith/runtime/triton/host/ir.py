"""Triton's IR (TTIR) as MLIR prints it, read into operations with their values and types."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

NAME = r"%[\w.-]+"
"""The pattern of a value's name; that of a constant may have a sign: ``%c-1_i32``."""

_RESULTS = re.compile(rf"({NAME}(?:, {NAME})*)(?::(\d+))? = (.*)", re.S)
_OPERATION = re.compile(r'"?([a-z_]+\.[\w.]+)"?')
VALUE = rf"{NAME}(?:#\d+)?"
_VALUE = re.compile(VALUE)
_BLOCK = re.compile(r"\^bb\d+(?:\((.*)\))?:")
_TENSOR = re.compile(r"tensor<((?:\d+x)*)(.*)>")


@dataclass(frozen=True)
class Type:
    """The type of a value: a block of elements, or of no dimensions one element."""

    shape: tuple[int, ...]
    element: str
    """``f32``, ``i1``, …; of a pointer ``!tt.ptr<f32>``."""

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    @property
    def pointee(self) -> str:
        return self.element.removeprefix("!tt.ptr<").removesuffix(">")

    def of(self, element: str) -> Type:
        return Type(self.shape, element)


@dataclass
class Operation:
    name: str
    results: list[str]
    text: str
    """The text between the name and the types."""
    types: str
    """The text behind the last colon."""
    regions: list[Region] = field(default_factory=list)

    @cached_property
    def operands(self) -> list[str]:
        return _VALUE.findall(self.text)

    @property
    def result_type(self) -> Type:
        """The type of the one result: behind the arrow, or that which all values have."""
        return type_of(re.split(r" to | -> ", self.types)[-1])

    @property
    def word(self) -> str:
        """The word that the text begins with: a predicate, an axis."""
        return self.text.split(",")[0].strip()

    def attribute(self, name: str) -> str:
        found = re.search(rf'\b{name} = (?:"([^"]*)"|array<i\d+: ?([^>]*)>|([-\w.]+))', self.text)
        return next(filter(None, found.groups()), "") if found else ""


@dataclass
class Region:
    arguments: list[tuple[str, Type]] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)


def type_of(text: str) -> Type:
    found = _TENSOR.fullmatch(text.strip())
    if found is None:
        return Type((), text.strip())
    return Type(tuple(map(int, found[1].split("x")[:-1])), found[2])


def types_of(text: str) -> list[Type]:
    """The types of a list, with or without parentheses around it."""
    inner = text.strip()
    if inner.startswith("("):
        inner = inner[1 : inner.rindex(")")]
    return [type_of(each) for each in _split(inner)]


def _split(text: str) -> Iterator[str]:
    """The parts of ``text`` between commas that are in no brackets."""
    depth, start = 0, 0
    for at, each in enumerate(text):
        if each in "<([{":
            depth += 1
        elif each in ">)]}" and text[at - 1 : at + 1] != "->":
            depth -= 1
        elif each == "," and depth == 0:
            yield text[start:at].strip()
            start = at + 1
    if text[start:].strip():
        yield text[start:].strip()


def _arguments(text: str) -> list[tuple[str, Type]]:
    pairs = (each.split(":", 1) for each in _split(text))
    return [(name.strip(), type_of(kind.split("{")[0])) for name, kind in pairs]


def functions(module: str) -> dict[str, Operation]:
    """The functions of a printed module by their names; each has one region, with its arguments."""
    lines = iter(line.strip() for line in module.splitlines() if line.strip())
    found = {}
    for line in lines:
        if match := re.match(
            r"tt\.func (?:(?:public|private) )?@(\"?)([^(\"]+)\1\((.*?)\)(?: -> .*?)?(?: attributes .*)? \{$",
            line,
        ):
            function = Operation("tt.func", [], line, "")
            function.regions = [_region(lines, _arguments(match[3]))[0]]
            found[match[2]] = function
    return found


def _region(
    lines: Iterator[str], arguments: list[tuple[str, Type]] | None = None
) -> tuple[Region, str]:
    """The operations up to the line that closes the region, and that line."""
    region = Region(arguments or [])
    for line in lines:
        if line.startswith("}"):
            return region, line
        if block := _BLOCK.match(line):
            if region.operations:
                raise NotImplementedError(
                    "a function with several blocks, as of a `return` in a branch"
                )
            region.arguments = _arguments(block[1] or "")
            continue
        region.operations.append(_operation(line, lines))
    raise ValueError("the module ends within a region")


def _operation(line: str, lines: Iterator[str]) -> Operation:
    results: list[str] = []
    rest = line
    if match := _RESULTS.fullmatch(line):
        count = int(match[2] or 1)
        # Some operations name each of several results, others number them.
        results = match[1].split(", ")
        if count > 1:
            results = [f"{match[1]}#{each}" for each in range(count)]
        rest = match[3]
    regions = []
    opens = rest.endswith(("{", "({"))
    head = rest.rstrip("{(").rstrip() if opens else rest
    tail = ""
    while opens:
        region, closing = _region(lines)
        regions.append(region)
        opens = closing.endswith("{")
        tail = closing
    named = _OPERATION.match(head)
    if named is None:
        raise NotImplementedError(f"`{line}`")
    text = head[named.end() :]
    types = ""
    if tail.startswith("})"):  # the generic form has its types behind its regions
        types = tail.partition(" : ")[2]
    elif " : " in text:
        text, _, types = text.rpartition(" : ")
    return Operation(named[1], results, text, types, regions)
