"""``<Name>Functions.h``: direct calls of everything that a backend registers, ``at::<name>::add(...)``.

They are to the backend what ``at::cpu::add`` is to the CPU: the C++ API's signatures and default
arguments, and no dispatcher between caller and kernel, so that one kernel can call another.  The
definitions stand in the file that holds the registered functions, in ``at::privateuse1``: what is
generated for an operator does not name the backend, so that an object may serve many.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from opsmith.emit.signature import Signature
from opsmith.emit.text import banner, comment
from opsmith.emit.wrapper import Wrapper
from opsmith.plan import Entry, Plan

_NAMESPACE = "at::privateuse1"
# Headers for the parameters and defaults of ATen's C++ API, as in torch's own headers.
_HEADERS = (
    "ATen/core/Generator.h",
    "ATen/core/IListRef.h",
    "ATen/core/List.h",
    "ATen/core/Reduction.h",
    "ATen/core/Tensor.h",
    "c10/core/QScheme.h",
    "c10/core/Scalar.h",
    "c10/core/Storage.h",
    "c10/core/Stream.h",
    "c10/core/TensorOptions.h",
    "c10/macros/Export.h",
    "c10/util/OptionalArrayRef.h",
)


def functions_header(plan: Plan, served: Iterable[tuple[Entry, Signature]]) -> str:
    """The text of ``<Name>Functions.h``, not yet formatted."""
    lines = [
        banner(plan, "calls of its operators that do not go through the dispatcher."),
        "#pragma once\n",
        "#include <optional>",
        "#include <tuple>",
        "#include <vector>\n",
        *(f"#include <{header}>" for header in _HEADERS),
        "",
    ]
    declarations = (
        (
            signature,
            [
                comment(signature.schema, f"{entry.route.value}: {_kernel_name(entry)}"),
                *(f"C10_EXPORT {cpp.declaration};" for cpp in signature.cpp_calls),
                "",
            ],
        )
        for entry, signature in served
    )
    own = [
        f"namespace at::{plan.backend} {{",
        f"using namespace {_NAMESPACE};  // NOLINT(google-build-using-namespace)",
        "}",
    ]
    return "\n".join([*lines, *_in_namespaces(declarations), *own, ""])


def definitions(served: Iterable[Wrapper]) -> list[str]:
    """The definitions of the calls, which end in the functions that are registered."""
    bodies = (
        (
            wrapper.signature,
            [
                f"C10_EXPORT {cpp.definition} {{ return {_callee(wrapper)}({cpp.arguments}); }}"
                for cpp in wrapper.signature.cpp_calls
            ],
        )
        for wrapper in served
    )
    return _in_namespaces(bodies)


def _in_namespaces(parts: Iterable[tuple[Signature, list[str]]]) -> list[str]:
    """The lines of each part in the namespace, and of custom operators in their own one below it."""
    lines = []
    for namespace, group in itertools.groupby(parts, lambda part: part[0].function.namespace):
        own = "" if namespace == "aten" else f"::{namespace}"
        lines += [
            f"namespace {_NAMESPACE}{own} {{\n",
            *(line for _, part in group for line in part),
        ]
        lines.append("\n}\n")
    return lines


def _callee(wrapper: Wrapper) -> str:
    # A kernel without a wrapper is registered as it is; the others are in an unnamed namespace.
    return f"opsmith::generated::{wrapper.target}" if wrapper.text else wrapper.target


def _kernel_name(entry: Entry) -> str:
    assert entry.kernel is not None
    return f"`{entry.kernel.symbol}`"
