"""Reads torchgen's backend YAML, as torch_xla and torch_npu write it, as a kernel library.

The format is that of ``torchgen/gen_backend_stubs.py`` and ``gen_lazy_tensor.py`` (torch 2.13), with the
per-operator options that have been proposed for it (pytorch #172539) and torch_npu's additions.  What it
asks for and opsmith does not do becomes an :class:`Unserved` with its reason; what it cannot mean raises, or
is noted like that.  Called by ``library``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import msgspec

from opsmith.description.document import Document, Step
from opsmith.description.formats.kernel_lists import (
    Item,
    KernelLists,
    ListsReader,
    is_for_autograd,
    library_of,
    tags_of,
)
from opsmith.description.formats.notes import shown_name
from opsmith.description.model import Derive, Library
from opsmith.description.names import IDENTIFIER, SYMBOL, obstacle_in_cpp
from opsmith.errors import SyntaxInvalid
from opsmith.schema import Catalogue

# Entries are checked one by one, so that one of them can be wrong alone.
_Entries = list[Any] | None


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
    supported: _Entries = None
    autograd: _Entries = None
    full_codegen: _Entries = None
    non_native: _Entries = None
    ir_gen: _Entries = None
    symint: _Entries = None
    use_out_as_primary: bool | None = None
    device_guard: bool = False
    # torch_npu's own.
    custom: _Entries = None
    custom_autograd: _Entries = None
    tocpu: _Entries = None


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


# The forms of an entry: an operator's name, and a name with options.
_NAME: Any = str
_NAME_OR_OPTIONS: Any = str | dict[str, Any]


def read_torchgen_yaml(
    document: Document, catalogue: Catalogue | None, keep_faults: bool = False
) -> Library:
    """The kernel library that a backend YAML of torchgen declares; its name is the backend's.

    Each operator under ``supported`` is a kernel ``<cpp_namespace>::<class_name>::<name>``, a static
    member of a class; ``autograd`` gives kernels for the autograd dispatch key.  Without a catalogue the
    library has no kernels: their C++ names depend on the operators' schemas.
    Raises a :class:`DescriptionError` at the place of the first mistake; with ``keep_faults`` those in single
    entries are among the library's ``unserved``.
    """
    return _Reader(document, _TorchgenYaml, keep_faults).library(catalogue)


class _Reader(ListsReader[_TorchgenYaml]):
    def library(self, catalogue: Catalogue | None) -> Library:
        raw, notes = self.raw, self.notes
        scope = self._class_name()
        generated = {key: tuple(self._items(key, _NAME)) for key in _LAZY}
        lists = KernelLists(
            library=raw.backend.lower(),
            location=self.document.locate("backend"),
            scope=scope,
            namespace=raw.backend.lower(),
            device_guard=raw.device_guard,
            derive={None: Derive.CHEAPEST, True: Derive.OUT, False: Derive.FUNCTIONAL}[
                raw.use_out_as_primary
            ],
            supported=tuple(self._items("supported", _NAME_OR_OPTIONS)),
            autograd=tuple(self._items("autograd", _NAME_OR_OPTIONS)),
            symint=tuple(self._items("symint", _NAME)),
            generated=tuple(item for items in generated.values() for item in items),
            own=tuple(self._custom()),
        )
        for key, items in generated.items():
            for item in items:
                notes.keep(item.name, item.location, f"under `{key}`: {_LAZY[key]}")
        for item, _ in self.declared("non_native", _NonNative):
            notes.keep(
                item.name,
                item.location,
                "under `non_native`: a lazy-tensor node without an operator of PyTorch, and opsmith has no "
                "lazy tensors; nothing outside them can call it",
            )
        for item in self._items("tocpu", _NAME):
            notes.keep(
                item.name,
                item.location,
                "under `tocpu`: what runs on the CPU is said by `fallback` in backend.yaml, for all kernel "
                "libraries together",
            )
        if raw.extra_headers:
            notes.keep(
                "extra_headers",
                self.document.locate("extra_headers"),
                "no generated file needs them: opsmith declares the kernels with the types of ATen alone; "
                "the kernels' sources include what they use",
            )
        return library_of(lists, self.document, catalogue, notes)

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

    # ---- entries

    def _items(self, key: str, form: Any) -> Iterator[Item]:
        """The operators of the list ``key``, whose entries have this ``form``."""
        for index, entry in enumerate(getattr(self.raw, key) or ()):
            location = self.document.locate(key, index)
            with self.notes.fault_of(shown_name(entry), location):
                self.document.convert(form, key, index)
                if isinstance(entry, str):
                    yield Item(entry.removeprefix("aten::"), location)
                else:
                    yield self._mapped_item(entry, key, index)

    def _mapped_item(self, entry: dict[str, Any], key: str, index: int) -> Item:
        """An operator with options: ``{add.out: {structured: true}}`` or ``{func: add.out, …}``."""
        steps = (key, index)
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
            return self._item(name, named, *steps, written)
        if len(entry) != 1:
            names = ", ".join(f"`{name}`" for name in entry) or "nothing"
            raise SyntaxInvalid(
                f"an entry is one operator, and this mapping has {names}",
                location=self.document.locate(*steps),
                remedy="indent the options below the operator: `- add.out: {structured: true}`",
            )
        (name,) = entry
        options = _Options()
        if entry[name] is not None:
            options = self.document.convert(_Options, *steps, name)
        return self._item(name, options, *steps, name)

    def _item(self, name: str, options: _Options, *steps: Step) -> Item:
        given = [key for key in _BEHIND_THE_KERNEL if getattr(options, key) is not None]
        return Item(
            name.removeprefix("aten::"),
            self.document.locate(*steps),
            structured=options.structured,
            own_meta=options.ext_structured_meta or options.define_meta,
            device_guard=False if options.device_check == "NoCheck" else options.device_guard,
            function=_implementation(options.wrap_impl),
            note=f"{', '.join(f'`{key}`' for key in given)}: torch_npu's code generator chooses between its "
            "implementations by it; opsmith calls the one kernel, which must choose"
            if given
            else "",
        )

    def _custom(self) -> Iterator[Item]:
        """The operators of torch_npu's own."""
        for key in ("custom", "custom_autograd"):
            for item, raw in self.declared(key, _Custom):
                yield replace(
                    item,
                    device_guard=False if raw.device_check == "NoCheck" else raw.device_guard,
                    function=_implementation(raw.wrap_impl),
                    tags=tags_of(raw.tags),
                    differentiates=key == "custom_autograd" or is_for_autograd(raw.dispatch),
                )


def _implementation(name: str) -> str:
    """The function that torch_npu's ``wrap_impl`` names."""
    return f"op_plugin::{name}" if name else ""
