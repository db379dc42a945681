"""plan → the C++ that defines and registers the description's own operators.

Writes ``RegisterCustom<Name>.cpp``: the schemas with their tags, the kernels for the device and for the
meta device, and what autograd does where the description does not say it.  Called by ``pytorch``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from opsmith.emit.signature import CustomSignature, Signatures
from opsmith.emit.text import banner, comment, in_namespace_of, includes, quoted, registrations
from opsmith.emit.wrapper import WRAPPER_HEADERS, Wrapper, registered
from opsmith.plan import Entry, Meta, MetaRule, Plan
from opsmith.schema import Operator, Variant

_OWN_HEADERS = (
    "opsmith/autograd/custom_autograd.h",
    "opsmith/generated/custom_meta.h",
    "opsmith/operators/external_schema.h",
)


def _is_external(plan: Plan, meta: Meta) -> bool:
    """Whether the meta kernel is that of whoever defines the operator.

    A function that the description gives then only shapes what derived variants allocate.
    """
    operator = plan.operator(meta.operator)
    assert operator is not None
    return operator.namespace in plan.external_namespaces and operator.variant.returns_new


def meta_declarations(plan: Plan) -> Iterator[tuple[Meta, str]]:
    """The meta kernels that authors must define, each with its declaration in its namespace."""
    for meta in plan.metas:
        if meta.rule is MetaRule.GIVEN:
            signature = _signature(plan, meta.operator)
            for symbol in meta.sources:
                name = symbol.rpartition("::")[2]
                yield meta, in_namespace_of(symbol, signature.meta_declaration(name))


def meta_declaration(plan: Plan, meta: Meta, symbol: str) -> str:
    """The C++ declaration of ``symbol``, which shapes results, with its namespace; for error messages."""
    return Signatures(plan.custom)[meta.operator].meta_declaration(symbol)


def custom_file(
    plan: Plan,
    wrappers: Sequence[tuple[Entry, Wrapper]],
    declarations: Sequence[str],
    definitions: Sequence[str],
) -> str:
    """The text of ``RegisterCustom<Name>.cpp``, not yet formatted.

    ``wrappers`` are the functions for the device, ``declarations`` those of the kernels that they call,
    ``definitions`` the calls that end in them.
    """
    headers = frozenset().union(*(generated.headers for _, generated in wrappers))
    metas = [
        (meta, _signature(plan, meta.operator))
        for meta in plan.metas
        if not _is_external(plan, meta)
    ]
    headers |= {signature.header for _, signature in metas}
    return "\n".join(
        [
            banner(plan, "its own operators."),
            f"{includes((*WRAPPER_HEADERS, *_OWN_HEADERS))}\n",
            includes(headers.difference(_OWN_HEADERS)),
            "#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>",
            "#include <torch/library.h>\n",
            *declarations,
            *(declaration for _, declaration in meta_declarations(plan)),
            "",
            "namespace opsmith::generated {",
            "namespace {\n",
            *(generated.text for _, generated in wrappers if generated.text),
            *(_meta(meta, signature, plan) for meta, signature in metas if _is_written(meta)),
            *_definitions(plan),
            *registrations(
                "PrivateUse1",
                {
                    name: f"opsmith::on_stack<{target}>()"
                    if name.partition("::")[0] in plan.external_namespaces
                    else target
                    for name, target in registered(wrappers).items()
                },
            ),
            *registrations("Meta", {meta.operator: _meta_target(meta, s) for meta, s in metas}),
            *_autograd(plan),
            "}  // namespace",
            "}  // namespace opsmith::generated\n",
            *definitions,
            "",
        ]
    )


def _signature(plan: Plan, name: str) -> CustomSignature:
    operator = plan.operator(name)
    assert operator is not None
    return CustomSignature(operator)


def _by_namespace(plan: Plan) -> dict[str, list[Operator]]:
    found: dict[str, list[Operator]] = {}
    for operator in plan.custom:
        found.setdefault(operator.namespace, []).append(operator)
    return found


def _definitions(plan: Plan) -> Iterator[str]:
    for namespace, operators in _by_namespace(plan).items():
        lines = []
        for operator in operators:
            tags = ", ".join(f"at::Tag::{tag}" for tag in operator.tags)
            schema = quoted(f"{namespace}::{operator.schema}")
            lines.append(f"opsmith::define_unless_defined(m, {schema}, {{{tags}}});")
        yield "\n".join([f"TORCH_LIBRARY_FRAGMENT({namespace}, m) {{", *lines, "}", ""])


# ---- the meta device


def _is_written(meta: Meta) -> bool:
    """Whether the kernel is generated, not the author's own."""
    return meta.rule is not MetaRule.GIVEN


