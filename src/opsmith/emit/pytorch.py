"""plan → the C++ that registers it with PyTorch.

Writes ``<Name>NativeFunctions.h`` (what the kernels' authors must define), ``<Name>Functions.h`` (what
they may call), ``Register<Name>_<n>.cpp`` (the generated functions and their registration),
``RegisterCustom<Name>.cpp`` (its own operators), ``RegisterAutograd<Name>_<n>.cpp`` (what differentiates
them), ``Register<Name>Autocast.cpp`` and ``Register<Name>Fallback.cpp``.  Deterministic: the same plan
gives the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from opsmith.description import AttentionFeature, Kernel, StubKernel
from opsmith.emit.autocast import autocast_file
from opsmith.emit.autograd import autograd_declarations, autograd_shard, gradient_operators
from opsmith.emit.custom import custom_file, meta_declarations
from opsmith.emit.format import formatted
from opsmith.emit.namespaced import definitions, functions_header
from opsmith.emit.shards import DIFFERENTIABLE_PER_SHARD, FUNCTIONS_PER_SHARD, sharded
from opsmith.emit.signature import Signatures
from opsmith.emit.stubs import stub_declaration, stub_headers, stub_registrations
from opsmith.emit.text import (
    banner,
    class_name,
    dtype_set,
    in_namespace_of,
    includes,
    quoted,
    registrations,
)
from opsmith.emit.wrapper import (
    BOXED_KERNELS,
    WRAPPER_HEADERS,
    Declarations,
    Wrapper,
    declarations,
    registered,
    wrapper,
)
from opsmith.plan import Entry, Meta, MetaRule, Plan, Route
from opsmith.plan.attention import AttentionKernel, fused_attention
from opsmith.plan.meta import is_opsmiths
from opsmith.plan.model import given_metas
from opsmith.schema import Composite

_OTHER_LAYOUTS = (
    "SparsePrivateUse1",
    "SparseCsrPrivateUse1",
    "QuantizedPrivateUse1",
    "NestedTensorPrivateUse1",
)


# Operators that torch.jit.trace leaves out, since it records what PyTorch makes them of: those of torchgen's
# DONT_RECORD_TRACE that are no composites above autograd.
_UNTRACED = {"convolution"}
# Rules by which derived code gets a result's shape without the dispatcher.
_SHAPED_BY_CALL = frozenset({MetaRule.GIVEN, MetaRule.SAME_AS})


@dataclass(frozen=True)
class EmittedFile:
    """A generated file: its name and its whole text."""

    name: str
    text: str


def emit(plan: Plan, *, laid_out: bool = True) -> tuple[EmittedFile, ...]:
    """The C++ files that register ``plan`` with PyTorch.

    For people they are ``laid_out`` by clang-format, which takes ten times as long as writing them.
    """
    name = class_name(plan.backend)
    signatures = _signatures(plan)

    served = [entry for entry in plan.entries if entry.kernel]
    served.sort(key=lambda entry: (signatures[entry.name].base, entry.name))
    if not laid_out:
        return tuple(EmittedFile(*each) for each in _texts(plan, name, served, signatures))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        # clang-format is a process: it works on one file while the next one is written.
        files = [
            (file, pool.submit(formatted, text))
            for file, text in _texts(plan, name, served, signatures)
        ]
        return tuple(EmittedFile(file, text.result()) for file, text in files)


def _texts(
    plan: Plan, name: str, served: Sequence[Entry], signatures: Signatures
) -> Iterator[tuple[str, str]]:
    """Each file's name and text, not yet formatted."""
    yield f"{name}NativeFunctions.h", _kernels_header(plan, served, signatures)
    pairs = ((entry, signatures[entry.name]) for entry in served)
    yield f"{name}Functions.h", functions_header(plan, pairs)
    own = [entry for entry in served if plan.operator(entry.name)]
    atens = [entry for entry in served if not plan.operator(entry.name)]
    # Whole groups to a shard, so that an operator's variants stand together.
    named = ((signatures[entry.name].base, entry) for entry in atens)
    for index, entries in sharded(named, FUNCTIONS_PER_SHARD).items():
        yield f"Register{name}_{index}.cpp", _shard(plan, entries, signatures)
    if plan.custom:
        yield f"RegisterCustom{name}.cpp", _custom(plan, own, signatures)
    named = ((signatures[entry.name].base, entry) for entry in plan.entries if entry.autograd)
    for index, entries in sharded(named, DIFFERENTIABLE_PER_SHARD).items():
        yield f"RegisterAutograd{name}_{index}.cpp", autograd_shard(plan, entries, signatures)
    for suffix, headers, code in stub_registrations(plan):
        yield f"Register{name}Stubs{suffix}.cpp", _stubs(plan, headers, code)
    yield f"Register{name}Autocast.cpp", autocast_file(plan)
    yield f"Register{name}Fallback.cpp", _fallback(plan)


