"""Reads torchgen's backend YAML, as torch_xla and torch_npu write it, as a kernel library.

The format is that of ``torchgen/gen_backend_stubs.py`` and ``gen_lazy_tensor.py`` (torch 2.13), with the
per-operator options that have been proposed for it (pytorch #172539) and torch_npu's additions.  What it
asks for and opsmith does not do becomes an :class:`Unserved` with its reason; what it cannot mean raises.
Called by ``library`` and ``imported``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from opsmith.description.document import Document, Step
from opsmith.description.model import Derive, Kernel, Library, Unserved
from opsmith.description.names import IDENTIFIER, SYMBOL, obstacle_in_cpp, unknown_operator
from opsmith.errors import (
    KernelDuplicate,
    Location,
    SchemaInvalid,
    SyntaxInvalid,
)
from opsmith.schema import Catalogue, Composite, Variant

_Names = list[str] | None

# The form of a schema; whether its types exist is not known here, as nothing is made of it.
_SCHEMA = re.compile(r"(?P<name>[A-Za-z_]\w*(\.\w+)?)\(.*\) *-> *[^ ].*", re.ASCII)


class _Options(msgspec.Struct, forbid_unknown_fields=True):
    """The keys that may stand below an operator's name."""

    structured: bool = False
    ext_structured_meta: bool = False
    # The name that ext_structured_meta has in later versions of pytorch #172539.
    define_meta: bool = False
    device_guard: bool | None = None
    # torch_npu's own.
    wrap_impl: str = ""
    op_api: bool | str | list[str] | None = None
    acl_op: bool | str | list[str] | None = None
    impl_ns: str | list[str] | None = None
    internal_format_opapi: bool | str | list[str] | None = None
    sparse: bool | str | list[str] | None = None
    device_check: Literal["NoCheck", "ExactSame"] = "ExactSame"
    exposed: bool | str | list[str] | None = None
    bscpp_op: bool | None = None


class _Named(_Options, forbid_unknown_fields=True):
    """torch_npu's form of the same: the name is a value."""

    func: str = ""
    op: str = ""


class _NonNative(msgspec.Struct, forbid_unknown_fields=True):
    func: str
    opkind: str = ""
    properties: list[str] = []
    cache: bool = True


class _Custom(msgspec.Struct, forbid_unknown_fields=True):
    """An operator that torch_npu declares."""

    func: str
    variants: str = "function"
    dispatch: dict[str, str] = {}
    device_check: str = ""
    device_guard: bool | None = None
    tags: str | list[str] = []
    exposed: bool | str | list[str] | None = None
    op_api: bool | str | list[str] | None = None
    acl_op: bool | str | list[str] | None = None
    impl_ns: str | list[str] | None = None
    wrap_impl: str = ""
    bscpp_op: bool | None = None
    autogen: str = ""


class _TorchgenYaml(msgspec.Struct, forbid_unknown_fields=True):
    backend: str
    cpp_namespace: str
    class_name: str | None = None
    extra_headers: str | list[str] | None = None
    supported: list[str | dict[str, Any]] | None = None
    autograd: list[str | dict[str, Any]] | None = None
    full_codegen: _Names = None
    non_native: list[_NonNative] | None = None
    ir_gen: _Names = None
    symint: _Names = None
    use_out_as_primary: bool | None = None
    device_guard: bool = False
    # torch_npu's own.
    custom: list[_Custom] | None = None
    custom_autograd: list[_Custom] | None = None
    tocpu: _Names = None


# torch_npu's options choose between functions behind the kernel that opsmith calls.
_BEHIND_THE_KERNEL = (
    "op_api",
    "acl_op",
    "impl_ns",
    "internal_format_opapi",
    "sparse",
    "exposed",
    "bscpp_op",
)

_LAZY = {
    "full_codegen": "torchgen's gen_lazy_tensor would write this kernel, a lazy-tensor node with a shape "
    "function and a lowering, and opsmith has no lazy tensors; write the kernel and list it under "
    "`supported`",
    "ir_gen": "torchgen's gen_lazy_tensor would write a lazy-tensor node for it, and opsmith has no lazy "
    "tensors; a kernel that needs none can stand under `supported`",
}


