"""Which DispatchStubs the installed torch has: read from its headers and from libtorch_cpu.so's exports."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

# The function type may have commas and parentheses of its own; the name comes last.
_DECLARED = re.compile(
    r"^\s*DECLARE_DISPATCH\([^;{}#]*?,\s*(?P<name>\w+)\s*\)\s*;?\s*$", re.MULTILINE
)
_ALIAS = re.compile(r"^using (?P<name>\w+) =", re.MULTILINE)
_NAMESPACE = re.compile(r"^namespace (?P<name>at::native[\w:]*) *\{", re.MULTILINE)
_VARIABLE = re.compile(r"^[0-9a-f]+ [BD] (?P<mangled>_ZN\w+)$", re.MULTILINE)


@dataclass(frozen=True)
class Declaration:
    """A ``DECLARE_DISPATCH``: the stub's name, the header, and whether libtorch exports the stub.

    ``name`` is relative to ``at::native``: ``abs_stub``, ``cpublas::copy_stub``.
    ``on_cpu``: the CPU fills it.
    """

    name: str
    header: str
    exported: bool
    on_cpu: bool


def read_declarations(torch_root: Path) -> list[Declaration]:
    """Every stub that the headers of the torch at ``torch_root`` declare, sorted by name."""
    variables = _exported_variables(torch_root / "lib" / "libtorch_cpu.so")
    defaults = "\n".join(name for name in variables if name.endswith("7DEFAULTE"))
    include = torch_root / "include"
    found: dict[str, Declaration] = {}
    for path in sorted((include / "ATen").rglob("*.h")):
        header = str(path.relative_to(include))
        if header == "ATen/native/DispatchStub.h":  # where the macro is defined
            continue
        text = path.read_text()
        for match in _DECLARED.finditer(text):
            # Older headers write `namespace at { namespace native {`: never anything else than at::native.
            opened = ["at::native", *_NAMESPACE.findall(text, 0, match.start())]
            qualified = f"{opened[-1]}::{match['name']}"
            name = qualified.removeprefix("at::native::")
            # The static member DEFAULT of DispatchStub<function type, stub's type>.
            kind = f"{match['name']}_DECLARE_DISPATCH_type"
            on_cpu = f"{len(kind)}{kind}EE7DEFAULTE" in defaults
            exported = _mangled(qualified) in variables
            found.setdefault(name, Declaration(name, header, exported, on_cpu))
    return [found[name] for name in sorted(found)]


def _exported_variables(library: Path) -> set[str]:
    symbols = subprocess.run(
        ["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True
    ).stdout
    return {match["mangled"] for match in _VARIABLE.finditer(symbols)}


def _mangled(variable: str) -> str:
    return "_ZN" + "".join(f"{len(part)}{part}" for part in variable.split("::")) + "E"


def compatible(headers: Iterable[str], torch_root: Path) -> list[list[str]]:
    """``headers`` in groups that one file can include: some define the same alias differently."""
    groups: list[tuple[list[str], set[str]]] = []
    for header in headers:
        text = (torch_root / "include" / header).read_text()
        aliases = {match["name"] for match in _ALIAS.finditer(text)}
        for group, taken in groups:
            if not aliases & taken:
                group.append(header)
                taken |= aliases
                break
        else:
            groups.append(([header], aliases))
    return [group for group, _ in groups]


def probe_sources(declarations: Iterable[Declaration], torch_root: Path) -> Mapping[str, str]:
    """C++ files, by name, that fill every exported stub with its probe."""
    by_header: dict[str, list[Declaration]] = {}
    for declaration in declarations:
        by_header.setdefault(declaration.header, []).append(declaration)
    files = {}
    for index, headers in enumerate(compatible(by_header, torch_root)):
        lines = ['#include "probe.h"', "", *(f"#include <{header}>" for header in headers)]
        for header in headers:
            for declaration in by_header[header]:
                fillable = declaration.exported and declaration.on_cpu
                macro = "PROBE" if fillable else "PROBE_DECLARE"
                namespace, _, name = f"at::native::{declaration.name}".rpartition("::")
                lines.append(f'namespace {namespace} {{ {macro}({name}, "{declaration.name}") }}')
        files[f"probes_{index}.cpp"] = "\n".join([*lines, ""])
    return files