def _signatures(plan: Plan) -> Signatures:
    metas = {meta.operator: meta for meta in plan.metas if meta.rule in _SHAPED_BY_CALL}
    metas |= {meta.operator: meta for meta in given_metas(plan.entries)}
    return Signatures(plan.custom, gradient_operators(plan), metas)


def _meta_declarations(entries: Iterable[Entry], signatures: Signatures) -> list[tuple[Meta, str]]:
    """The functions that shape the results of operators of ATen, each declared in its namespace."""
    return [
        (meta, in_namespace_of(symbol, signatures[meta.operator].meta_declaration(name)))
        for meta in given_metas(entries)
        if meta.rule is MetaRule.GIVEN
        for symbol in meta.sources
        for name in [symbol.rpartition("::")[2]]
    ]


def declaration(plan: Plan, kernel: Kernel | StubKernel, symbol: str) -> str:
    """The C++ declaration of ``symbol``, which ``kernel`` names, with its namespace; for error messages."""
    if isinstance(kernel, StubKernel):
        return stub_declaration(kernel, symbol)
    signatures = _signatures(plan)
    for declared in autograd_declarations(plan.entries, signatures):
        if declared.kernel == kernel and declared.symbol == symbol:
            return declared.qualified
    return declarations(kernel, signatures, qualified=True).by_symbol[symbol]


def _kernels_header(plan: Plan, entries: Sequence[Entry], signatures: Signatures) -> str:
    declared = _declared_once(entries, signatures)
    headers = frozenset(stub_headers(plan)).union(*(each.headers for _, each in declared))
    lines = [
        banner(plan, "the kernels that its libraries define."),
        "#pragma once\n",
        "#include <array>",
        "#include <tuple>",
        "#include <vector>\n",
        "#include <ATen/TensorIterator.h>",
        "#include <ATen/core/IListRef.h>",
        "#include <ATen/core/Tensor.h>",
        *(f"#include <{header}>" for header in sorted(headers)),
        "",
    ]
    members: dict[str, list[str]] = {}

    def declare(kernel: Kernel, key: str, texts: Mapping[str, str]) -> None:
        comment = f"// {kernel.operator}{key} ({kernel.library}, {kernel.location})"
        if kernel.class_name:
            lines_of = [comment, *(f"static {text};" for text in texts.values()), ""]
            members.setdefault(kernel.class_name, []).append("\n".join(lines_of))
        else:
            lines.extend([comment, *_in_namespaces(texts), ""])

    for kernel, each in declared:
        declare(kernel, "", each.by_symbol)
    for function in autograd_declarations(plan.entries, signatures):
        key = ", backward" if function.kernel.backward else ", autograd"
        declare(function.kernel, key, {function.symbol: function.text})
    metas = [*meta_declarations(plan), *_meta_declarations(entries, signatures)]
    for meta, text in metas:
        if is_opsmiths(meta):
            continue
        lines += [f"// {meta.operator}, meta ({meta.location})", text, ""]
    for class_, statics in members.items():
        lines += [_struct(class_, statics), ""]
    for stub in sorted(plan.stubs, key=lambda stub: stub.symbol):
        name = stub.symbol.rpartition("::")[2]
        lines.append(f"// {stub.stub} ({stub.library}, {stub.location})")
        lines += [in_namespace_of(stub.symbol, stub_declaration(stub, name)), ""]
    return "\n".join(lines)


def _declared_once(
    entries: Iterable[Entry], signatures: Signatures
) -> list[tuple[Kernel, Declarations]]:
    """The kernels that ``entries`` call and their declarations, by symbol.

    Overloads share a symbol, and two operators may share one function.
    """
    found: dict[tuple[tuple[str, str], ...], tuple[Kernel, Declarations]] = {}
    for link in (link for entry in entries for link in entry.chain):
        if link.kernel and not link.kernel.through:
            declared = declarations(link.kernel, signatures)
            found[tuple(declared.by_symbol.items())] = link.kernel, declared
    return [found[key] for key in sorted(found)]


def _struct(class_: str, members: Sequence[str]) -> str:
    """The class whose static members are kernels, as torchgen declares it."""
    namespace, _, name = class_.rpartition("::")
    text = "\n".join([f"struct {name} {{", *members, "};"])
    return f"namespace {namespace} {{\n{text}\n}}" if namespace else text


def _in_namespaces(texts: Mapping[str, str]) -> list[str]:
    return [in_namespace_of(symbol, text) for symbol, text in texts.items()]


