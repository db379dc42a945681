"""YAML with the place of every value, and its conversion to typed structs.

``read_document`` parses one file and keeps the line and column of each key and value;
``Document.convert`` checks the data against a ``msgspec.Struct`` and turns each complaint into an
error at the right place.  PyYAML gives the marks (ruamel's round trip is ten times slower), msgspec
the checks and their wording.  What YAML can say and no description means is refused here: keys that
are not text, values that contain themselves, tags, more than one document.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec
import yaml

from opsmith.base.trusted_files import read_text
from opsmith.errors import FileMissing, KeyUnknown, Location, SyntaxInvalid, nearest

Step = str | int
Converted = TypeVar("Converted")

_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(?P<field>.*)`", re.DOTALL)
_MISSING_FIELD = re.compile(r"Object missing required field `(?P<field>.*)`", re.DOTALL)
_CHOICE = re.compile(r"Invalid enum value '(?P<value>.*)'", re.DOTALL)
_PATH = re.compile(r"(?P<message>.*) - at `(?:key in )?\$(?P<path>.*)`$", re.DOTALL)
_STEP = re.compile(r"\.(?P<key>[^.\[\]]+)|\[(?P<index>\d+)\]|\[\.\.\.\]")

# msgspec speaks of JSON; YAML's authors know other words.
_WORDS = {"object": "mapping", "array": "list", "str": "string"}

# YAML's own limit is the stack of the C parser, which ends the process.
_DEEPEST = 64
# Aliases of aliases, and merges of merges, can stand for more nodes than there is memory.
_MOST_NODES = 200_000
# msgspec takes no more, and longer ones cost the square of their length.
_MOST_BITS = 64
_LONGEST_NUMBER = 80

_TAG = "tag:yaml.org,2002:"
# The words for the types that YAML gives to text without quotes.
_UNQUOTED = {"bool": "a boolean", "int": "a number", "float": "a number", "null": "nothing"}


class _Place(NamedTuple):
    """The place of a value, and those of the values in it.

    ``mark`` is PyYAML's, of a mapping's value that of its key.  ``plain`` is the text of a scalar that YAML
    did not read as text.
    """

    mark: Any
    below: dict[str, _Place] | list[_Place] | None = None
    plain: str = ""


@dataclass(frozen=True)
class Document:
    """One YAML file: its plain data, and the places of all values in it."""

    path: Path
    data: Any
    places: _Place
    text: str = ""

    def locate(self, *steps: Step) -> Location:
        """The place of the node at ``steps``, or of its nearest ancestor that has one."""
        mark = self._nearest(steps).mark
        return _location(mark, self.path) if mark else Location(self.path)

    def _nearest(self, steps: Iterable[Step]) -> _Place:
        place: Any = self.places
        for step in steps:
            try:
                place = place.below[step]
            except (LookupError, TypeError):
                break
        return place  # type: ignore[no-any-return]

    def at(self, *steps: Step) -> Any:
        """The data at ``steps``, which there must be."""
        data = self.data
        for step in steps:
            data = data[step]
        return data

    def find(self, *steps: Step) -> Any:
        """The data at ``steps`` through mappings; None where there is none."""
        data = self.data
        for step in steps:
            data = data.get(step) if isinstance(data, dict) else None
        return data

    def with_key_renamed(self, old: str, new: str, *parents: str) -> Document:
        """This document with the key ``old`` of the mapping at ``parents`` called ``new``, in its place."""

        def renamed(mapping: Mapping[str, Any]) -> dict[str, Any]:
            return {new if key == old else key: value for key, value in mapping.items()}

        def moved(place: _Place, above: Sequence[str]) -> _Place:
            assert isinstance(place.below, dict)
            if not above:
                return place._replace(below=renamed(place.below))
            child = moved(place.below[above[0]], above[1:])
            return place._replace(below={**place.below, above[0]: child})

        return replace(
            self,
            data=_replaced(self.data, parents, renamed(self.at(*parents))),
            places=moved(self.places, parents),
        )

    def without_key(self, key: str) -> Document:
        """This document, a mapping, without ``key``."""
        return replace(self, data={each: self.data[each] for each in self.data if each != key})

    def convert(self, kind: type[Converted], *steps: Step) -> Converted:
        """The data at ``steps`` as a ``kind``.

        Raises :class:`KeyUnknown` or :class:`SyntaxInvalid` at the offending place.
        """
        data = self.at(*steps)
        try:
            return msgspec.convert(data, kind)
        except msgspec.ValidationError as error:
            raise self._located(str(error), kind, data, steps) from None

    def _located(
        self, text: str, kind: type[Any], data: Any, base: tuple[Step, ...]
    ) -> KeyUnknown | SyntaxInvalid:
        matched = _PATH.fullmatch(text)
        message = matched["message"] if matched else text
        below = _steps(text, matched["path"], kind, data) if matched else ()
        steps = (*base, *below)
        if unknown := _UNKNOWN_FIELD.fullmatch(message):
            field = unknown["field"]
            known = _fields_at(kind, below)
            return KeyUnknown(
                f"unknown key `{field}`{nearest(field, known)}",
                location=self.locate(*steps, field),
                remedy=f"the keys here are {', '.join(known)}",
            )
        if missing := _MISSING_FIELD.fullmatch(message):
            return SyntaxInvalid(
                f"the key `{missing['field']}` is missing",
                location=self.locate(*steps),
                remedy=f"add `{missing['field']}: …` here",
            )
        shown = ".".join(str(step) for step in steps) or "the file"
        if chosen := _CHOICE.fullmatch(message):
            known = _choices_at(kind, below)
            return SyntaxInvalid(
                f"`{shown}` cannot be `{chosen['value']}`{nearest(chosen['value'], known)}",
                location=self.locate(*steps),
                remedy=f"it takes {' or '.join(known)}",
            )
        for word, ours in _WORDS.items():
            message = re.sub(rf"`([^`]*)\b{word}\b([^`]*)`", rf"`\1{ours}\2`", message)
        remedy = "see docs/describe/description.md for what each key takes"
        if "`string" in message and (unquoted := self._nearest(steps).plain):
            remedy = f"YAML does not read `{unquoted}` as text; put it in quotes: '{unquoted}'"
        return SyntaxInvalid(
            f"`{shown}` has the wrong type: {message[0].lower()}{message[1:]}",
            location=self.locate(*steps),
            remedy=remedy,
        )


def read_document(path: Path) -> Document:
    """Parses the YAML file ``path``.

    Raises :class:`FileMissing`, or :class:`SyntaxInvalid` for what is no YAML or repeats a key.
    """
    try:
        text = read_text(path, "utf-8-sig")
    except FileNotFoundError:
        raise FileMissing(
            f"there is no file {path}",
            remedy="check the path, which is relative to the file naming it",
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise FileMissing(
            f"{path} cannot be read: {reason}",
            remedy="check its type, permissions and encoding (UTF-8)",
        ) from None
    return parse_document(text, path)


def parse_document(text: str, path: Path) -> Document:
    """The YAML document ``text``, which errors say stands in ``path``; raises SyntaxInvalid."""
    if unprintable := yaml.reader.Reader.NON_PRINTABLE.search(text):
        before = text[: unprintable.start()]
        column = len(before) - (before.rfind("\n") + 1) + 1
        raise SyntaxInvalid(
            f"the character U+{ord(unprintable[0]):04X} cannot stand in YAML",
            location=Location(path, before.count("\n") + 1, column),
            remedy='remove it; in a text in double quotes it is written as an escape such as "\\x07"',
        )
    loader = _Loader(text)
    loader.path = path
    try:
        node = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise SyntaxInvalid(
            f"this is not YAML: {error.problem}",
            location=_location(mark, path) if mark else Location(path),
            remedy="check the indentation and quotes around this place",
        ) from None
    finally:
        loader.dispose()
    if node is None:
        return Document(path, {}, _Place(None), text)
    return Document(path, *_Builder(path, loader.values).value(node, node.start_mark), text)


def _location(mark: Any, path: Path) -> Location:
    return Location(path, mark.line + 1, mark.column + 1)


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """PyYAML's loader, which counts the values that it makes and refuses what is too deep for its stack."""

    path: Path
    values = 0
    _depth = 0

    def descend_resolver(self, parent: yaml.Node | None, index: object) -> None:
        """Called before a node in ``parent`` is made; with an ``index`` where it is no key."""
        self.values += index is not None
        self._depth += 1
        if self._depth > _DEEPEST + 1:
            raise SyntaxInvalid(
                f"more than {_DEEPEST} lists and mappings stand in each other here",
                location=_location(parent.start_mark, self.path) if parent else None,
                remedy="no description is that deep; check the brackets and the indentation",
            )

    def ascend_resolver(self) -> None:
        """Called when the node is made."""
        self._depth -= 1