def _meta_target(meta: Meta, signature: CustomSignature) -> str:
    if _is_written(meta):
        return f"&{signature.cpp_name}_meta"
    return f"&::{meta.sources[0]}"


def _meta(meta: Meta, signature: CustomSignature, plan: Plan) -> str:
    above = comment(signature.schema, f"meta: {meta.why}")
    body = _META_BODIES[meta.rule](meta, signature, plan)
    return "\n".join([above, f"{signature.meta_definition()} {{", *body, "}\n"])


def _same_as(meta: Meta, signature: CustomSignature, plan: Plan) -> list[str]:
    results = [f"opsmith::meta_like({signature.parameter_of(name)})" for name in meta.sources]
    return [f"return {results[0] if len(results) == 1 else _tuple(results)};"]


def _broadcast(meta: Meta, signature: CustomSignature, plan: Plan) -> list[str]:
    operands = [parameter.name for parameter in signature.inputs() if parameter.tensor]
    return [f"return opsmith::meta_broadcast_of({', '.join(operands)});"]


def _from_functional(meta: Meta, signature: CustomSignature, plan: Plan) -> list[str]:
    functional = _signature(plan, meta.sources[0])
    arguments = ", ".join(parameter.name for parameter in functional.parameters())
    call = f"{functional.ops_struct}::redispatch(opsmith::kMeta, {arguments})"
    name = f'"{signature.qualified_name}"'
    if signature.operator.variant is Variant.INPLACE:
        return [f"opsmith::meta_write_inplace({name}, {call}, self);", "return self;"]
    outs = signature.outputs()
    if len(outs) == 1:
        return [f"opsmith::meta_write_out({name}, {call}, {outs[0]});", f"return {outs[0]};"]
    return [
        f"const auto results = {call};",
        *(
            f"opsmith::meta_write_out({name}, std::get<{index}>(results), {out});"
            for index, out in enumerate(outs)
        ),
        f"return std::forward_as_tuple({', '.join(outs)});",
    ]


def _nothing(meta: Meta, signature: CustomSignature, plan: Plan) -> list[str]:
    return []


_META_BODIES: Mapping[MetaRule, Callable[[Meta, CustomSignature, Plan], list[str]]] = {
    MetaRule.SAME_AS: _same_as,
    MetaRule.BROADCAST: _broadcast,
    MetaRule.FROM_FUNCTIONAL: _from_functional,
    MetaRule.NOTHING: _nothing,
}


def _tuple(values: Sequence[str]) -> str:
    return f"std::make_tuple({', '.join(values)})"


# ---- autograd


_NOT_IMPLEMENTED = "torch::autograd::autogradNotImplementedFallback()"
_REJECTED = "torch::CppFunction::makeFromBoxedFunction<&opsmith::reject_gradients>()"
_COUNTED = "torch::CppFunction::makeFromBoxedFunction<&opsmith::count_writes>()"


def _autograd(plan: Plan) -> Iterator[str]:
    """Gradients that nobody wrote are refused; what is written to gets a new version."""
    own = [
        operator for operator in plan.custom if operator.namespace not in plan.external_namespaces
    ]
    refusals = {
        operator.name: _REJECTED if _keeps_what_it_writes(operator) else _NOT_IMPLEMENTED
        for operator in own
    }
    yield from registrations("Autograd", refusals)
    written = (operator for operator in own if operator.variant is not Variant.FUNCTIONAL)
    yield from registrations("ADInplaceOrView", {operator.name: _COUNTED for operator in written})


def _keeps_what_it_writes(operator: Operator) -> bool:
    """Whether the operator writes to an argument that it does not return."""
    arguments, _, returns = operator.schema.rpartition("->")
    return "!" in arguments and "!" not in returns
