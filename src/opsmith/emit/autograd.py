"""``RegisterAutograd<Name>_<n>.cpp``: what is registered for the autograd key of the device.

Functions of the description as they are; generated functions around backward kernels, which are
registered as operators of their own; and the variants that follow from either.  Each is a route of the
plan (:class:`~opsmith.plan.AutogradRoute`); what it does at run time is in ``csrc/opsmith/autograd``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from opsmith.description import Kernel
from opsmith.emit.signature import Signature, Signatures
from opsmith.emit.text import (
    address,
    banner,
    class_name,
    comment,
    dtype_set,
    in_namespace_of,
    includes,
    quoted,
    registrations,
)
from opsmith.emit.wrapper import wrapper
from opsmith.plan import Autograd, AutogradRoute, Entry, Plan
from opsmith.plan.autograd import gradient_entry
from opsmith.schema import Operator


@dataclass(frozen=True)
class AutogradDeclaration:
    """A function of the description for autograd: its name, and its declaration as C++.

    ``text`` stands in the function's namespace or class; ``qualified`` has its whole name.
    """

    kernel: Kernel
    symbol: str
    text: str
    qualified: str


def gradient_operators(plan: Plan) -> list[Operator]:
    """The operators that the backward kernels are registered as."""
    return [
        entry.autograd.gradient
        for entry in plan.entries
        if entry.autograd is not None and entry.autograd.gradient is not None
    ]


def autograd_declarations(
    entries: Iterable[Entry], signatures: Signatures
) -> Iterator[AutogradDeclaration]:
    """The functions that kernels' authors must define to differentiate ``entries``, in their order."""
    for entry in entries:
        match entry.autograd:
            case Autograd(AutogradRoute.FUNCTION, _, kernel):
                symbol, name = kernel.autograd, entry.name
            case Autograd(AutogradRoute.BACKWARD, _, kernel, Operator() as gradient):
                symbol, name = kernel.backward, gradient.name
            case _:
                continue
        signature = signatures[name].taking(symint=kernel.symint)
        yield AutogradDeclaration(
            kernel,
            symbol,
            signature.kernel_declaration(symbol.rpartition("::")[2]),
            signature.kernel_declaration(symbol),
        )


def autograd_shard(plan: Plan, entries: Sequence[Entry], signatures: Signatures) -> str:
    """The text of a file that differentiates ``entries``, not yet formatted."""
    differentiated = [(entry, entry.autograd) for entry in entries if entry.autograd is not None]
    functions = [_function(entry, autograd, signatures) for entry, autograd in differentiated]
    gradients = [
        _Gradient(entry, autograd, autograd.gradient, signatures)
        for entry, autograd in differentiated
        if autograd.gradient is not None
    ]
    headers = {signatures[entry.name].header for entry, _ in differentiated}
    headers |= {
        signatures[autograd.functional].header
        for _, autograd in differentiated
        if autograd.functional
    }
    # The file itself declares the gradients' operators.
    headers |= {
        header
        for gradient in gradients
        for header in gradient.wrapper.headers
        if header.startswith("opsmith/")
    }
    if gradients:
        headers.add("torch/library.h")
    # PyTorch's headers for autograd take seconds; a function that is only registered needs none of them.
    needed = ["opsmith/generated/registrations.h"]
    if gradients or any(function.text for function in functions):
        needed += ["opsmith/autograd/autograd.h", "opsmith/generated/call.h"]
    return "\n".join(
        [
            banner(plan, "how its operators are differentiated."),
            includes(needed),
            "",
            includes(headers) + "\n",
            *_declared(plan, entries, signatures),
            "",
            "namespace opsmith::generated::differentiated {",
            "namespace {\n",
            # Apart, because ATen has operators of such names: gelu_backward, …
            "namespace gradients {\n",
            *(text for gradient in gradients for text in gradient.functions()),
            "}  // namespace gradients\n",
            *(function.text for function in functions if function.text),
            *_gradient_registrations(gradients),
            *registrations(
                "AutogradPrivateUse1",
                {each.signature.name: address(each.target) for each in functions},
                "OPSMITH_LIBRARY_IMPL",
            ),
            "}  // namespace",
            "}  // namespace opsmith::generated::differentiated\n",
        ]
    )


def _declared(plan: Plan, entries: Sequence[Entry], signatures: Signatures) -> list[str]:
    """The declarations of the functions for autograd; a class is declared as a whole, in the header."""
    declared = list(autograd_declarations(entries, signatures))
    if any(function.kernel.class_name for function in declared):
        return [f'#include "{class_name(plan.backend)}NativeFunctions.h"']
    return [in_namespace_of(function.symbol, function.text) for function in declared]


# ---- the functions for the autograd key


@dataclass(frozen=True)
class _Function:
    """A function for the autograd key: the operator, what is registered, and its text if generated."""

    signature: Signature
    target: str
    text: str


def _function(entry: Entry, autograd: Autograd, signatures: Signatures) -> _Function:
    signature = signatures[entry.name]
    if autograd.route is AutogradRoute.FUNCTION:
        function = signature.taking(symint=autograd.kernel.symint)
        return _Function(signature, function.address(autograd.kernel.autograd, autograd.kernel), "")
    above = comment(signature.schema, f"autograd: {autograd.why}")
    before, call = _BODIES[autograd.route](signature, autograd, signatures)
    text = f"{above}\n{before}{signature.autograd_definition()} {{ return {call}; }}\n"
    return _Function(signature, signature.cpp_name, text)