def _stubs(plan: Plan, headers: Sequence[str], code: str) -> str:
    return "\n".join(
        [
            banner(plan, "the DispatchStubs that its libraries fill."),
            f'#include "{class_name(plan.backend)}NativeFunctions.h"\n',
            "#include <opsmith/generated/stub.h>\n",
            *(f"#include <{header}>" for header in headers),
            "",
            code,
        ]
    )


def _kernels_of(plan: Plan, entries: Sequence[Entry], signatures: Signatures) -> list[str]:
    """The declarations of the kernels that ``entries`` call.

    Not the header with all of them, where another kernel would compile this file anew; but a class is
    declared as a whole.
    """
    metas = [text for _, text in _meta_declarations(entries, signatures)]
    if any(entry.kernel and entry.kernel.class_name for entry in entries):
        return [f'#include "{class_name(plan.backend)}NativeFunctions.h"\n', *metas]
    declared = _declared_once(entries, signatures)
    kernels = [text for _, each in declared for text in _in_namespaces(each.by_symbol)]
    return [*kernels, *metas]


def _registered(wrappers: Sequence[tuple[Entry, Wrapper]]) -> dict[str, str]:
    """What is registered for each operator; one that the tracer leaves out is traced in parts."""
    kernels = registered(wrappers)
    for entry, _ in wrappers:
        if entry.name in _UNTRACED:
            kernels[entry.name] = (
                f"&opsmith::TracedInParts<{kernels[entry.name]}, at::_ops::{entry.name}>::call"
            )
    return kernels


def _shard(plan: Plan, entries: Sequence[Entry], signatures: Signatures) -> str:
    wrappers = [(entry, wrapper(entry, signatures)) for entry in entries]
    headers = frozenset().union(*(generated.headers for _, generated in wrappers))
    is_traced = not _UNTRACED.isdisjoint(entry.name for entry in entries)
    traced = ["opsmith/generated/traced_in_parts.h"] if is_traced else []
    return "\n".join(
        [
            banner(plan, "the operators' registrations."),
            f"{includes((*WRAPPER_HEADERS, 'opsmith/generated/registrations.h', *traced))}\n",
            f"{includes(headers)}\n",
            *_kernels_of(plan, entries, signatures),
            "",
            # Not in the global namespace, where ::abs and others are overloaded.
            "namespace opsmith::generated {",
            "namespace {\n",
            *(generated.text for _, generated in wrappers if generated.text),
            *registrations("PrivateUse1", _registered(wrappers), "OPSMITH_LIBRARY_IMPL"),
            "}  // namespace",
            "}  // namespace opsmith::generated\n",
            f"// What {class_name(plan.backend)}Functions.h declares of these.",
            *definitions([generated for _, generated in wrappers]),
            "",
        ]
    )


def _custom(plan: Plan, entries: Sequence[Entry], signatures: Signatures) -> str:
    wrappers = [(entry, wrapper(entry, signatures)) for entry in entries]
    calls = definitions([generated for _, generated in wrappers])
    return custom_file(plan, wrappers, _kernels_of(plan, entries, signatures), calls)


def _boxed(route: Route) -> str:
    return f"torch::CppFunction::makeFromBoxedFunction<&{BOXED_KERNELS[route]}>()"


def _interceptions(plan: Plan) -> list[str]:
    """The registrations of the composites that are intercepted.

    One whose gradient comes from its parts is registered for the autograd key as well: what stands below
    would else silence PyTorch's decomposition above.
    """
    kernels: dict[str, str] = {}
    above: dict[str, str] = {}
    for entry in plan.entries:
        if entry.interception is None:
            continue
        composite = entry.interception.composite
        function = "intercept_without_dropout" if entry.interception.dropout else "intercept"
        kernel = f"opsmith::{function}<c10::DispatchKey::{composite.value}>"
        kernels[entry.name] = f"torch::CppFunction::makeFromBoxedFunction<&{kernel}>()"
        if composite is Composite.IMPLICIT:
            above[entry.name] = kernels[entry.name]
    return [*registrations("PrivateUse1", kernels), *registrations("AutogradPrivateUse1", above)]


def _other_layouts(plan: Plan) -> Iterator[str]:
    """The registrations for nested, sparse and quantized tensors."""
    yield "// Sparse, quantized and nested tensors, and PyTorch's kernels on them made of other operators."
    for key in _OTHER_LAYOUTS:
        yield f"TORCH_LIBRARY_IMPL(_, {key}, m) {{ m.fallback({_boxed(plan.unlisted)}); }}"
    yield ""
    named: dict[tuple[str, str], list[str]] = {}
    for entry in plan.entries:
        for layout in entry.other_layouts:
            kernel = (
                f"opsmith::kernel_of<c10::DispatchKey::{layout.key}>"
                if layout.route is Route.COMPOSITE
                else BOXED_KERNELS[layout.route]
            )
            named.setdefault((layout.key.replace("CPU", "PrivateUse1"), kernel), []).append(
                entry.name
            )
    for (key, kernel), names in sorted(named.items()):
        yield f"TORCH_LIBRARY_IMPL(aten, {key}, m) {{"
        yield "for (const char* name : {"
        yield from (f'"{name}",' for name in names)
        yield "}) {"
        yield f"m.impl(name, torch::CppFunction::makeFromBoxedFunction<&{kernel}>());"
        yield "}\n}\n"


