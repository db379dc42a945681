"""Makes kernels of lists of operators' names, which torchgen's and op-plugin's YAML consist of.

Such a file names operators; the C++ functions follow from the names.  An entry that cannot be a kernel is
noted with its reason; a mistake raises, unless it is to be noted like the others.  Called by ``torchgen`` and
``op_plugin``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from opsmith.description.custom import read_declaration
from opsmith.description.document import Document, Step
from opsmith.description.formats.notes import Converted, Notes, shown_name, without_unknown_keys
from opsmith.description.model import Derive, Kernel, Library
from opsmith.description.names import obstacle_in_function, unknown_operator
from opsmith.errors import (
    KernelDuplicate,
    Location,
    SchemaInvalid,
    SyntaxInvalid,
)
from opsmith.schema import (
    GENERATED,
    Catalogue,
    Composite,
    Declaration,
    Operator,
    Variant,
    with_operators,
)

# The form of a schema; its types are checked where an operator is declared by it.
_SCHEMA = re.compile(r"(?P<name>[A-Za-z_]\w*(\.\w+)?)\(.*\) *-> *[^ ].*", re.ASCII)


@dataclass(frozen=True)
class Item:
    """One operator of a list.

    ``device_guard`` is None where the file's holds.  ``function`` is the C++ function's qualified name where
    the file gives it.  An operator that the file declares has its ``schema``, with ``tags``, at ``steps``;
    where it ``differentiates``, the function is for the autograd dispatch key too.
    ``note`` says what of the entry comes to nothing beside its kernel.
    """

    name: str
    location: Location
    structured: bool = False
    own_meta: bool = False
    device_guard: bool | None = None
    function: str = ""
    schema: str = ""
    tags: tuple[str, ...] = ()
    differentiates: bool = False
    steps: tuple[Step, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class KernelLists:
    """The lists of a file, and the facts that hold for all of them.

    The functions are in the namespace ``scope``, or static members of the class ``scope``.  ``own`` are the
    operators that the file declares, in ``namespace``.  ``both_keys``: an operator under ``supported`` and
    ``autograd`` has one function for both dispatch keys.
    """

    library: str
    location: Location
    scope: str
    namespace: str
    is_class: bool = True
    device_guard: bool = False
    derive: Derive = Derive.CHEAPEST
    both_keys: bool = False
    supported: tuple[Item, ...] = ()
    autograd: tuple[Item, ...] = ()
    symint: tuple[Item, ...] = ()
    generated: tuple[Item, ...] = ()
    own: tuple[Item, ...] = ()


class _Declaring(Protocol):
    func: str


_Declared = TypeVar("_Declared", bound=_Declaring)


class ListsReader(Generic[Converted]):
    """A file of lists, with its plain data as ``raw``."""

    def __init__(self, document: Document, kind: type[Converted], keep_faults: bool) -> None:
        self.document = document
        self.notes = Notes(keep_faults)
        self.raw = without_unknown_keys(document, kind, self.notes)

    def declared(self, key: str, form: type[_Declared]) -> Iterator[tuple[Item, _Declared]]:
        """The operators that the list ``key`` declares, each with its entry."""
        for index, entry in enumerate(getattr(self.raw, key) or ()):
            with self.notes.fault_of(shown_name(entry), self.document.locate(key, index)):
                raw = self.document.convert(form, key, index)
                location = self.document.locate(key, index, "func")
                name = _declared_name(raw.func, location)
                yield Item(name, location, schema=raw.func, steps=(key, index)), raw


def _declared_name(func: str, location: Location) -> str:
    """The name of the operator that the schema ``func`` declares.  Raises :class:`SchemaInvalid`."""
    schema = _SCHEMA.fullmatch(func)
    if schema is None:
        raise SchemaInvalid(
            f"`{func}` is no schema",
            location=location,
            remedy="write it as native_functions.yaml does: fuse(Tensor self, int dim) -> Tensor",
        )
    return schema["name"]


def tags_of(written: str | list[str]) -> tuple[str, ...]:
    """The tags of an entry, which torchgen also takes as words with commas between them."""
    words = written.split(",") if isinstance(written, str) else written
    return tuple(word.strip() for word in words if word.strip())


def is_for_autograd(dispatch: Mapping[str, str]) -> bool:
    """Whether an entry's ``dispatch`` gives its function to an autograd dispatch key."""
    return any(key.startswith("Autograd") for key in dispatch)


