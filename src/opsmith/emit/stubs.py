"""Filled DispatchStubs → C++: the declarations of the authors' kernels, and what fills the stubs with them.

Called by ``pytorch``, which makes files of it.  The operators that call the stubs are ordinary wrappers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from opsmith.description import StubKernel
from opsmith.emit.wrapper import RUNS
from opsmith.plan import Plan
from opsmith.schema import read_stubs

# Headers of the types in stubs' signatures that ATen/core/Tensor.h does not bring.
_HEADERS = (
    (re.compile(r"\bat::Generator\b"), "ATen/core/Generator.h"),
    (re.compile(r"\bc10::List\b"), "ATen/core/List.h"),
    (re.compile(r"\bstd::reference_wrapper\b"), "functional"),
)


def stub_headers(plan: Plan) -> list[str]:
    """The headers that the declarations of the plan's stub kernels need."""
    known = read_stubs().stubs if plan.stubs else {}
    headers = set()
    for kernel in plan.stubs:
        stub = known[kernel.stub]
        headers |= {header for pattern, header in _HEADERS if pattern.search(stub.signature)}
        if "at::native::" in stub.signature:  # an enum that the stub's own header defines
            headers.add(stub.header)
    return sorted(headers)


def stub_declaration(kernel: StubKernel, name: str) -> str:
    """The C++ declaration of ``kernel``, called ``name``, as its author must define it."""
    signature = read_stubs().stubs[kernel.stub].signature
    result, _, parameters = signature.partition(" (")
    return f"{result} {name}({parameters}"


def stub_registrations(plan: Plan) -> Iterator[tuple[str, list[str], str]]:
    """Files that fill the plan's stubs: for each the end of its name, its headers and its code."""
    if not plan.stubs:
        return
    known = read_stubs()
    together: dict[str, list[StubKernel]] = {}
    for kernel in plan.stubs:
        header = known.stubs[kernel.stub].header
        name = header.rpartition("/")[2].removesuffix(".h")
        together.setdefault(f"_{name}" if header in known.isolated else "", []).append(kernel)
    for suffix, kernels in sorted(together.items()):
        headers = sorted({known.stubs[kernel.stub].header for kernel in kernels})
        yield suffix, headers, "\n".join(_fill(kernel, plan) for kernel in kernels)


def _fill(kernel: StubKernel, plan: Plan) -> str:
    stub = read_stubs().stubs[kernel.stub]
    namespace, _, name = f"at::native::{kernel.stub}".rpartition("::")
    runs = RUNS[kernel.execution]
    operands = "kOwnDtypes" if stub.own_dtypes else "kCommonDtype"
    dtypes = "".join(f", at::ScalarType::{dtype}" for dtype in kernel.dtypes)
    operators = ", ".join(_operators(kernel, plan)) or "no operator of this plan"
    return "\n".join(
        [
            f"// {stub.signature}",
            "//",
            f"// `{kernel.symbol}` ({kernel.library}, {kernel.location}), for {operators}",
            f"namespace {namespace} {{",
            f'REGISTER_PRIVATEUSE1_DISPATCH({name}, (&opsmith::StubKernel<"{kernel.stub}", '
            f"&::{kernel.symbol}, opsmith::Runs::{runs}, opsmith::Stubs::{operands}{dtypes}>::call))",
            f"}}  // namespace {namespace}",
            "",
        ]
    )


def _operators(kernel: StubKernel, plan: Plan) -> Iterable[str]:
    return sorted(
        {
            entry.kernel.operator
            for entry in plan.entries
            if entry.kernel is not None and kernel in entry.kernel.through
        }
    )
