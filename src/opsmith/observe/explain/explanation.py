"""Why an operator does what it does on a backend: its plan entry and PyTorch's dispatch table."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from opsmith.plan import AutocastRule, Entry, Meta, Plan, Route
from opsmith.schema import read_catalogue

# The keys that a call on an out-of-tree device can meet, in the dispatcher's order of priority
# (c10/core/DispatchKey.h), and the two that serve other devices.
RELEVANT_KEYS = (
    "FuncTorchBatched",
    "AutocastPrivateUse1",
    "AutogradPrivateUse1",
    "ADInplaceOrView",
    "ZeroTensor",
    "Negative",
    "Conjugate",
    "Functionalize",
    "PrivateUse1",
    "Meta",
    "CPU",
)

# "PrivateUse1: registered at RegisterSim_0.cpp:123 [kernel]"
_ROW = re.compile(r"^(?P<key>\w+): (?P<kernel>.*?)(?: \[(?P<kind>[^\]]*)\])?$")
# PyTorch's build folder, a site-packages folder, and the cache's folder of generated code.
_FOLDERS = re.compile(r"(/__w/pytorch/pytorch/|\S*/site-packages/|\S*/generated/[^/]*/)(build/)?")


@dataclass(frozen=True)
class TableRow:
    """One dispatch key of one operator: which kernel it runs and what sort of registration that is."""

    key: str
    kernel: str
    kind: str

    @property
    def location(self) -> str:
        """Where the kernel was registered, without the folders of whoever built it."""
        return _FOLDERS.sub("", self.kernel.replace("registered at ", ""))


@dataclass(frozen=True)
class Explanation:
    """Everything that decides how one operator is served.

    ``meta`` is what shapes the results, of a custom operator or where the description says it; ``autocast``
    what the description says of ``torch.autocast``.
    """

    entry: Entry
    schema: str
    meta: Meta | None
    table: tuple[TableRow, ...]
    autocast: AutocastRule | None = None

    @property
    def cannot_fall_back(self) -> bool:
        """Whether calls go to the fallback, and the table says that the CPU has no kernel for them."""
        falls_back = Route.FALLBACK in (self.entry.route, self.entry.other_dtypes)
        return falls_back and bool(self.table) and all(row.key != "CPU" for row in self.table)


def explain(plan: Plan, operator: str, *, loaded: bool) -> Explanation:
    """The explanation of ``operator`` (``add_.Tensor``, with or without ``aten::``).

    The dispatch table is the process's own, so it needs the backend ``loaded``; without, it is empty.
    Raises :class:`~opsmith.errors.OperatorUnknown`.
    """
    entry = plan.entry(operator)
    declared = plan.operator(entry.name) or read_catalogue().operators[entry.name]
    table = dispatch_table(declared.qualified_name) if loaded else ()
    schema = f"{declared.namespace}::{declared.schema}"
    autocast = plan.autocast_rule(declared.qualified_name)
    return Explanation(entry, schema, plan.meta(entry.name) or entry.meta, table, autocast)


def dispatch_table(
    qualified_name: str, *, keys: Collection[str] | None = None
) -> tuple[TableRow, ...]:
    """The computed dispatch table of an operator: ``keys``, or all; :data:`RELEVANT_KEYS` first."""
    from opsmith.schema.torch_names import _dispatch_dump_table

    rows = []
    for line in _dispatch_dump_table(qualified_name).splitlines():
        if keys is not None and line.partition(":")[0] not in keys:
            continue
        if matched := _ROW.match(line.strip()):
            rows.append(TableRow(matched["key"], matched["kernel"], matched["kind"] or ""))
    return tuple(sorted(rows, key=_priority))


def _priority(row: TableRow) -> int:
    """Relevant keys first, in the order in which the dispatcher tries them."""
    known = row.key in RELEVANT_KEYS
    return RELEVANT_KEYS.index(row.key) if known else len(RELEVANT_KEYS)
