"""Finds DispatchStubs and the operators that call them, and writes ``stubs.yaml`` of ``schema/recorded``.

    python tools/find_stubs [--check] [OPERATOR …]

Nobody publishes that map, so it is made by running every operator that has a CPU kernel on a simulated device
whose stubs are all filled with probes: see ``trial.py``.  ``--check`` writes nothing and fails where
the file in the tree says something else; with OPERATORs only those are tried, and shown.
Takes a few minutes, most of it compiling the probes.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # what the tools share
from declarations import Declaration, compatible, read_declarations
from opsmith.schema import read_catalogue
from opsmith.schema.catalogue import cpu_kernels
from recorded_files import add_check, record
from samples import calls_of, record_opinfo
from trial import Probes, Trial, try_operators

_HEADER = """\
# PyTorch's DispatchStubs and the operators that call them. Written by tools/find_stubs, which runs
# every operator; do not edit.
#   own_dtypes  the operands of the stub's iterator keep their own dtypes
#   callers  operators whose kernel does its work through stubs on any device, and gave the CPU's results
#   unfit    operators whose kernel reaches stubs, but cannot serve a device
#   isolated headers that no file can include together with another stub's header
"""

# The compiler's spelling of a type → PyTorch's.
_SPELLINGS = (
    (
        r"std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> ?>",
        "std::string",
    ),
    (r"std::basic_string_view<char, std::char_traits<char> ?>", "std::string_view"),
    (
        r"std::vector<std::reference_wrapper<at::Tensor const>, "
        r"std::allocator<std::reference_wrapper<at::Tensor const> ?> ?>",
        "std::vector<std::reference_wrapper<const at::Tensor>>",
    ),
    (r"std::vector<double, std::allocator<double> ?>", "std::vector<double>"),
    (r"([\w:]+(?:<[^<>]*(?:<[^<>]*>)?[^<>]*>)?) const&", r"const \1&"),
    (r"([\w:]+) const\*", r"const \1*"),
    (r"\bc10::ArrayRef<long>", "at::IntArrayRef"),
    (r"\bc10::OptionalArrayRef<long>", "at::OptionalIntArrayRef"),
    (r"\bc10::ArrayRef<at::Tensor>", "at::TensorList"),
    (r"\bc10::(Scalar|ScalarType|Half|BFloat16)\b", r"at::\1"),
    (r"\bunsigned long\b", "uint64_t"),
    (r"\blong\b", "int64_t"),
    (r"(\d)ul\b", r"\1"),
    (r" >", ">"),
)


def spelled(function_pointer: str) -> str:
    """``void (*)(at::TensorIteratorBase&, c10::Scalar const&)`` → ``void (…, const at::Scalar&)``."""
    text = function_pointer.replace("(*)", "", 1)
    for pattern, replacement in _SPELLINGS:
        text = re.sub(pattern, replacement, text)
    return text


def facts(
    declarations: Iterable[Declaration],
    signatures: Mapping[str, str],
    trials: Mapping[str, Trial],
    torch_root: Path,
) -> dict[str, Any]:
    """The facts of ``stubs.yaml``."""
    declarations = list(declarations)
    headers = sorted({declaration.header for declaration in declarations})
    kernels = cpu_kernels()
    found = {name: trial for name, trial in sorted(trials.items()) if trial.stubs}
    own = {stub for trial in found.values() if not trial.casts for stub in trial.stubs}
    return {
        "isolated": [header for group in compatible(headers, torch_root)[1:] for header in group],
        "stubs": {
            declaration.name: {
                "signature": spelled(signatures[declaration.name]),
                "header": declaration.header,
                **({} if declaration.exported else {"exported": False}),
                **({"own_dtypes": True} if declaration.name in own else {}),
            }
            for declaration in declarations
        },
        "callers": {
            name: {"kernel": kernels[name], "stubs": list(trial.stubs)}
            for name, trial in found.items()
            if not trial.flaw
        },
        "unfit": {
            name: {"stubs": list(trial.stubs), "why": trial.flaw}
            for name, trial in found.items()
            if trial.flaw
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="find_stubs", description=__doc__)
    parser.add_argument("operators", nargs="*", metavar="OPERATOR")
    add_check(parser)
    options = parser.parse_args()

    # Trials are forked, and a forked process has none of OpenMP's threads.
    torch.set_num_threads(1)
    torch_root = Path(torch.__file__).parent
    catalogue = read_catalogue()
    recorded = record_opinfo()
    declarations = read_declarations(torch_root)
    probes = Probes(declarations, torch_root)
    names = options.operators or sorted(cpu_kernels())
    trials = try_operators({name: calls_of(name, catalogue, recorded) for name in names}, probes)
    if options.operators:
        for name, trial in trials.items():
            print(name, trial)
        return 0
    found = facts(declarations, probes.signatures(), trials, torch_root)
    return record("stubs", _HEADER, found, check=options.check)


if __name__ == "__main__":
    sys.exit(main())
