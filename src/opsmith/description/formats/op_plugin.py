"""Reads Ascend's op_plugin_functions.yaml, the operators of its op-plugin, as a kernel library.

The format is that of op-plugin's ``torchnpugen``: lists of schemas, each with the releases of torch for
which there is an implementation.  ``op_plugin::<name>`` is the function that chooses one of these, which
op-plugin's generator writes; opsmith calls it.  What is for other releases is noted.  Called by ``library``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from opsmith.description.model import Library
from opsmith.errors import SyntaxInvalid
from opsmith.schema import Catalogue, torch_release

# Releases: `all_version`, `v2.1, v2.2`, or the first and the last of a range.
_Releases = str | list[str] | None


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    func: str
    # The releases for which each implementation is there; the function that opsmith calls chooses among them.
    acl_op: _Releases = None
    op_api: _Releases = None
    sparse: _Releases = None
    device_check: Literal["NoCheck", "ExactSame"] = "ExactSame"
    structured_delegate: str = ""
    # Of operators that it declares.
    tags: str | list[str] = []
    dispatch: dict[str, str] = {}
    # For op-plugin's own generators; they say nothing of the function's signature.
    dvm: _Releases = None
    internal_format_opapi: _Releases = None
    exposed: _Releases = None
    gen_opapi: Any = None
    structured: bool = False
    structured_inherits: str = ""
    precomputed: Any = None
    use_const_ref_for_mutable_tensors: bool = False
    variants: str = "function"


class _OpPluginYaml(msgspec.Struct, forbid_unknown_fields=True):
    all_version: list[str]
    official: list[Any] | None = None
    custom: list[Any] | None = None
    autograd: list[Any] | None = None
    symint: list[Any] | None = None
    quant: list[Any] | None = None


def read_op_plugin_yaml(
    document: Document, catalogue: Catalogue | None, keep_faults: bool = False
) -> Library:
    """The kernel library ``op_plugin``, of the operators that op-plugin has for the installed torch.

    Raises a :class:`DescriptionError` at the place of the first mistake; with ``keep_faults`` those in single
    entries are among the library's ``unserved``.
    """
    return _Reader(document, _OpPluginYaml, keep_faults).library(catalogue)


class _Reader(ListsReader[_OpPluginYaml]):
    def library(self, catalogue: Catalogue | None) -> Library:
        for item in self._items("quant"):
            self.notes.keep(
                item.name,
                item.location,
                "under `quant`: it is for quantized Tensors, which a device of opsmith does not have",
            )
        lists = KernelLists(
            library="op_plugin",
            location=self.document.locate(),
            scope="op_plugin",
            # torch_npu's namespace of operators, for which op-plugin is written.
            namespace="npu",
            is_class=False,
            device_guard=True,
            both_keys=True,
            supported=tuple(self._items("official")),
            autograd=tuple(self._items("autograd")),
            symint=tuple(self._items("symint")),
            own=tuple(self._items("custom")),
        )
        return library_of(lists, self.document, catalogue, self.notes)

    def _items(self, key: str) -> Iterator[Item]:
        """The operators of the list ``key`` that are for this torch."""
        for item, raw in self.declared(key, _Entry):
            with self.notes.fault_of(item.name, item.location):
                if reason := self._obstacle(raw, *item.steps):
                    self.notes.keep(item.name, item.location, reason)
                else:
                    yield replace(
                        item,
                        device_guard=False if raw.device_check == "NoCheck" else None,
                        tags=tags_of(raw.tags),
                        differentiates=is_for_autograd(raw.dispatch),
                    )

    def _obstacle(self, entry: _Entry, *steps: Step) -> str:
        """Why op-plugin has no function of its own for the operator; empty where it has one."""
        keys = ("acl_op", "op_api", "sparse")
        if not any(self._covers(getattr(entry, key), *steps, key) for key in keys):
            release = "{}.{}".format(*torch_release())
            return f"op-plugin has no implementation for torch {release}, by `acl_op`, `op_api` and `sparse`"
        if entry.structured_delegate:
            return (
                f"it is structured and delegates to `{entry.structured_delegate}`, from whose kernel opsmith "
                "derives it"
            )
        return ""

    def _covers(self, releases: _Releases, *steps: Step) -> bool:
        """Whether the installed torch is among ``releases``, which stand at ``steps``."""
        every, release = self.raw.all_version, "v{}.{}".format(*torch_release())
        if releases is None or release not in every:
            return False
        if releases == "all_version":
            return True
        if isinstance(releases, str):
            return release in [each.strip() for each in releases.split(",")]
        known: Sequence[str] = [*every, "newest"]
        if len(releases) != 2 or any(each not in known for each in releases):
            raise SyntaxInvalid(
                f"`{releases}` is no range of the releases in `all_version`",
                location=self.document.locate(*steps),
                remedy="write the first and the last: [v2.1, newest]",
            )
        first, last = (known.index(each) for each in releases)
        return first <= every.index(release) <= last
