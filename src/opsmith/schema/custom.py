"""Custom operators' schemas, as people write them.

``parse_operator`` reads one schema with its namespace (``myop::scale(Tensor self, float factor) ->
Tensor``) through torchgen, after checks that can name the mistake, which torchgen's asserts cannot.
Refuses what PyTorch could not register or call.  Called by ``description``.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from opsmith.errors import Location, SchemaInvalid, nearest
from opsmith.schema.catalogue import (
    native_function_of,
    operator_of,
    stand_in_name,
    tag_names,
    with_base_name,
)
from opsmith.schema.operator import Operator
from opsmith.schema.words import SCHEMA_WORDS, reserved_in_cpp

Locate = Callable[[str], Location]
"""The place of a piece of the schema's text, as it was written."""

# Of the types that torchgen knows, those that PyTorch takes in an operator from outside its tree.
TYPES = (
    "Tensor", "int", "SymInt", "float", "bool", "str", "Scalar", "ScalarType", "Layout",
    "MemoryFormat", "Device", "Generator",
)  # fmt: skip

# Their names in C++ and Python.
_FOREIGN_TYPES: Mapping[str, str] = {
    "double": "float", "float32": "float", "float64": "float", "int64_t": "int", "int32_t": "int",
    "long": "int", "int64": "int", "size_t": "int", "string": "str", "std::string": "str",
    "string_view": "str", "dtype": "ScalarType", "torch.dtype": "ScalarType", "device": "Device",
    "torch.device": "Device", "layout": "Layout", "memory_format": "MemoryFormat", "boolean": "bool",
    "at::Tensor": "Tensor", "torch::Tensor": "Tensor", "torch.Tensor": "Tensor",
    "TensorList": "Tensor[]", "at::TensorList": "Tensor[]", "IntArrayRef": "int[]",
    "SymIntArrayRef": "SymInt[]", "number": "Scalar", "at::Scalar": "Scalar",
}  # fmt: skip

_GENERIC_TYPES: Mapping[str, str] = {
    "list": "[]",
    "sequence": "[]",
    "vector": "[]",
    "optional": "?",
}

# Namespaces whose operators PyTorch itself defines.
_TAKEN_NAMESPACES = frozenset(
    "prim prims onnx quantized mkldnn mkl sparse xnnpack static_runtime rngprims debugprims inductor "
    "higher_order profiler at c10 torch c10d _c10d_functional c10d_functional symm_mem opsmith".split()
)

# Of 64 bits.
_INTEGER = r"-?(0|[1-9][0-9]{0,17}|[1-8][0-9]{18}|9[01][0-9]{17}|922[0-2][0-9]{15}|922337203685477580[0-7])"
_NUMBER = r"-?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[-+]?[0-9]+)?|-?inf|nan"
_DEFAULTS: Mapping[str, tuple[str, str]] = {
    "int": (_INTEGER, "0"),
    "SymInt": (_INTEGER, "0"),
    "float": (_NUMBER, "1.0"),
    "Scalar": (_NUMBER, "1"),
    "bool": ("True|False", "False"),
    "str": (r"'[^']*'|\"[^\"]*\"", '"none"'),
    "ScalarType": (r"[a-z]\w*", "float"),
    "Layout": (r"[a-z]\w*", "strided"),
    "MemoryFormat": (r"[a-z]\w*", "contiguous_format"),
}
"""By type: the pattern of a default value, and an example."""

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_OVERLOAD = re.compile(r"\w+", re.ASCII)
_TYPE = re.compile(
    r"(?P<base>[\w.:]+)(\((?P<alias>[^()]*)\))?(?P<suffix>(\?|\[\d*\])*)(?P<rest>.*)", re.DOTALL
)
_EXAMPLE = "myop::scale(Tensor self, float factor) -> Tensor"


@dataclass(frozen=True)
class _Typed:
    """A type as written: ``Tensor(a!)[]`` has base ``Tensor``, alias ``a!`` and suffix ``[]``."""

    text: str
    base: str
    alias: str
    suffix: str

    @property
    def written(self) -> bool:
        return self.alias.endswith("!")


@dataclass(frozen=True)
class _Argument:
    text: str
    type: _Typed
    name: str
    default: str
    keyword: bool


