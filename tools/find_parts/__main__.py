"""Finds what PyTorch decomposes composite operators into, and writes ``parts.yaml`` of ``schema/recorded``.

    python tools/find_parts [--check] [OPINFO …]

Nobody publishes that, so it is recorded: OpInfo's samples are run on a simulated device without kernels, and
a callback notes which operators each composite calls.  ``--check`` writes nothing and fails where the file in
the tree says something else; with OPINFO names only those entries are run, and what they gave is shown.
Takes about a minute.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # what the tools share
import opsmith
from opsmith.plan import Plan, Route
from opsmith.schema import Catalogue, Composite, read_catalogue
from recorded_files import add_check, record, sections
from samples import calls_by_hand, calls_of, databases, run

DEVICE = "parts"
_HEADER = """\
# What PyTorch decomposes composite operators into on a device of its own. Written by tools/find_parts,
# which runs OpInfo's samples; do not edit.
#   parts  the operators that a composite calls itself, for each way in which a sample did, and how often each
#          (2: twice or more); without those that only make, view or copy Tensors on every device
#   unfit  composites that one call on the CPU does not equal, and why
"""
_WHY = {
    "writes": "it writes to arguments that its schema does not mark as written",
    "stays": "it can return a Tensor on the CPU",
}

# Kernels of opsmith's runtime, which every device has, that do more than make, view or copy Tensors.
_COMPUTING = (
    "convolution_overrideable",
    "convolution_backward_overrideable",
    "native_dropout",
    "_thnn_fused_lstm_cell",
    "_thnn_fused_lstm_cell_backward_impl",
    "_thnn_fused_gru_cell",
    "_thnn_fused_gru_cell_backward",
)

Calls = tuple[tuple[str, int], ...]


def load_recorder() -> Plan:
    """Makes the device ``parts`` work, which records; returns its plan."""
    folder = Path(tempfile.mkdtemp(prefix="find-parts-"))
    source = Path(__file__).resolve().parent / "recorder.cpp"
    (folder / "kernels.yaml").write_text(
        f'library: recorder\nsources: ["{source}"]\nkernels: []\n', encoding="utf-8"
    )
    backend = folder / "backend.yaml"
    backend.write_text(f"backend: {DEVICE}\ndriver: sim\nlibraries: [kernels.yaml]\n")
    return opsmith.load(str(backend)).plan


def recorded_lines(names: Iterable[str]) -> list[str]:
    """The recorder's lines for the OpInfo entries ``names``, or for all and what is called by hand."""
    names = set(names)
    for info in databases():
        if not names or info.name in names:
            run(calls_of(info, f"{DEVICE}:0"), torch.ops.find_parts.record)
    if not names:
        run(calls_by_hand(f"{DEVICE}:0"), torch.ops.find_parts.record)
    found: list[str] = torch.ops.find_parts.found()
    return found


def facts(lines: Iterable[str], plan: Plan, catalogue: Catalogue) -> dict[str, Any]:
    """The facts of ``parts.yaml``."""
    recorded: dict[str, set[Calls]] = {}
    unfit: dict[str, str] = {}
    for name, flaw, calls in (line.split("\t") for line in lines):
        operator = catalogue.operators.get(name)
        if operator is None or operator.composite is Composite.NONE:
            continue
        if flaw:
            unfit.setdefault(name, _WHY[flaw])
        pairs = (call.rpartition(" ") for call in calls.split(",") if call)
        recorded.setdefault(name, set()).add(tuple((part, int(times)) for part, _, times in pairs))
    wanting = _wanting(recorded, plan, catalogue)
    parts = {}
    for name in sorted(recorded.keys() & wanting):
        if plan.by_name[name].route is not Route.COMPOSITE or _delegates(name, catalogue):
            continue
        kept = {tuple((p, n) for p, n in calls if p in wanting) for calls in recorded[name]}
        parts[name] = [dict(calls) for calls in sorted(kept) if calls]
    flaws = {name: unfit[name] for name in sorted(unfit.keys() & parts.keys())}
    return {"parts": parts, "unfit": flaws}


def _delegates(name: str, catalogue: Catalogue) -> bool:
    """Whether torchgen's own composite kernel calls the group's out variant, as the plan knows by itself."""
    group = catalogue.group_of.get(name)
    composite = catalogue.operators[name].composite
    return composite is Composite.NON_FUNCTIONAL and group is not None and group.structured


def _wanting(
    recorded: Mapping[str, set[Calls]], plan: Plan, catalogue: Catalogue
) -> frozenset[str]:
    """The operators that compute: what falls back here, some kernels, and what is made of these."""
    wanting = {entry.name for entry in plan.entries if entry.route is Route.FALLBACK}
    wanting |= {name for name in _COMPUTING if plan.by_name[name].route is Route.KERNEL}
    wanting |= {entry.name for entry in plan.entries if _delegates(entry.name, catalogue)}
    while True:
        made = {
            name
            for name, each in recorded.items()
            if plan.by_name[name].route is Route.COMPOSITE
            and any(part in wanting for calls in each for part, _ in calls)
        }
        if made <= wanting:
            return frozenset(wanting)
        wanting |= made


def main() -> int:
    parser = argparse.ArgumentParser(prog="find_parts", description=__doc__)
    parser.add_argument("entries", nargs="*", metavar="OPINFO")
    add_check(parser)
    options = parser.parse_args()

    plan = load_recorder()
    found = facts(recorded_lines(options.entries), plan, read_catalogue())
    if options.entries:
        print(sections(found))
        return 0
    return record("parts", _HEADER, found, check=options.check)


if __name__ == "__main__":
    sys.exit(main())