def _attention(plan: Plan) -> Iterator[str]:
    """Which calls of attention the runtime says that kernels take; nothing where none is there."""
    fused = fused_attention(plan.by_name.get)
    if not (fused.forward or fused.safe_softmax):
        return
    yield "namespace {\n"
    yield "// Which calls of scaled_dot_product_attention are one operator."
    yield "[[maybe_unused]] const bool attention_set = [] {"
    yield "opsmith::set_attention_kernels("
    yield f"{{{', '.join(map(_attention_kernel, fused.forward))}}},"
    yield f"{{{', '.join(map(_attention_kernel, fused.backward))}}},"
    yield f"{dtype_set(fused.safe_softmax)});"
    yield "return true;"
    yield "}();\n"
    yield "}  // namespace\n"


_ATTENTION_FEATURES = {
    AttentionFeature.DROPOUT: "kDropout",
    AttentionFeature.MASK: "kMask",
    AttentionFeature.MASK_GRADIENT: "kMaskGradient",
    AttentionFeature.CAUSAL: "kCausal",
    AttentionFeature.GROUPED_HEADS: "kGroupedHeads",
    AttentionFeature.OTHER_VALUE_DIM: "kOtherValueDim",
}


def _attention_kernel(each: AttentionKernel) -> str:
    limits = each.limits
    dtypes = dtype_set(each.dtypes) if each.dtypes else "std::nullopt"
    without = " | ".join(f"opsmith::{_ATTENTION_FEATURES[one]}" for one in limits.without) or "0"
    return (
        f"{{{quoted(each.kernel.symbol)}, {dtypes}, {limits.most_head_dim or 0}, "
        f"{limits.head_dim_multiple}, {without}}}"
    )


def _unmarked_writes(plan: Plan) -> list[str]:
    operators = ", ".join(
        f"{{{quoted(name)}, {{{', '.join(map(quoted, arguments))}}}}}"
        for name, arguments in plan.unmarked_writes.items()
    )
    return [f"opsmith::set_unmarked_writes({{{operators}}});"] if operators else []


def _fallback(plan: Plan) -> str:
    unserved = [entry for entry in plan.entries if not (entry.kernel or entry.interception)]
    last_resorts = [entry for entry in unserved if entry.route in BOXED_KERNELS]
    exceptions = [
        entry for entry in last_resorts if entry.route is not plan.unlisted or entry.by_name
    ]
    interceptions = _interceptions(plan)
    refused = [entry for entry in plan.entries if entry.refusal]
    attention = list(_attention(plan))
    lines = [
        banner(plan, "what happens to operators that nothing else serves."),
        "#include <opsmith/fallback/fallback.h>",
        *(["#include <opsmith/fallback/policy_reasons.h>"] if refused else []),
        "#include <opsmith/fallback/pure_outputs.h>",
        *(["#include <opsmith/fallback/unmarked_writes.h>"] if plan.unmarked_writes else []),
        *(["#include <opsmith/fallback/interception.h>"] if interceptions else []),
        *(["#include <opsmith/operators/attention.h>"] if attention else []),
        "",
        "#include <torch/library.h>\n",
        "TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {",
        f"m.fallback({_boxed(plan.unlisted)});",
        "}\n",
        *_other_layouts(plan),
    ]
    lines += registrations("PrivateUse1", {entry.name: _boxed(entry.route) for entry in exceptions})
    if interceptions:
        lines += [
            "// Composites that are intercepted before PyTorch decomposes them.",
            *interceptions,
        ]
    lines += [
        "namespace {\n",
        "[[maybe_unused]] const bool writes_set = [] {",
        f"opsmith::set_pure_outputs({{{', '.join(map(quoted, plan.pure_outputs))}}});",
        *_unmarked_writes(plan),
        "return true;",
        "}();\n",
        "}  // namespace\n",
        *attention,
    ]
    if refused:
        lines += [
            "namespace {\n",
            "[[maybe_unused]] const bool reasons_set = [] {",
            *(
                f'opsmith::set_policy_reason("{entry.name}", {quoted(entry.refusal)});'
                for entry in refused
            ),
            "return true;",
            "}();\n",
            "}  // namespace\n",
        ]
    return "\n".join(lines)