def parse_operator(text: str, locate: Locate, tags: Sequence[str] = ()) -> Operator:
    """The operator that ``text`` declares: a schema with its namespace.

    Raises :class:`SchemaInvalid` at the place of the first mistake, or of the first tag that the
    installed torch does not have.
    """
    with suppress(SchemaInvalid):
        return _read_by_signature(text, tuple(tags))
    return _Reader(text, locate).operator(tags)


def _read_by_signature(text: str, tags: tuple[str, ...]) -> Operator:
    """The operator of a schema without mistakes, whose signature is read once for all that have it."""
    head, parenthesis, signature = text.partition("(")
    namespace, name = _Reader(head, _nowhere)._name(head.strip())
    base, dot, overload = name.partition(".")
    base, underscore = (base[:-1], "_") if base.endswith("_") else (base, "")
    alike = f"{namespace}::{stand_in_name(base)}{underscore}{dot}{overload}{parenthesis}{signature}"
    return with_base_name(_read_once(alike, tags), base)


@functools.cache
def _read_once(text: str, tags: tuple[str, ...]) -> Operator:
    return _Reader(text, _nowhere).operator(tags)


def _nowhere(offending: str) -> Location:
    """The place of a mistake that is found again, with its place."""
    return Location(Path())


class _Reader:
    """One schema, read from left to right."""

    def __init__(self, text: str, locate: Locate) -> None:
        self.text = _normalised(text)
        self.locate = locate

    def operator(self, tags: Collection[str]) -> Operator:
        head, arguments_text, returns_text = self._parts()
        namespace, name = self._name(head)
        arguments = list(self._arguments(arguments_text))
        returns = self._returns(returns_text)
        self._check_tensors(arguments)
        self._check_variant(name, arguments, returns)
        schema = f"{name}({', '.join(_printed(arguments))}) -> {returns_text}"
        self._check_tags(tags)
        # An operator that takes a generator draws: torchgen insists on the tag, which nobody has to know.
        if any(argument.type.base == "Generator" for argument in arguments):
            tags = dict.fromkeys([*tags, "nondeterministic_seeded"])
        return self._parsed(namespace, name, schema, tuple(tags))

    def rejection(self, offending: str, message: str, remedy: str) -> SchemaInvalid:
        return SchemaInvalid(message, location=self.locate(offending), remedy=remedy)

    def _parts(self) -> tuple[str, str, str]:
        """The name, the text of the arguments and that of the returns."""
        text = self.text
        opening = text.find("(")
        if not text:
            raise self.rejection(text, "the schema is empty", f"write it like {_EXAMPLE}")
        if opening < 0:
            raise self.rejection(
                text, f"`{text}` is not a schema: it has no arguments", f"write it like {_EXAMPLE}"
            )
        depth = 0
        for closing in range(opening, len(text)):
            depth += {"(": 1, ")": -1}.get(text[closing], 0)
            if depth == 0:
                break
        else:
            raise self.rejection(
                text[opening:],
                f"a parenthesis is not closed: `{text[opening:]}`",
                f"write it like {_EXAMPLE}",
            )
        head, arguments, rest = text[:opening], text[opening + 1 : closing], text[closing + 1 :]
        if not rest.strip().startswith("->"):
            raise self.rejection(
                rest.strip() or text,
                f"`{text}` does not say what it returns",
                f"end it with `-> Tensor`, or with `-> ()` for nothing: {head}({arguments}) -> Tensor",
            )
        return head.strip(), arguments.strip(), rest.strip().removeprefix("->").strip()

    def _name(self, head: str) -> tuple[str, str]:
        """The namespace, and the name with its overload."""
        namespace, colons, name = head.rpartition("::")
        if not colons:
            raise self.rejection(
                head,
                f"`{head}` has no namespace",
                f"put your library's before it, e.g. `myop::{head}`; for an operator of PyTorch write "
                f"`op: {head}`",
            )
        self._check_namespace(namespace, name, head)
        base, _, overload = name.partition(".")
        for part, what in ((namespace, "a namespace"), (base, "an operator's name")):
            if not _IDENTIFIER.fullmatch(part):
                raise self.rejection(
                    head,
                    f"`{part}` cannot be {what}",
                    "use letters, digits and _, as in " + _EXAMPLE.partition("(")[0],
                )
        # An in-place operator's functional variant has its name without the underscore.
        function = base.removesuffix("_")
        for part, what in ((namespace, "a namespace"), (function, "an operator's name")):
            self._check_word(part, head)
            if reserved_in_cpp(part):
                raise self.rejection(
                    head,
                    f"`{part}` cannot be {what}: it is a word of C++",
                    f"choose another, e.g. `my_{part}`",
                )
        if ("." in name and not _OVERLOAD.fullmatch(overload)) or overload == "default":
            raise self.rejection(
                head,
                f"`{overload}` cannot be an overload's name",
                f"write `{namespace}::{base}`, or name the overload, e.g. `{namespace}::{base}.Scalar`",
            )
        self._check_word(overload, head)
        if base.endswith("_out"):
            raise self.rejection(
                head,
                f"`{base}` ends with `_out`, which PyTorch keeps for overloads",
                f"write `{namespace}::{base.removesuffix('_out')}.out`",
            )
        if "functional" in overload or base.endswith("_functional"):
            raise self.rejection(
                head,
                f"`{name}` contains `functional`, which torchgen keeps for variants that it generates",
                "choose another name",
            )
        return namespace, name

    def _check_namespace(self, namespace: str, name: str, head: str) -> None:
        """Refuses those of PyTorch."""
        if namespace == "aten":
            raise self.rejection(
                head,
                f"`{head}` is in `aten`, PyTorch's own namespace",
                f"for PyTorch's operator write `op: {name}`, for one of your own choose another "
                "namespace",
            )
        if namespace in _TAKEN_NAMESPACES:
            raise self.rejection(
                head,
                f"`{head}` is in `{namespace}`, a namespace of PyTorch",
                f"choose another, e.g. `my{namespace}::{name}`",
            )

    def _check_word(self, name: str, offending: str) -> None:
        if name in SCHEMA_WORDS:
            raise self.rejection(
                offending,
                f"`{name}` cannot be a name in a schema: PyTorch reads it as a word of TorchScript",
                f"choose another, e.g. `my_{name}`",
            )

    def _arguments(self, text: str) -> Iterator[_Argument]:
        keyword = False
        seen: dict[str, _Argument] = {}
        defaulted = None
        for piece in _split(text):
            if piece == "*":
                if keyword:
                    raise self.rejection(
                        text,
                        f"`*` stands twice in `({text})`",
                        "keep the first: all arguments behind it are passed by keyword",
                    )
                keyword = True
                continue
            argument = self._argument(piece, keyword)
            if argument.name in seen:
                raise self.rejection(
                    piece,
                    f"two arguments are called `{argument.name}`: `{seen[argument.name].text}` and "
                    f"`{piece}`",
                    "rename one",
                )
            if defaulted is not None and not argument.default and not keyword:
                raise self.rejection(
                    piece,
                    f"`{piece}` has no default, but `{defaulted.text}` before it has one",
                    f"give it a default too, or pass it by keyword: `*, {piece}`",
                )
            if argument.default and not keyword:
                defaulted = argument
            seen[argument.name] = argument
            yield argument

    def _argument(self, piece: str, keyword: bool) -> _Argument:
        if not piece:
            raise self.rejection(self.text, f"a comma too many in `{self.text}`", "remove it")
        declared, _, default = piece.partition("=")
        kind, _, name = declared.rpartition(" ")
        if not kind:
            hint = _FOREIGN_TYPES.get(declared, declared)
            known = declared in TYPES or declared in _FOREIGN_TYPES or "[" in declared
            raise self.rejection(
                piece,
                f"the argument `{piece}` has no {'name' if known else 'type'}",
                f"write `{hint} x`" if known else f"write `Tensor {piece}`, or another type",
            )
        typed = self._type(kind)
        if not _IDENTIFIER.fullmatch(name):
            raise self.rejection(
                piece, f"`{name}` cannot be an argument's name", "use letters, digits and _"
            )
        self._check_word(name, piece)
        if default:
            self._check_default(piece, typed, default)
        elif piece.endswith("="):
            raise self.rejection(
                piece, f"`{piece}` has no value behind `=`", "write one, or remove `=`"
            )
        return _Argument(piece, typed, name, default, keyword)

    def _type(self, text: str) -> _Typed:
        matched = _TYPE.fullmatch(text)
        base = matched["base"] if matched else text
        if matched is None or matched["rest"] or base not in TYPES:
            meant = _meant(text) or nearest(base, TYPES)
            raise self.rejection(
                text,
                f"unknown type `{text}`{meant}",
                f"the types are {', '.join(TYPES)}, each with ? (may be None) or [] (a list) behind it",
            )
        alias = matched["alias"] or ""
        if matched["alias"] is not None and not re.fullmatch(r"[a-z]!?", alias):
            raise self.rejection(
                text,
                f"`({alias})` in `{text}` is not an alias annotation",
                "write (a!) at a Tensor that the operator writes to, (b!) at the next",
            )
        return _Typed(text, base, alias, matched["suffix"])

    def _check_default(self, piece: str, typed: _Typed, default: str) -> None:
        if typed.suffix.endswith("?") and default == "None":
            return
        if typed.base not in _DEFAULTS:
            raise self.rejection(
                piece,
                f"`{typed.text}` cannot have the default `{default}`",
                f"write `{typed.base}? {piece.partition('=')[0].rpartition(' ')[2]}=None`, or no default",
            )
        pattern, example = _DEFAULTS[typed.base]
        if "[" in typed.suffix:
            sized = re.search(r"\[\d+\]", typed.suffix)
            listed = rf"\[(({pattern})(,({pattern}))*)?\]"
            pattern = f"{listed}|{pattern}" if sized else listed
            example = f"[{example}]"
        if not re.fullmatch(pattern, default):
            raise self.rejection(
                piece,
                f"`{default}` is no default for `{typed.text}`",
                f"write it like `{piece.partition('=')[0]}={example}`",
            )

    def _returns(self, text: str) -> list[_Typed]:
        if not text:
            raise self.rejection(
                self.text,
                f"nothing stands behind `->` in `{self.text}`",
                "write `-> Tensor`, or `-> ()`",
            )
        several = text.startswith("(") and text.endswith(")")
        returns = []
        for piece in _split(text[1:-1] if several else text):
            # Not the first place in the schema where such a type stands.
            place = piece if several else f"-> {piece}"
            kind, _, name = piece.rpartition(" ")
            typed = self._type(kind if kind else name)
            self._check_word(name if kind else "", piece)
            if "?" in typed.suffix:
                raise self.rejection(
                    place,
                    f"`{piece}` is returned, but an operator cannot return None in the place of a value",
                    "return an empty Tensor, or one operator for each case",
                )
            if typed.alias and not typed.written:
                raise self.rejection(
                    place,
                    f"`{piece}` says that the result shares its argument's memory; a view cannot be a "
                    "custom operator, since PyTorch would not know how to replay it",
                    "write it as a function of PyTorch's own views, or return a copy",
                )
            returns.append(typed)
        return returns

    def _check_tensors(self, arguments: Sequence[_Argument]) -> None:
        if not any(argument.type.base == "Tensor" for argument in arguments):
            raise self.rejection(
                self.text,
                f"`{self.text}` takes no Tensor, so PyTorch cannot tell which device it is meant for",
                "add a Tensor argument; a factory is better written as a function around torch.empty",
            )

    def _check_variant(
        self, name: str, arguments: Sequence[_Argument], returns: Sequence[_Typed]
    ) -> None:
        base, _, overload = name.partition(".")
        written = [argument for argument in arguments if argument.type.written]
        outs = [argument for argument in written if argument.keyword]
        called_out = overload == "out" or overload.endswith("_out")
        if base.endswith("_") and not base.startswith("__"):
            self._check_inplace(name, arguments, returns)
        elif called_out and not outs:
            if misplaced := written:
                raise self.rejection(
                    misplaced[0].text,
                    f"`{misplaced[0].text}` of `{name}` is not passed by keyword",
                    f"write `*, {misplaced[0].text}` at the end of the arguments",
                )
            raise self.rejection(
                name,
                f"`{name}` is called an out variant, but writes to no argument",
                "end the arguments with `*, Tensor(a!) out` and return `Tensor(a!)`",
            )
        elif outs:
            self._check_out(arguments, outs, returns)
        if not outs and not base.endswith("_"):
            for result in returns:
                if result.written:
                    raise self.rejection(
                        name,
                        f"`{name}` returns `{result.text}`, but only in-place and out variants return what "
                        "they write to",
                        f"call it `{base}_` if it writes to self, pass the argument by keyword, or return "
                        "nothing: `-> ()`",
                    )

    def _check_inplace(
        self, name: str, arguments: Sequence[_Argument], returns: Sequence[_Typed]
    ) -> None:
        target = next((argument for argument in arguments if argument.name == "self"), None)
        if target is None or not target.type.written:
            raise self.rejection(
                target.text if target else name,
                f"`{name}` ends with `_`, so it is in-place, but it does not write to `self`",
                "write `Tensor(a!) self` as its first argument",
            )
        if [result.alias for result in returns] != [target.type.alias] and target.type.suffix == "":
            raise self.rejection(
                self.text[self.text.rindex("->") :],
                f"`{name}` is in-place, but does not return `self`",
                f"write `-> {target.type.text}`",
            )

    def _check_out(
        self, arguments: Sequence[_Argument], outs: Sequence[_Argument], returns: Sequence[_Typed]
    ) -> None:
        last = arguments[-len(outs) :]
        if [argument.name for argument in last] != [argument.name for argument in outs]:
            stray = next(argument for argument in reversed(arguments) if argument not in outs)
            raise self.rejection(
                stray.text,
                f"`{stray.text}` stands behind the out argument `{outs[0].text}`",
                "move what is written to the end",
            )
        lists = any(argument.type.suffix for argument in outs)
        expected = [] if lists else [argument.type.text for argument in outs]
        if [result.text for result in returns] != expected:
            shown = expected[0] if len(expected) == 1 else f"({', '.join(expected)})"
            raise self.rejection(
                self.text[self.text.rindex("->") :],
                f"an out variant returns what it writes to, here `{shown}`",
                f"write `-> {shown}`",
            )

    def _check_tags(self, tags: Collection[str]) -> None:
        known = tag_names()
        for tag in tags:
            if tag not in known:
                raise self.rejection(
                    tag,
                    f"PyTorch has no tag `{tag}`{nearest(tag, known)}",
                    f"the tags are {', '.join(sorted(known))}",
                )

    def _parsed(self, namespace: str, name: str, schema: str, tags: tuple[str, ...]) -> Operator:
        from opsmith.schema.torch_names import (
            DispatcherSignature,
            NativeSignature,
            native_function_manager,
        )

        asserted = (AssertionError, RuntimeError, NotImplementedError, ValueError, KeyError)
        try:
            function = native_function_of(namespace, schema, tags)
        except asserted as error:
            raise self.rejection(
                self.text,
                f"torchgen cannot read `{schema}`: {_first_line(error)}",
                f"write it like {_EXAMPLE}",
            ) from None
        try:
            with native_function_manager(function):
                DispatcherSignature.from_schema(function.func).type()
                NativeSignature(function.func, symint=True).decl()
        except asserted as error:
            raise self.rejection(
                self.text,
                f"`{schema}` has a type that C++ kernels cannot take: {_first_line(error)}",
                "use two arguments, or a simpler type",
            ) from None
        return operator_of(function)


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


