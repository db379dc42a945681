"""A backend with one kernel for each of many groups, from which opsmith makes the other variants.

Each kernel is one generated line: the CPU's kernel for the operator on the host's view of the device's
memory.  Which variant is given differs from group to group.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path

import yaml

from opsmith.emit.signature import Signatures
from opsmith.schema import Catalogue, Composite, Group, Variant

# PyTorch's headers are half of what a file takes.
_KERNELS_IN_A_FILE = 60


def given(groups: Sequence[Group], catalogue: Catalogue) -> dict[str, str]:
    """The operator that has a kernel, for each group by its functional operator.

    What ``given.yaml`` names; of a group that it knows no member of, any.
    """
    known = set(yaml.safe_load(Path(__file__).with_name("given.yaml").read_text("utf-8"))["given"])
    chosen = {}
    for group in groups:
        names = [
            name
            for _, name in group.members()
            if catalogue.operators[name].composite is not Composite.IMPLICIT
        ]
        if names and group.functional is not None:
            anyone = names[zlib.crc32(group.functional.encode()) % len(names)]
            chosen[group.functional] = next((name for name in names if name in known), anyone)
    return chosen


def write(folder: Path, operators: Sequence[str]) -> Path:
    """Writes the backend with a kernel for each of ``operators``; returns its ``backend.yaml``."""
    signatures = Signatures()
    files = -(-len(operators) // _KERNELS_IN_A_FILE)
    lines: list[list[str]] = [[] for _ in range(files)]
    headers: list[set[str]] = [set() for _ in range(files)]
    manifest = ["library: hostlib", "execution: host", 'sources: ["kernels_*.cpp"]', "kernels:"]
    for index, name in enumerate(operators):
        signature = signatures[name]
        symbol = name.replace(".", "_")
        arguments = ", ".join(parameter.name for parameter in signature.parameters())
        declared = signature.kernel_declaration(f"{symbol}_kernel")
        call = f"opsmith::call_boxed<{signature.ops_struct}, &opsmith::fallback>({arguments})"
        lines[index % files].append(f"{declared} {{ return {call}; }}")
        headers[index % files].add(f"#include <{signature.header}>")
        manifest.append(f"  - {{op: {name}, kernel_name: chip::{symbol}_kernel}}")
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(files):
        text = "\n".join(
            [
                "#include <opsmith/fallback/fallback.h>",
                *sorted(headers[index]),
                "namespace chip {",
                *lines[index],
                "}",
            ]
        )
        (folder / f"kernels_{index}.cpp").write_text(text + "\n")
    (folder / "kernels.yaml").write_text("\n".join(manifest) + "\n")
    backend = folder / "backend.yaml"
    backend.write_text("backend: chip\ndriver: sim\nlibraries: [kernels.yaml]\nrng: cpu\n")
    return backend


def variants(group: Group) -> dict[Variant, str]:
    """The group's variants by kind."""
    return dict(group.members())