# The keys of a mapping, with PyYAML's mark and the value of each.
_Pairs: TypeAlias = "dict[str, tuple[Any, yaml.Node]]"


class _Builder:
    """Plain data from nodes, with the place of each; refuses what no description can mean."""

    def __init__(self, path: Path, written: int) -> None:
        self.path = path
        self._left = written + _MOST_NODES
        self._open: set[int] = set()
        self._found: dict[int, _Pairs] = {}
        self._scalars = yaml.constructor.SafeConstructor()

    def value(self, node: yaml.Node, mark: Any) -> tuple[Any, _Place]:
        """The data of ``node`` and its places; ``mark`` is its own."""
        self._count(node)
        if isinstance(node, yaml.ScalarNode):
            data = self._scalar(node)
            return data, _Place(mark, None, "" if data is node.value else node.value)
        if id(node) in self._open:
            raise SyntaxInvalid(
                "this value contains itself",
                location=self._place(node),
                remedy="remove the alias (`*…`) inside it that names it",
            )
        with self._entered(node):
            if isinstance(node, yaml.MappingNode):
                self._check_tag(node, "map")
                mapping, below = {}, {}
                for key, (at, value) in self._pairs(node).items():
                    mapping[key], below[key] = self.value(value, at)
                return mapping, _Place(mark, below)
            self._check_tag(node, "seq")
            items = [self.value(item, item.start_mark) for item in node.value]
            return [data for data, _ in items], _Place(mark, [place for _, place in items])

    def _place(self, node: yaml.Node) -> Location:
        return _location(node.start_mark, self.path)

    def _count(self, node: yaml.Node, values: int = 1) -> None:
        """Counts values, and those that are merged once more."""
        self._left -= values
        if self._left < 0:
            raise SyntaxInvalid(
                f"the aliases of this file stand for more than {_MOST_NODES:,} values",
                location=self._place(node),
                remedy="write the values out, or fewer of them",
            )

    @contextmanager
    def _entered(self, node: yaml.Node) -> Iterator[None]:
        """While ``node`` is read; what stands inside it through aliases counts as what is written there."""
        if len(self._open) >= _DEEPEST:
            raise SyntaxInvalid(
                f"more than {_DEEPEST} lists and mappings stand in each other here, counting what aliases "
                "(`*…`) stand for and `<<` merges",
                location=self._place(node),
                remedy="write the values out instead of aliases of aliases",
            )
        self._open.add(id(node))
        try:
            yield
        finally:
            self._open.discard(id(node))

    def _pairs(self, node: yaml.MappingNode) -> _Pairs:
        """The keys of a mapping, those that `<<` merges into it first; its own win.

        Each mapping's are found once: merges of merges would otherwise double the work at each step.
        """
        if id(node) in self._found:
            return self._found[id(node)]
        own: _Pairs = {}
        merged: _Pairs = {}
        for key, value in node.value:
            if key.tag == _TAG + "merge":
                self._merge(value, merged)
                continue
            text = self._key(key)
            if text in own:
                raise SyntaxInvalid(
                    f"the key `{text}` stands twice; first at {_location(own[text][0], self.path)}",
                    location=self._place(key),
                    remedy="remove one of the two",
                )
            own[text] = key.start_mark, value
        self._found[id(node)] = merged | own
        return self._found[id(node)]

    def _merge(self, value: yaml.Node, merged: _Pairs) -> None:
        """Adds to ``merged`` what the value of a `<<` stands for."""
        sources = value.value if isinstance(value, yaml.SequenceNode) else [value]
        # Of several sources, the first wins.
        for source in reversed(sources):
            if not isinstance(source, yaml.MappingNode) or id(source) in self._open:
                raise SyntaxInvalid(
                    "`<<` merges a mapping, or a list of them, and this is none",
                    location=self._place(source),
                    remedy="name the anchor of a mapping: `<<: *name`",
                )
            with self._entered(source):
                pairs = self._pairs(source)
            self._count(source, 1 + len(pairs))
            merged.update(pairs)

    def _key(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise SyntaxInvalid(
                "a list or a mapping cannot be a key here",
                location=self._place(node),
                remedy="write a word before the colon",
            )
        if node.tag != _TAG + "str":
            what = _UNQUOTED.get(node.tag.removeprefix(_TAG), "a value of its own kind")
            raise SyntaxInvalid(
                f"YAML reads the key `{node.value}` as {what}, not as text",
                location=self._place(node),
                remedy=f"put it in quotes: '{node.value}'",
            )
        return str(node.value)

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        kind = node.tag.removeprefix(_TAG)
        # A date is text here, as is a lone `=`.
        if kind in {"str", "timestamp", "value"}:
            return node.value
        construct = {
            "bool": self._scalars.construct_yaml_bool,
            "int": self._scalars.construct_yaml_int,
            "float": self._scalars.construct_yaml_float,
            "null": self._scalars.construct_yaml_null,
        }.get(kind)
        if construct is not None:
            if kind in {"int", "float"} and len(node.value) > _LONGEST_NUMBER:
                raise self._long_number(node)
            try:
                value = construct(node)
            except (ValueError, KeyError, OverflowError, yaml.YAMLError):
                pass
            else:
                if isinstance(value, int) and value.bit_length() > _MOST_BITS:
                    raise self._long_number(node)
                return value
        raise self._strange_tag(node)

    def _check_tag(self, node: yaml.Node, kind: str) -> None:
        if node.tag != _TAG + kind:
            raise self._strange_tag(node)

    def _long_number(self, node: yaml.ScalarNode) -> SyntaxInvalid:
        shown = node.value if len(node.value) <= 40 else f"{node.value[:40]}…"
        return SyntaxInvalid(
            f"the number `{shown}` does not fit into {_MOST_BITS} bits",
            location=self._place(node),
            remedy="write a smaller one, or put it in quotes where it is meant as text",
        )

    def _strange_tag(self, node: yaml.Node) -> SyntaxInvalid:
        tag = node.tag.replace(_TAG, "!!")
        return SyntaxInvalid(
            f"the tag `{tag}` cannot stand before this value",
            location=self._place(node),
            remedy="remove the tag",
        )


def _steps(complaint: str, path: str, kind: type[Any], data: Any) -> tuple[Step, ...]:
    """The steps of msgspec's ``path``, with the key for which it writes ``[...]`` in a mapping."""
    steps: tuple[Step, ...] = ()
    here = data
    for matched in _STEP.finditer(path):
        step: Step
        if matched["key"] is not None:
            step = matched["key"]
        elif matched["index"] is not None:
            step = int(matched["index"])
        else:
            # The key is the one that, alone in its mapping, gives the same complaint.
            alone = ((key, _replaced(data, steps, {key: here[key]})) for key in here)
            keys = (key for key, reduced in alone if _complaint(reduced, kind) == complaint)
            step = next(keys, "")
            if not step:
                return steps
        steps = (*steps, step)
        here = here[step]
    return steps


def _replaced(data: Any, steps: tuple[Step, ...], value: Any) -> Any:
    if not steps:
        return value
    copied = data.copy()
    copied[steps[0]] = _replaced(data[steps[0]], steps[1:], value)
    return copied


def _complaint(data: Any, kind: type[Any]) -> str:
    try:
        msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        return str(error)
    return ""


def _fields_at(kind: type[Any], steps: tuple[Step, ...]) -> list[str]:
    """The keys that the struct at ``steps`` below ``kind`` takes."""
    current = _structural(_type_at(kind, steps))
    if isinstance(current, msgspec.inspect.StructType):
        return [field.encode_name for field in current.fields]
    return []


def _choices_at(kind: type[Any], steps: tuple[Step, ...]) -> list[str]:
    """The words that the value at ``steps`` below ``kind`` may be."""
    current = _type_at(kind, steps)
    kinds = current.types if isinstance(current, msgspec.inspect.UnionType) else (current,)
    return [
        str(value)
        for each in kinds
        if isinstance(each, msgspec.inspect.LiteralType)
        for value in each.values
    ]


def _type_at(kind: type[Any], steps: tuple[Step, ...]) -> msgspec.inspect.Type:
    current: msgspec.inspect.Type = msgspec.inspect.type_info(kind)
    for step in steps:
        current = _structural(current)
        if isinstance(current, msgspec.inspect.StructType) and isinstance(step, str):
            fields = (field.type for field in current.fields if field.encode_name == step)
            current = next(fields, current)
        elif isinstance(current, msgspec.inspect.ListType | msgspec.inspect.VarTupleType):
            current = current.item_type
        elif isinstance(current, msgspec.inspect.DictType):
            current = current.value_type
    return current


def _structural(kind: msgspec.inspect.Type) -> msgspec.inspect.Type:
    """Of a union, the struct, mapping or list that it may be."""
    if isinstance(kind, msgspec.inspect.UnionType):
        wanted = (
            msgspec.inspect.StructType,
            msgspec.inspect.DictType,
            msgspec.inspect.ListType,
        )
        return next((other for other in kind.types if isinstance(other, wanted)), kind)
    return kind
