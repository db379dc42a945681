"""YAML with the place of every value, and its conversion to typed structs.

``read_document`` parses one file and keeps the line and column of each key and value;
``Document.convert`` checks the data against a ``msgspec.Struct`` and turns each complaint into an
error at the right place.  PyYAML gives the marks (ruamel's round trip is ten times slower), msgspec
the checks and their wording.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from opsmith.errors import FileMissing, KeyUnknown, Location, SyntaxInvalid, nearest

Step = str | int
Struct = TypeVar("Struct", bound=msgspec.Struct)

_Loader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(?P<field>.*)`")
_MISSING_FIELD = re.compile(r"Object missing required field `(?P<field>.*)`")
_PATH = re.compile(r"(?P<message>.*) - at `(?:key in )?\$(?P<path>.*)`$", re.DOTALL)
_STEP = re.compile(r"\.(?P<key>[^.\[\]]+)|\[(?P<index>\d+)\]|\[\.\.\.\]")

# msgspec speaks of JSON; YAML's authors know other words.
_WORDS = {"object": "mapping", "array": "list", "str": "string"}


@dataclass(frozen=True)
class Document:
    """One YAML file: its plain data and the place of each node, by path from the root."""

    path: Path
    data: Any
    marks: Mapping[tuple[Step, ...], Location]

    def locate(self, *steps: Step) -> Location:
        """The place of the node at ``steps``, or of its nearest ancestor that has one."""
        while steps and steps not in self.marks:
            steps = steps[:-1]
        return self.marks.get(steps, Location(self.path))

    def convert(self, kind: type[Struct]) -> Struct:
        """The data as a ``kind``.

        Raises :class:`KeyUnknown` or :class:`SyntaxInvalid` at the offending place.
        """
        try:
            return msgspec.convert(self.data, kind)
        except msgspec.ValidationError as error:
            raise self._located(str(error), kind) from None

    def _located(self, text: str, kind: type[msgspec.Struct]) -> KeyUnknown | SyntaxInvalid:
        matched = _PATH.match(text)
        message = matched["message"] if matched else text
        steps: tuple[Step, ...] = ()
        if matched:
            steps = tuple(
                step["key"] if step["key"] is not None else int(step["index"])
                for step in _STEP.finditer(matched["path"])
                if step["key"] is not None or step["index"] is not None
            )
        if unknown := _UNKNOWN_FIELD.match(message):
            field = unknown["field"]
            known = _fields_at(kind, steps)
            return KeyUnknown(
                f"unknown key `{field}`{nearest(field, known)}",
                location=self.locate(*steps, field),
                remedy=f"the keys here are {', '.join(known)}",
            )
        if missing := _MISSING_FIELD.match(message):
            return SyntaxInvalid(
                f"the key `{missing['field']}` is missing",
                location=self.locate(*steps),
                remedy=f"add `{missing['field']}: …` here",
            )
        for word, ours in _WORDS.items():
            message = re.sub(rf"`([^`]*)\b{word}\b([^`]*)`", rf"`\1{ours}\2`", message)
        shown = ".".join(str(step) for step in steps) or "the file"
        return SyntaxInvalid(
            f"`{shown}` has the wrong type: {message[0].lower()}{message[1:]}",
            location=self.locate(*steps),
            remedy="see docs/description.md for what each key takes",
        )


def read_document(path: Path) -> Document:
    """Parses the YAML file ``path``.

    Raises :class:`FileMissing`, or :class:`SyntaxInvalid` for what is no YAML or repeats a key.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise FileMissing(
            f"there is no file {path}",
            remedy="check the path, which is relative to the file naming it",
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise FileMissing(
            f"{path} cannot be read: {error}",
            remedy="check its type, permissions and encoding (UTF-8)",
        ) from None
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        data = {} if node is None else loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise SyntaxInvalid(
            f"this is not YAML: {error.problem}",
            location=Location(path, mark.line + 1, mark.column + 1) if mark else Location(path),
            remedy="check the indentation and quotes around this place",
        ) from None
    finally:
        loader.dispose()
    marks: dict[tuple[Step, ...], Location] = {}
    if node is not None:
        _collect_marks(node, (), marks, path)
    return Document(path, data, marks)


def _place(node: yaml.Node, path: Path) -> Location:
    return Location(path, node.start_mark.line + 1, node.start_mark.column + 1)


def _collect_marks(
    node: yaml.Node, steps: tuple[Step, ...], marks: dict[tuple[Step, ...], Location], path: Path
) -> None:
    marks.setdefault(steps, _place(node, path))
    if isinstance(node, yaml.MappingNode):
        seen: dict[str, Location] = {}
        for key, value in node.value:
            here = _place(key, path)
            if key.value in seen:
                raise SyntaxInvalid(
                    f"the key `{key.value}` stands twice; first at {seen[key.value]}",
                    location=here,
                    remedy="remove one of the two",
                )
            seen[key.value] = here
            child = (*steps, key.value)
            marks[child] = here
            _collect_marks(value, child, marks, path)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _collect_marks(item, (*steps, index), marks, path)


def _fields_at(kind: type[msgspec.Struct], steps: tuple[Step, ...]) -> list[str]:
    """The keys that the struct at ``steps`` below ``kind`` takes."""
    current: msgspec.inspect.Type = msgspec.inspect.type_info(kind)
    for step in steps:
        current = _structural(current)
        if isinstance(current, msgspec.inspect.StructType) and isinstance(step, str):
            current = next(f.type for f in current.fields if f.encode_name == step)
        elif isinstance(current, msgspec.inspect.ListType | msgspec.inspect.VarTupleType):
            current = current.item_type
    current = _structural(current)
    if isinstance(current, msgspec.inspect.StructType):
        return [field.encode_name for field in current.fields]
    return []


def _structural(kind: msgspec.inspect.Type) -> msgspec.inspect.Type:
    """Of a union, the struct or list that it may be."""
    if isinstance(kind, msgspec.inspect.UnionType):
        wanted = (msgspec.inspect.StructType, msgspec.inspect.ListType)
        return next((other for other in kind.types if isinstance(other, wanted)), kind)
    return kind