def library_of(
    lists: KernelLists, document: Document, catalogue: Catalogue | None, notes: Notes
) -> Library:
    """The kernel library that ``lists`` are; without a catalogue it has no kernels.

    Raises a :class:`DescriptionError` at the first mistake, unless ``notes`` keeps them.
    """
    kernels: tuple[Kernel, ...] = ()
    operators: tuple[Declaration, ...] = ()
    if catalogue is not None:
        maker = _KernelMaker(lists, document, catalogue, notes)
        kernels, operators = tuple(maker.kernels()), tuple(found for _, found in maker.own.values())
    return Library(
        name=lists.library,
        location=lists.location,
        kernels=kernels,
        operators=operators,
        unserved=notes.sorted(),
    )


class _KernelMaker:
    def __init__(
        self, lists: KernelLists, document: Document, catalogue: Catalogue, notes: Notes
    ) -> None:
        self.lists = lists
        self.document = document
        self.catalogue = catalogue
        self.notes = notes
        self.own_names = {item.name for item in lists.own}
        unknown = self._unknown()
        self.supported = [item for item in lists.supported if item.name not in unknown]
        self.autograd = [item for item in lists.autograd if item.name not in unknown]
        listed = {*lists.supported, *lists.autograd, *lists.generated}
        self._note_symint({item.name for item in listed} | unknown)
        self.symint = {item.name for item in lists.symint}
        self.own = self._declarations()

    def kernels(self) -> Iterator[Kernel]:
        """The kernels in the order of the file's lists: PyTorch's operators, then the file's own."""
        forward: dict[str, Kernel] = {}
        first: dict[str, Item] = {}
        for item in self._listed_once(self.supported, first):
            if self.catalogue.operators[item.name].composite is Composite.IMPLICIT:
                self.notes.keep(
                    item.name,
                    item.location,
                    "it is CompositeImplicitAutograd: a kernel for the device would take the place of the "
                    "decomposition that makes it differentiable; give kernels for the operators it "
                    "decomposes into, or list it under `autograd`",
                )
                continue
            with self.notes.fault_of(item.name, item.location):
                forward[item.name] = self._kernel(item)
                self._note_rest(item)
        differentiable: list[Kernel] = []
        for item in self._listed_once(self.autograd, {}):
            with self.notes.fault_of(item.name, item.location):
                kernel = self._autograd_kernel(item)
                if item.name not in forward:
                    differentiable.append(kernel)
                    self._note_rest(item)
                    continue
                if not self.lists.both_keys:
                    raise KernelDuplicate(
                        f"`{item.name}` is both under `supported` ({first[item.name].location}) and under "
                        f"`autograd`, and both name the function `{kernel.autograd}`",
                        location=item.location,
                        remedy="keep it under `autograd` if the function calls a "
                        "torch::autograd::Function, and under `supported` otherwise",
                    )
                forward[item.name] = replace(forward[item.name], autograd=kernel.autograd)
        yield from forward.values()
        yield from differentiable
        for item, _ in self.own.values():
            with self.notes.fault_of(item.name, item.location):
                yield self._kernel(item)

    def _note_rest(self, item: Item) -> None:
        if item.note:
            self.notes.keep(item.name, item.location, item.note)

    # ---- names

    def _unknown(self) -> set[str]:
        """The operators that the installed torch lacks: noted, or an error that names them all."""
        lists = self.lists
        items = [*lists.supported, *lists.autograd, *lists.generated, *lists.symint]
        known = self.catalogue.operators.keys() | self.own_names
        unknown = {item.name: item for item in reversed(items) if item.name not in known}
        if not unknown:
            return set()
        found = sorted(
            unknown.values(), key=lambda item: (item.location.line, item.location.column)
        )
        more = [] if self.notes.keep_faults else sorted(unknown.keys() - {found[0].name})
        also = f"; nor has it {', '.join(f'`{name}`' for name in more)}" if more else ""
        for item in found:
            with self.notes.fault_of(item.name, item.location):
                raise unknown_operator(
                    item.name,
                    self.catalogue,
                    item.location,
                    "a file written for another torch names operators that this one lost or renamed: "
                    "remove them, or write this torch's names",
                    also,
                )
        return set(unknown)

    def _note_symint(self, listed: set[str]) -> None:
        for item in self.lists.symint:
            if item.name not in listed | self.own_names:
                self.notes.keep(
                    item.name,
                    item.location,
                    "`symint` says how the C++ signature of a kernel is written, and none is listed for "
                    "it; list it under `supported` or `autograd`",
                )

    def _listed_once(self, items: list[Item], first: dict[str, Item]) -> Iterator[Item]:
        """The ``items`` that the file does not declare, each when it comes ``first``; others are noted."""
        for item in items:
            if item.name in self.own_names:
                continue
            if item.name in first:
                where = first[item.name].location
                self.notes.keep(
                    item.name,
                    item.location,
                    f"it is listed twice; the first is at {where}, and one kernel is meant",
                )
                continue
            first[item.name] = item
            yield item

    # ---- the file's own operators

    def _declarations(self) -> dict[str, tuple[Item, Declaration]]:
        """The operators that the file declares and PyTorch can register, by their names in it."""
        declared: dict[str, tuple[Item, Declaration]] = {}
        for item in self.lists.own:
            with self.notes.fault_of(item.name, item.location, noted=True):
                if item.name in declared:
                    raise KernelDuplicate(
                        f"`{item.name}` is declared twice; the first is at "
                        f"{declared[item.name][0].location}",
                        location=item.location,
                        remedy="keep one of the two",
                    )
                schema = f"{self.lists.namespace}::{item.schema}"
                found = read_declaration(self.document, item.steps, schema, item.tags)
                declared[item.name] = item, found
        while True:
            try:
                self.catalogue = with_operators(
                    self.catalogue, [found for _, found in declared.values()]
                )
            except SchemaInvalid as error:
                # Two contradict each other: the one that the error is about gives way.
                (item,) = (each for each, _ in declared.values() if each.location == error.location)
                with self.notes.fault_of(item.name, item.location, noted=True):
                    raise
                del declared[item.name]
            else:
                return declared

    # ---- kernels

    def _kernel(self, item: Item) -> Kernel:
        symbol = self._symbol(item)
        if item.own_meta and not item.structured:
            raise SyntaxInvalid(
                f"`{item.name}` has a meta function of its own but is not structured",
                location=item.location,
                remedy="add `structured: true`, or remove `ext_structured_meta`",
            )
        guard = self.lists.device_guard if item.device_guard is None else item.device_guard
        return replace(
            self._function(item),
            symbol=symbol,
            derive=Derive.NOTHING if self._lacks_shapes(item) else self.lists.derive,
            autograd=symbol if item.differentiates else "",
            structured=item.structured,
            meta_symbol=f"{symbol}_meta" if item.own_meta else "",
            device_guard=guard,
        )

    def _autograd_kernel(self, item: Item) -> Kernel:
        if item.structured:
            raise SyntaxInvalid(
                f"`{item.name}` is under `autograd`, where no kernel is structured",
                location=item.location,
                remedy="remove `structured: true`, or move it to `supported`",
            )
        return replace(self._function(item), autograd=self._symbol(item), derive=self.lists.derive)

    def _function(self, item: Item) -> Kernel:
        """A kernel of ``item`` that names no function yet."""
        return Kernel(
            operator=self._operator(item).name,
            symbol="",
            library=self.lists.library,
            location=item.location,
            device_guard=self.lists.device_guard,
            symint=self._takes_symint(item),
            class_name=self.lists.scope if self.lists.is_class and not item.function else "",
        )

    def _operator(self, item: Item) -> Operator:
        if item.name in self.own:
            return self.own[item.name][1].operator
        return self.catalogue.operators[item.name]

    def _lacks_shapes(self, item: Item) -> bool:
        """Whether nothing says how the results of a functional variant on an out kernel would be shaped."""
        group = self.catalogue.group_of.get(self._operator(item).name)
        if item.name not in self.own or group is None or group.functional is None:
            return False
        generated = GENERATED in self.catalogue.operators[group.functional].tags
        return generated and self._operator(item).variant is Variant.OUT

    def _takes_symint(self, item: Item) -> bool:
        # Structured signatures have no SymInt (pytorch #172539).
        return item.name in self.symint and not item.structured

    def _symbol(self, item: Item) -> str:
        """torchgen's name of the kernel: ``dispatcher.name`` with ``_symint`` where it is asked for."""
        base = item.name.partition(".")[0] + "_out" * (self._operator(item).variant is Variant.OUT)
        named = f"{self.lists.scope}::{base}{'_symint' * self._takes_symint(item)}"
        symbol = item.function or named
        if (obstacle := obstacle_in_function(symbol)) is not None:
            raise SyntaxInvalid(
                f"`{symbol}` is not a C++ function's qualified name{obstacle}",
                location=item.location,
                remedy="write `wrap_impl` as the function's name alone, like abs_out"
                if item.function
                else "no C++ function can be called so: leave it out, and write a kernel by another name in "
                "a manifest",
            )
        return symbol