def _arguments(signature: Signature) -> str:
    return ", ".join(parameter.name for parameter in signature.parameters())


def _by_backward(
    signature: Signature, autograd: Autograd, signatures: Signatures
) -> tuple[str, str]:
    assert autograd.gradient is not None
    kernel = autograd.kernel
    who = f"{signature.qualified_name} cannot be differentiated twice: its gradient is computed by "
    not_twice = (
        f"{who}the kernel `{kernel.backward}` ({kernel.location}), which has no gradient of its own\n"
        f"  remedy: name a differentiable function with `autograd: …` in the place of `backward`"
    )
    name = "".join(part[:1].upper() + part[1:] for part in signature.cpp_name.split("_"))
    results = signature.result_names
    saved = results if kernel.saves is None else kernel.saves
    indices = ", ".join(str(index) for index, name in enumerate(results) if name in saved)
    members = [
        f"using Saved = std::index_sequence<{indices}>;",
        f"using Forward = {signature.ops_struct};",
        f"using Gradient = {signatures[autograd.gradient.name].ops_struct};",
        f'static constexpr const char* kName = "{name}Backward";',
        f"static constexpr const char* kNotTwice = {quoted(not_twice)};",
    ]
    for argument, dtypes in kernel.dtypes:
        if not argument:
            refusal = (
                f"the gradient of {signature.qualified_name} is computed by the kernel "
                f"`{kernel.backward}` ({kernel.location}), which takes {'/'.join(dtypes)} only, not "
            )
            members += [
                f"static constexpr opsmith::DtypeSet kDtypes = {dtype_set(dtypes)};",
                f"static constexpr const char* kOtherDtypes = {quoted(refusal)};",
            ]
    formula = f"{name}Formula"
    struct = f"struct {formula} {{\n" + "\n".join(members) + "\n};\n"
    call = f"opsmith::differentiable<{formula}>(dispatchKeySet, {_arguments(signature)})"
    return struct, call


def _inplace(signature: Signature, autograd: Autograd, signatures: Signatures) -> tuple[str, str]:
    functional = signatures[autograd.functional].ops_struct
    if autograd.route is AutogradRoute.INPLACE_BY_COPY:
        return "", (
            f'opsmith::inplace_by_copy<{functional}>("{signature.qualified_name}", '
            f"{_arguments(signature)})"
        )
    return "", (
        f"opsmith::inplace_or_copy<{signature.ops_struct}, {functional}>(dispatchKeySet, "
        f'"{signature.qualified_name}", {_arguments(signature)})'
    )


def _out(signature: Signature, autograd: Autograd, signatures: Signatures) -> tuple[str, str]:
    return "", (
        f'opsmith::out_without_gradient<{signature.ops_struct}>(dispatchKeySet, "{signature.base}", '
        f"{_arguments(signature)})"
    )


# The code before each generated function, and the call that is its body.
_BODIES: Mapping[AutogradRoute, Callable[[Signature, Autograd, Signatures], tuple[str, str]]] = {
    AutogradRoute.BACKWARD: _by_backward,
    AutogradRoute.INPLACE_OR_COPY: _inplace,
    AutogradRoute.INPLACE_BY_COPY: _inplace,
    AutogradRoute.OUT: _out,
}


# ---- the operators that compute gradients


class _Gradient:
    """The registration of one backward kernel as an operator."""

    def __init__(
        self, forward: Entry, autograd: Autograd, operator: Operator, signatures: Signatures
    ) -> None:
        self.operator = operator
        self.results = len(signatures[forward.name].result_names)
        self.signature = signatures[operator.name]
        self.wrapper = wrapper(gradient_entry(autograd), signatures)
        target = self.wrapper.target
        self.target = f"gradients::{target}" if self.wrapper.text else target

    def functions(self) -> list[str]:
        """The function for the device, where the kernel needs one, and the one for the meta device."""
        likes = [
            f"opsmith::gradient_like({name}, needs[{index}])"
            for index, name in enumerate(self._differentiated())
        ]
        body = likes[0] if len(likes) == 1 else f"std::make_tuple({', '.join(likes)})"
        above = comment(self.signature.schema, "meta: each gradient is like its argument")
        meta = f"{above}\n{self.signature.meta_definition()} {{ return {body}; }}\n"
        return [self.wrapper.text, meta]

    def _differentiated(self) -> Sequence[str]:
        """The arguments whose gradients are computed: they follow the gradients of the results."""
        count = len(self.signature.function.func.returns)
        return self.operator.tensor_arguments[self.results : self.results + count]


def _gradient_registrations(gradients: Sequence[_Gradient]) -> list[str]:
    if not gradients:
        return []
    namespace = gradients[0].operator.namespace
    device = {g.operator.name: address(g.target) for g in gradients}
    meta = {g.operator.name: f"&gradients::{g.signature.cpp_name}_meta" for g in gradients}
    return [
        f"TORCH_LIBRARY_FRAGMENT({namespace}, m) {{",
        *(f"m.def({quoted(gradient.operator.schema)});" for gradient in gradients),
        "}",
        *(block.rstrip() for block in registrations("PrivateUse1", device)),
        *(block.rstrip() for block in registrations("Meta", meta)),
    ]
