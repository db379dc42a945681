"""Lists ATen's operators, and writes ``dispatcher.yaml`` and ``operators.yaml`` of ``schema/recorded``.

    python tools/list_operators [--check]

The first has what libtorch registers and ``native_functions.yaml`` does not say, as the dispatcher tells it;
the second a digest of each operator's schema and composite kernel, which tells what another release changed.
``--check`` writes nothing and fails where the files in the tree say something else.  Takes seconds.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # what the tools share
from opsmith.schema import GENERATED, Composite, read_catalogue
from opsmith.schema.catalogue import composite_kernels, native_names
from recorded_files import add_check, record

_DISPATCHER = """\
# What libtorch registers and native_functions.yaml does not say. Written by tools/list_operators; do not
# edit.
#   unlisted      operators in the namespace aten that are not in that file, as the dispatcher prints them
#   without_meta  functional operators with variants for which PyTorch has no kernel for the meta device, in
#                 C++ or Python: nothing tells the shape and dtype of their results before they run. Some of
#                 them PyTorch decomposes into an in-place operator that has none.
"""
_OPERATORS = """\
# ATen's operators, each with a digest of its schema and composite kernel. Written by tools/list_operators; do
# not edit.
"""
# Registered for the meta device by builds of PyTorch for CUDA only.
_OF_CUDA = ("_cudnn_rnn_flatten_weight",)


def unlisted() -> dict[str, dict[str, str]]:
    """Schema and composite kernel's key of each operator of ATen that ``native_functions.yaml`` lacks."""
    found = {}
    for name in sorted(_registered() - native_names()):
        dump = torch._C._dispatch_dump(f"aten::{name}")
        schema = re.search(r"^schema: aten::(.*)$", dump, re.MULTILINE)
        assert schema is not None
        keys = [kind.value for kind in Composite if kind.value and f"\n{kind.value}[alias]" in dump]
        found[name] = {"func": schema[1], **({"composite": keys[-1]} if keys else {})}
    return found


def _registered() -> set[str]:
    names = torch._C._dispatch_get_all_op_names()
    return {name.removeprefix("aten::") for name in names if name.startswith("aten::")}


def without_meta() -> dict[str, bool]:
    """The functional operators with variants that have no meta kernel."""
    catalogue = read_catalogue()
    lacking = set(_OF_CUDA)
    for group in catalogue.groups:
        operator = catalogue.operators[group.functional or ""]
        # Operators that torchgen generates call the in-place operator.
        is_generated = GENERATED in operator.tags and group.inplace is not None
        if not _has_meta(group.inplace or "" if is_generated else operator.name):
            lacking.add(operator.name)
    return dict.fromkeys(sorted(lacking), True)


def _has_meta(name: str) -> bool:
    keys = ("Meta", *(kind.value for kind in Composite if kind.value))
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", key) for key in keys)


def operators() -> dict[str, str]:
    """The digest of each operator, by name."""
    catalogue, kernels = read_catalogue(), composite_kernels()
    schemas = {name: catalogue.operators[name].schema for name in native_names()}
    schemas |= {name: each["func"] for name, each in unlisted().items()}
    return {
        name: hashlib.sha256(f"{schema} {kernels.get(name, '')}".encode()).hexdigest()[:6]
        for name, schema in sorted(schemas.items())
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="list_operators", description=__doc__)
    add_check(parser)
    options = parser.parse_args()
    facts = {"unlisted": unlisted(), "without_meta": without_meta()}
    return record("dispatcher", _DISPATCHER, facts, check=options.check) | record(
        "operators", _OPERATORS, {"operators": operators()}, check=options.check
    )


if __name__ == "__main__":
    sys.exit(main())