def _normalised(text: str) -> str:
    """``text`` with the spaces that torchgen expects."""
    text = re.sub(r"\s+", " ", text).strip()
    text = re.sub(r"\[\s*(.*?)\s*\]", lambda m: f"[{m[1].replace(' ', '')}]", text)
    text = re.sub(r"\s*=\s*", "=", text)
    text = re.sub(r"\(\s+|\s+\)", lambda m: m[0].strip(), text)
    return re.sub(r"\s*->\s*", " -> ", text)


def _split(text: str) -> list[str]:
    """The pieces between the commas that are not in brackets or quotes."""
    pieces, depth, quote, current = [], 0, "", ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in "([":
            depth += 1
        elif character in ")]":
            depth -= 1
        if character == "," and depth == 0 and not quote:
            pieces.append(current.strip())
            current = ""
        else:
            current += character
    return [*pieces, current.strip()] if current.strip() or pieces else []


def _printed(arguments: Sequence[_Argument]) -> Iterator[str]:
    keyword = False
    for argument in arguments:
        if argument.keyword and not keyword:
            keyword = True
            yield "*"
        yield argument.text


def _meant(text: str) -> str:
    """A hint at the schema's words for what C++ or Python write as ``text``; empty where there are none."""
    generic = re.fullmatch(r"(std::)?(?P<outer>\w+)[\[<](?P<inner>[\w.:]+)[\]>]", text)
    if generic and (suffix := _GENERIC_TYPES.get(generic["outer"].lower())):
        return (
            f" (did you mean `{_FOREIGN_TYPES.get(generic['inner'], generic['inner'])}{suffix}`?)"
        )
    for word in re.findall(r"[\w.:]+", text):
        if word in TYPES or word in _FOREIGN_TYPES:
            suffix = "?" if "?" in text else "[]" if "[" in text else ""
            return f" (did you mean `{_FOREIGN_TYPES.get(word, word)}{suffix}`?)"
    return ""