@dataclass(frozen=True)
class _Item:
    """One operator of a list: its name, where it stands, and what is said of it."""

    name: str
    location: Location
    options: _Options = field(default_factory=_Options)


def read_torchgen_yaml(document: Document, catalogue: Catalogue | None) -> Library:
    """The kernel library that a backend YAML of torchgen declares; its name is the backend's.

    Each operator under ``supported`` is a kernel ``<cpp_namespace>::<class_name>::<name>``, a static
    member of a class; ``autograd`` gives kernels for the autograd dispatch key.  Without a catalogue the
    library has no kernels: their C++ names depend on the operators' schemas.
    Raises a :class:`DescriptionError` at the place of the first mistake.
    """
    return _Reader(document, catalogue).library()


class _Reader:
    def __init__(self, document: Document, catalogue: Catalogue | None) -> None:
        self.document = document
        self.catalogue = catalogue
        self.raw = document.convert(_TorchgenYaml)
        self.unserved: list[Unserved] = []
        self.class_name = self._class_name()
        self.derive = {None: Derive.CHEAPEST, True: Derive.OUT, False: Derive.FUNCTIONAL}[
            self.raw.use_out_as_primary
        ]

    def library(self) -> Library:
        supported = list(self._items("supported"))
        autograd = list(self._items("autograd"))
        others = {key: list(self._items(key)) for key in ("full_codegen", "ir_gen", "symint")}
        others["tocpu"] = list(self._items("tocpu"))
        lists = [supported, autograd, others["full_codegen"], others["ir_gen"], others["symint"]]
        own = self._own_operators()
        self._check_known([item for items in lists for item in items if item.name not in own])
        self._check_symint(others["symint"], supported + autograd + others["full_codegen"], own)
        self._keep_headers()
        self._keep_lazy(others)
        self._keep_own_operators()
        self._keep_to_cpu(others["tocpu"])
        symint = {item.name for item in others["symint"]}
        kernels = self._kernels(supported, autograd, symint, own) if self.catalogue else ()
        return Library(
            name=self.raw.backend.lower(),
            location=self.document.locate("backend"),
            kernels=tuple(kernels),
            unserved=tuple(
                sorted(self.unserved, key=lambda each: (each.location.line, each.location.column))
            ),
        )

    # ---- what is read

    def _class_name(self) -> str:
        """The C++ class with its namespace."""
        checks = (("cpp_namespace", SYMBOL), ("class_name", IDENTIFIER), ("backend", IDENTIFIER))
        for key, form in checks:
            value = getattr(self.raw, key)
            obstacle = None if value is None else obstacle_in_cpp(value, form)
            if obstacle is not None:
                raise SyntaxInvalid(
                    f"`{value}` cannot be a name in C++{obstacle}",
                    location=self.document.locate(key),
                    remedy={
                        "cpp_namespace": "write the kernels' namespace like at_npu::native",
                        "class_name": "write the class of the kernels like NPUNativeFunctions, its "
                        "namespace in `cpp_namespace`",
                        "backend": "write the dispatch key's name like PrivateUse1 or NPU",
                    }[key],
                )
        # torchgen's BackendIndex.native_function_class_name.
        name = self.raw.class_name or f"{self.raw.backend}NativeFunctions"
        return f"{self.raw.cpp_namespace}::{name}"

    def _items(self, key: str) -> Iterator[_Item]:
        for index, entry in enumerate(getattr(self.raw, key) or ()):
            item = (
                _Item(entry, self.document.locate(key, index))
                if isinstance(entry, str)
                else self._mapped_item(entry, key, index)
            )
            yield _Item(item.name.removeprefix("aten::"), item.location, item.options)

    def _mapped_item(self, entry: dict[str, Any], key: str, index: int) -> _Item:
        """An operator with options: ``{add.out: {structured: true}}`` or ``{func: add.out, …}``."""
        steps: tuple[Step, ...] = (key, index)
        if {"func", "op"} & entry.keys():
            named = self.document.convert(_Named, *steps)
            if bool(named.func) == bool(named.op):
                raise SyntaxInvalid(
                    "an entry names its operator with `func` or with `op`, and exactly one of them",
                    location=self.document.locate(*steps),
                    remedy="write `func: add.out`",
                )
            written = "func" if named.func else "op"
            # torch_npu gives some operators with their whole schema.
            name = (named.func or named.op).partition("(")[0]
            return _Item(name, self.document.locate(*steps, written), named)
        if len(entry) != 1:
            names = ", ".join(f"`{name}`" for name in entry) or "nothing"
            raise SyntaxInvalid(
                f"an entry is one operator, and this mapping has {names}",
                location=self.document.locate(*steps),
                remedy="indent the options below the operator: `- add.out: {structured: true}`",
            )
        (name,) = entry
        location = self.document.locate(*steps, name)
        if entry[name] is None:
            return _Item(name, location)
        return _Item(name, location, self.document.convert(_Options, *steps, name))

    # ---- what is refused

    def _check_known(self, items: list[_Item]) -> None:
        if self.catalogue is None:
            return
        operators = self.catalogue.operators
        unknown = {item.name: item for item in reversed(items) if item.name not in operators}
        if not unknown:
            return
        first = min(unknown.values(), key=lambda item: (item.location.line, item.location.column))
        more = sorted(unknown.keys() - {first.name})
        also = f"; nor has it {', '.join(f'`{name}`' for name in more)}" if more else ""
        raise unknown_operator(
            first.name,
            self.catalogue,
            first.location,
            "a file written for another torch names operators that this one lost or renamed: remove them, "
            "or write this torch's names",
            also,
        )

    def _check_symint(self, symint: list[_Item], others: list[_Item], own: set[str]) -> None:
        listed = {item.name for item in others} | own
        for item in symint:
            if item.name not in listed:
                self._keep(
                    item,
                    "`symint` says how the C++ signature of a kernel is written, and none is listed for "
                    "it; list it under `supported` or `autograd`",
                )

    # ---- what is kept with its reason

    def _keep(self, item: _Item, reason: str) -> None:
        self.unserved.append(Unserved(item.name, item.location, reason))

    def _keep_headers(self) -> None:
        if self.raw.extra_headers:
            self._keep(
                _Item("extra_headers", self.document.locate("extra_headers")),
                "no generated file needs them: opsmith declares the kernels with the types of ATen alone; "
                "the kernels' sources include what they use",
            )

    def _keep_lazy(self, lists: dict[str, list[_Item]]) -> None:
        for key, reason in _LAZY.items():
            for item in lists[key]:
                self._keep(item, f"under `{key}`: {reason}")
        for item, _ in self._declared("non_native"):
            self._keep(
                item,
                "under `non_native`: a lazy-tensor node without an operator of PyTorch, and opsmith has no "
                "lazy tensors; nothing outside them can call it",
            )

    def _own_operators(self) -> set[str]:
        return {
            item.name for key in ("custom", "custom_autograd") for item, _ in self._declared(key)
        }

    def _declared(self, key: str) -> Iterator[tuple[_Item, str]]:
        """The operators that the list ``key`` declares, each with its schema."""
        for index, entry in enumerate(getattr(self.raw, key) or ()):
            location = self.document.locate(key, index, "func")
            schema = _SCHEMA.fullmatch(entry.func)
            if schema is None:
                raise SchemaInvalid(
                    f"`{entry.func}` is no schema",
                    location=location,
                    remedy="write it as native_functions.yaml does: fuse(Tensor self, int dim) -> Tensor",
                )
            yield _Item(schema["name"], location), entry.func

    def _keep_own_operators(self) -> None:
        for key in ("custom", "custom_autograd"):
            for item, schema in self._declared(key):
                self._keep(
                    item,
                    f"under `{key}`: it declares an operator of its own, which a manifest of opsmith does "
                    f"with `func: {self.raw.backend.lower()}::{schema}`",
                )

    def _keep_to_cpu(self, items: list[_Item]) -> None:
        for item in items:
            self._keep(
                item,
                "under `tocpu`: what runs on the CPU is said by `fallback` in backend.yaml, for all kernel "
                "libraries together",
            )

    # ---- kernels

    def _kernels(
        self, supported: list[_Item], autograd: list[_Item], symint: set[str], own: set[str]
    ) -> Iterator[Kernel]:
        assert self.catalogue is not None
        first: dict[str, _Item] = {}
        for item in self._listed_once(supported, own, first):
            if self.catalogue.operators[item.name].composite is Composite.IMPLICIT:
                self._keep(
                    item,
                    "it is CompositeImplicitAutograd: a kernel for the device would take the place of the "
                    "decomposition that makes it differentiable; give kernels for the operators it "
                    "decomposes into, or list it under `autograd`",
                )
                continue
            self._keep_options(item)
            yield self._kernel(item, item.name in symint)
        for item in autograd:
            if item.name in first and item.name not in own:
                raise KernelDuplicate(
                    f"`{item.name}` is both under `supported` ({first[item.name].location}) and under "
                    f"`autograd`, and both name the function `{self._symbol(item, item.name in symint)}`",
                    location=item.location,
                    remedy="keep it under `autograd` if the function calls a torch::autograd::Function, "
                    "and under `supported` otherwise",
                )
        for item in self._listed_once(autograd, own, {}):
            self._keep_options(item)
            yield self._autograd_kernel(item, item.name in symint)

    def _listed_once(
        self, items: list[_Item], own: set[str], first: dict[str, _Item]
    ) -> Iterator[_Item]:
        """The ``items`` that are not ``own``, each when it comes ``first``; of others the reason is kept."""
        for item in items:
            if item.name in own:
                continue
            if item.name in first:
                where = first[item.name].location
                self._keep(
                    item, f"it is listed twice; the first is at {where}, and one kernel is meant"
                )
                continue
            first[item.name] = item
            yield item

    def _keep_options(self, item: _Item) -> None:
        given = [key for key in _BEHIND_THE_KERNEL if getattr(item.options, key) is not None]
        if given:
            keys = ", ".join(f"`{key}`" for key in given)
            self._keep(
                item,
                f"{keys}: torch_npu's code generator chooses between its implementations by it; opsmith "
                "calls the one kernel, which must choose",
            )

    def _symbol(self, item: _Item, symint: bool) -> str:
        """torchgen's name of the kernel: ``dispatcher.name`` with ``_symint`` where it is asked for."""
        assert self.catalogue is not None
        if item.options.wrap_impl:
            return f"op_plugin::{item.options.wrap_impl}"
        operator = self.catalogue.operators[item.name]
        base = item.name.partition(".")[0] + "_out" * (operator.variant is Variant.OUT)
        # Structured signatures have no SymInt (pytorch #172539).
        return f"{self.class_name}::{base}{'_symint' * (symint and not item.options.structured)}"

    def _kernel(self, item: _Item, symint: bool) -> Kernel:
        options = item.options
        symbol = self._checked_symbol(item, symint)
        if (options.ext_structured_meta or options.define_meta) and not options.structured:
            raise SyntaxInvalid(
                f"`{item.name}` has a meta function of its own but is not structured",
                location=item.location,
                remedy="add `structured: true`, or remove `ext_structured_meta`",
            )
        guard = self.raw.device_guard if options.device_guard is None else options.device_guard
        return Kernel(
            operator=item.name,
            symbol=symbol,
            library=self.raw.backend.lower(),
            location=item.location,
            structured=options.structured,
            meta_symbol=f"{symbol}_meta"
            if options.ext_structured_meta or options.define_meta
            else "",
            device_guard=guard and options.device_check != "NoCheck",
            symint=symint and not options.structured,
            derive=self.derive,
            class_name="" if options.wrap_impl else self.class_name,
        )

    def _autograd_kernel(self, item: _Item, symint: bool) -> Kernel:
        if item.options.structured:
            raise SyntaxInvalid(
                f"`{item.name}` is under `autograd`, where no kernel is structured",
                location=item.location,
                remedy="remove `structured: true`, or move it to `supported`",
            )
        return Kernel(
            operator=item.name,
            symbol="",
            library=self.raw.backend.lower(),
            location=item.location,
            device_guard=self.raw.device_guard,
            symint=symint,
            autograd=self._checked_symbol(item, symint),
            derive=self.derive,
            class_name="" if item.options.wrap_impl else self.class_name,
        )

    def _checked_symbol(self, item: _Item, symint: bool) -> str:
        symbol = self._symbol(item, symint)
        if (obstacle := obstacle_in_cpp(symbol)) is not None:
            raise SyntaxInvalid(
                f"`{symbol}` is not a C++ function's qualified name{obstacle}",
                location=item.location,
                remedy="write `wrap_impl` as the function's name alone, like abs_out",
            )
        return symbol
