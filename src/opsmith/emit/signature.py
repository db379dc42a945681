"""The C++ faces of one operator, from torchgen: what the dispatcher calls and what a kernel looks like.

Wraps torchgen's signature classes so that the rest of ``emit`` deals in text and argument names only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from opsmith.description import Kernel
from opsmith.emit.lean import lean_declaration
from opsmith.plan import Meta
from opsmith.schema import Operator, Result, qualified
from opsmith.schema.catalogue import (
    custom_function,
    native_function,
    results_of,
    structured_group,
)
from opsmith.schema.torch_names import (
    Argument,
    BaseCType,
    Binding,
    ConstRefCType,
    CppSignature,
    CppSignatureGroup,
    DispatcherSignature,
    Expr,
    NamedCType,
    NativeFunction,
    NativeSignature,
    SchemaKind,
    dispatcher,
    meta_api,
    native_function_manager,
    return_names,
    structured,
    tensorT,
    translate,
)

# Names that no argument of ATen has, and one of a custom operator may have: words of C++, names at the head
# of each generated function, and those of the variables in derived ones.
_NOT_FREE = frozenset(
    "alignas alignof and asm auto bitand bitor bool break case catch char class compl concept const "
    "constexpr continue decltype default delete do double else enum explicit export extern false float "
    "for friend goto if inline int long mutable namespace new noexcept not nullptr operator or private "
    "protected public register requires return short signed sizeof static struct switch template this "
    "throw true try typedef typeid typename union unsigned using virtual void volatile while xor "
    "at c10 std opsmith torch call".split()
)
_NOT_FREE_IN_DERIVED = _NOT_FREE.union("iter op precomputed result results shape shapes".split())

_TENSOR_REF = ConstRefCType(BaseCType(tensorT))


@dataclass(frozen=True)
class Parameter:
    """One C++ parameter; ``tensor`` where it is a Tensor, or holds some.

    ``type`` is the schema's, without what makes it optional or a list: ``Tensor``, ``Scalar``,
    ``Generator``, …; ``optional_list``: it is a list, some of whose Tensors may be None.
    """

    name: str
    tensor: bool
    type: str
    optional_list: bool = False


@dataclass(frozen=True)
class CppCall:
    """One form of a call in the C++ API: how it is declared, with defaults, and defined.

    ``arguments`` are those of the registered function, made from its parameters.
    """

    declaration: str
    definition: str
    arguments: str


class Signatures:
    """The signatures of ATen's operators and of a plan's custom ones, by name.

    ``gradients`` are the operators that backward kernels are registered as; none is derived.
    ``metas`` are the C++ functions, and the rules that generated code can follow itself, which shape results
    without the dispatcher, by functional operator.
    """

    def __init__(
        self,
        custom: Iterable[Operator] = (),
        gradients: Iterable[Operator] = (),
        metas: Mapping[str, Meta] | None = None,
    ) -> None:
        self.metas = metas or {}
        self._custom: dict[str, Signature] = {
            **{operator.name: CustomSignature(operator) for operator in custom},
            **{operator.name: GradientSignature(operator) for operator in gradients},
        }
        self._known: dict[str, Signature] = {}

    def __getitem__(self, name: str) -> Signature:
        if name not in self._known:
            self._known[name] = self._signature(name)
        return self._known[name]

    def _signature(self, name: str) -> Signature:
        custom = self._custom.get(name)
        return custom or Signature(name, native_function(name))


class Signature:
    """One operator's C++ signatures; with ``symint`` they take ``c10::SymInt`` where the schema does."""

    def __init__(self, name: str, function: NativeFunction, *, symint: bool = False) -> None:
        self.name = name
        self.function = function
        self.symint = symint
        self.cpp_name = function.func.name.unambiguous_name()

    def taking(self, *, symint: bool) -> Signature:
        """The same operator's signatures with ``c10::SymInt``, or without."""
        if symint == self.symint:
            return self
        return Signature(self.name, self.function, symint=symint)

    @property
    def factory(self) -> bool:
        """Whether it takes dtype, layout, device and pin_memory of its result."""
        return self.function.func.arguments.tensor_options is not None

    @property
    def is_functional(self) -> bool:
        """Whether it returns new results, by its schema."""
        return self.function.func.kind() is SchemaKind.functional

    @functools.cached_property
    def returns_given(self) -> list[str] | None:
        """The arguments that it returns, having written to them; None where any result is a new one."""
        arguments = {
            each.annotation.alias_set: each.name
            for each in self.function.func.arguments.flat_all
            if each.annotation is not None and each.annotation.is_write
        }
        returns = self.function.func.returns
        if not all(each.annotation and each.annotation.is_write for each in returns):
            return None
        return [arguments[each.annotation.alias_set] for each in returns if each.annotation]

    @functools.cached_property
    def changed(self) -> frozenset[str]:
        """The names of the arguments that it changes, by its schema; ``out`` arguments are not among them."""
        return frozenset(
            each.name
            for each in self.function.func.arguments.flat_non_out
            if each.annotation is not None and each.annotation.is_write
        )

    def results(self) -> tuple[Result, ...]:
        """The Tensors that it returns; empty where it returns anything else."""
        return results_of(self.function) or ()

    @property
    def schema(self) -> str:
        """The schema with its namespace, as people know it."""
        return f"{self.function.namespace}::{self.function.func}"

    @property
    def qualified_name(self) -> str:
        """The name by which the dispatcher knows it, e.g. ``aten::add.Tensor``."""
        return qualified(self.name)

    @property
    def base(self) -> str:
        """The name without overload and in-place underscore, which the group's variants share."""
        return str(self.function.func.name.name.base)

    @property
    def ops_struct(self) -> str:
        """The struct through which C++ calls the dispatcher, e.g. ``at::_ops::add_Tensor``."""
        if self.function.namespace == "aten":
            return f"at::_ops::{self.cpp_name}"
        name, _, overload = self.qualified_name.partition(".")
        with native_function_manager(self.function):
            kind = DispatcherSignature.from_schema(self.function.func).type()
        return f'opsmith::Operator<"{name}", "{overload}", {kind}>'

    @property
    def header(self) -> str:
        """The header that declares :attr:`ops_struct`."""
        if self.function.namespace != "aten":
            return "opsmith/generated/operator.h"
        return f"ATen/ops/{self.function.root_name}_ops.h"

    @property
    def native_header(self) -> str:
        """The header that declares PyTorch's own kernels of it."""
        return f"ATen/ops/{self.function.root_name}_native.h"

    def definition(self, name: str = "") -> str:
        """The head of the function that is registered with the dispatcher, or of one like it."""
        with native_function_manager(self.function):
            signature = DispatcherSignature.from_schema(self.function.func, symint=self.symint)
            return str(signature.defn(name or self.cpp_name))

    def autograd_definition(self) -> str:
        """The head of a function for an autograd key: ``dispatchKeySet``, and SymInt where it may come."""
        with native_function_manager(self.function):
            signature = DispatcherSignature.from_schema(self.function.func)
            return str(signature.defn(self.cpp_name, is_redispatching_fn=True))

    def meta_definition(self) -> str:
        """The head of a function for the meta key."""
        with native_function_manager(self.function):
            signature = DispatcherSignature.from_schema(self.function.func)
            return str(signature.defn(f"{self.cpp_name}_meta"))

    def kernel_declaration(self, symbol: str) -> str:
        """How an ordinary kernel of the ``aten`` ABI is declared, without its namespace."""
        with native_function_manager(self.function):
            return str(NativeSignature(self.function.func, symint=self.symint).defn(symbol))

    def lean_declaration(self, symbol: str) -> str:
        """How a kernel of the ``executorch`` ABI is declared, without its namespace."""
        return lean_declaration(self.function, symbol)

    def kernel_pointer(self) -> str:
        """The type of a pointer to an ordinary kernel of the ``aten`` ABI."""
        with native_function_manager(self.function):
            return str(NativeSignature(self.function.func, symint=self.symint).ptr_type())

    def address(self, symbol: str, kernel: Kernel) -> str:
        """``symbol``, a function of ``kernel``, as a constant expression."""
        if not kernel.class_name:
            return f"::{symbol}"
        # A static member of a class may be overloaded.
        return f"(static_cast<{self.kernel_pointer()}>(&::{symbol}))"

    @property
    def result_names(self) -> tuple[str, ...]:
        """The names of the results, as the backward kernel's parameters have them."""
        return tuple(return_names(self.function))

    @functools.cached_property
    def cpp_calls(self) -> tuple[CppCall, ...]:
        """The C++ API's forms of a call, as ``at::add`` has them, each ending in :meth:`definition`."""
        with native_function_manager(self.function):
            group = CppSignatureGroup.from_native_function(self.function, method=False)
            return tuple(
                CppCall(
                    signature.decl(),
                    signature.defn(),
                    _translate(signature.arguments(), self._bindings()),
                )
                for signature in group.signatures()
            )

    @property
    def namespaced_name(self) -> str:
        """The name by which C++ calls it in a namespace such as ``at::meta``, e.g. ``add``."""
        with native_function_manager(self.function):
            return str(self._namespaced().name())

    def function_type(self) -> str:
        """The C++ type of a pointer to the function of that name."""
        with native_function_manager(self.function):
            return str(self._namespaced().ptr_type())

    def _namespaced(self) -> CppSignature:
        group = CppSignatureGroup.from_native_function(
            self.function, method=False, fallback_binding=False
        )
        # For out variants the one with the schema's order of arguments: add_outf.
        return group.faithful_signature or group.signature

    def parameters(self) -> list[Parameter]:
        """The parameters of :meth:`definition`, in order."""
        with native_function_manager(self.function):
            return [_parameter(binding) for binding in self._bindings()]

    def inputs(self) -> list[Parameter]:
        """The parameters less those that are outputs of an out variant."""
        outputs = set(self.outputs())
        return [parameter for parameter in self.parameters() if parameter.name not in outputs]

    def outputs(self) -> list[str]:
        """The names of the ``out`` arguments; empty for other variants."""
        return [argument.name for argument in self.function.func.arguments.out]

    def tensor_arguments(self) -> tuple[list[str], list[str]]:
        """The schema's names of the inputs and of the outputs that are Tensors or hold some."""
        return [p.name for p in self.inputs() if p.tensor], self.outputs()

    def dispatcher_arguments(self, rename: Callable[[Parameter], str]) -> str:
        """The arguments of a call through :attr:`ops_struct`, made from this function's parameters.

        ``rename`` maps a parameter to the expression that stands for it.
        """
        return self._arguments(rename, symint=True)

    def meta_declaration(self, symbol: str) -> str:
        """How the function that an author gives for the results' shapes is declared, without its namespace.

        An operator of ATen is traced with PyTorch's meta kernel: sizes are numbers here.
        """
        return self._meta_declaration(symbol, symint=False)

    def meta_arguments(self, rename: Callable[[Parameter], str]) -> str:
        """The arguments of a call of that function, as :meth:`dispatcher_arguments` has them."""
        return self._arguments(rename, symint=False)

    def _meta_declaration(self, symbol: str, *, symint: bool) -> str:
        # Arguments that the operator writes to are without data here as well.
        with native_function_manager(
            replace(self.function, use_const_ref_for_mutable_tensors=True)
        ):
            return str(NativeSignature(self.function.func, symint=symint).defn(symbol))

    def _arguments(self, rename: Callable[[Parameter], str], *, symint: bool) -> str:
        with native_function_manager(self.function):
            sources = [Expr(rename(_parameter(b)), b.nctype) for b in self._bindings()]
            return _translate(sources, dispatcher.arguments(self.function.func, symint=symint))

    def parameter_of(self, argument: str) -> str:
        """The name of the parameter that stands for the schema's ``argument``."""
        return argument

    def _bindings(self) -> list[Binding]:
        signature = DispatcherSignature.from_schema(self.function.func, symint=self.symint)
        return list(signature.arguments())


class CustomSignature(Signature):
    """A custom operator's C++ signatures, with names that are free in C++."""

    _not_free = _NOT_FREE_IN_DERIVED

    def __init__(self, operator: Operator) -> None:
        super().__init__(operator.name, _with_free_names(custom_function(operator), self._not_free))
        self.operator = operator
        # Two namespaces may have operators of one name.
        self.cpp_name = f"{operator.namespace}_{self.cpp_name}"

    @property
    def schema(self) -> str:
        """The schema with its namespace, as its author wrote it."""
        return f"{self.operator.namespace}::{self.operator.schema}"

    def parameter_of(self, argument: str) -> str:
        """The name of the parameter that stands for the schema's ``argument``."""
        return _free_name(argument, self._not_free)

    def tensor_arguments(self) -> tuple[list[str], list[str]]:
        """The schema's names of the inputs and of the outputs that are Tensors or hold some."""
        names = list(self.operator.tensor_arguments)
        inputs = len(names) - len(self.outputs())
        return names[:inputs], names[inputs:]

    def meta_declaration(self, symbol: str) -> str:
        """How a meta kernel that an author writes is declared, without its namespace."""
        return self._meta_declaration(symbol, symint=True)

    def meta_arguments(self, rename: Callable[[Parameter], str]) -> str:
        """The arguments of a call of that kernel, as :meth:`dispatcher_arguments` has them."""
        return self.dispatcher_arguments(rename)


class GradientSignature(CustomSignature):
    """Those of an operator that computes gradients, in generated code's namespace for these."""

    _not_free = _NOT_FREE

    def __init__(self, operator: Operator) -> None:
        super().__init__(operator)
        self.cpp_name = self.function.func.name.unambiguous_name()


class Structured:
    """PyTorch's meta function of a structured group, and the kernel that goes with it."""

    def __init__(self, out_name: str) -> None:
        self.group = structured_group(out_name)
        self.iterator = self.group.out.structured_inherits is not None

    @property
    def meta_class(self) -> str:
        """E.g. ``at::meta::structured_add_Tensor``."""
        return f"at::meta::structured_{meta_api.name(self.group)}"

    @property
    def header(self) -> str:
        """The header that declares :attr:`meta_class`."""
        return f"ATen/ops/{self.group.functional.root_name}_meta.h"

    @property
    def results(self) -> list[str]:
        """The names of the outputs."""
        return [argument.name for argument in self.group.out.func.arguments.out]

    @property
    def precomputes(self) -> bool:
        """Whether the meta function returns values for the kernel."""
        return self.group.out.precomputed is not None

    def meta_arguments(self, signature: Signature) -> str:
        """The arguments of ``meta()``, made from the parameters of ``signature``."""
        with self._manager():
            return _translate(self._sources(signature), structured.meta_arguments(self.group))

    def kernel_arguments(self, signature: Signature, results: Mapping[str, str]) -> list[str]:
        """The arguments of the kernel; ``results`` maps each output to its expression."""
        arguments = self._arguments(signature, results, self._kernel_bindings())
        return ["iter"] * self.iterator + arguments

    def impl_arguments(self, signature: Signature, results: Mapping[str, str]) -> str:
        """The arguments of ``impl()`` of a class of PyTorch's own."""
        with self._manager():
            bindings = structured.impl_arguments(self.group)
        return ", ".join(self._arguments(signature, results, bindings))

    def _arguments(
        self, signature: Signature, results: Mapping[str, str], goals: Sequence[Binding]
    ) -> list[str]:
        with self._manager():
            sources = list(self._sources(signature))
            sources += [Expr(text, NamedCType(name, _TENSOR_REF)) for name, text in results.items()]
            if precomputed := self.group.out.precomputed:
                added = [*precomputed.replace.values(), precomputed.add or []]
                for argument in (argument for values in added for argument in values):
                    kind = structured.argument_type(argument, binds=argument.name)
                    sources.append(Expr(f"precomputed.{argument.name}", kind))
            return [expr.expr for expr in translate(sources, goals, method=False)]

    def kernel_declaration(self, symbol: str) -> str:
        """How a structured kernel is declared, without its namespace."""
        with self._manager():
            parameters = ["at::TensorIteratorBase& iter"] * self.iterator
            parameters += [binding.decl() for binding in self._kernel_bindings()]
            return f"void {symbol}({', '.join(parameters)})"

    def meta_declaration(self, symbol: str) -> str:
        """How a function that takes the place of ``meta()`` is declared, without its namespace."""
        with self._manager():
            parameters = [f"{self.meta_class}& op"]
            parameters += [binding.decl() for binding in structured.meta_arguments(self.group)]
            returned = f"{self.meta_class}::meta_return_ty" if self.precomputes else "void"
            return f"{returned} {symbol}({', '.join(parameters)})"

    def _kernel_bindings(self) -> list[Binding]:
        with self._manager():
            bindings = structured.impl_arguments(self.group)
        if self.iterator:
            # The iterator holds the operands, cast to the common dtype; the originals would mislead.
            return [binding for binding in bindings if not _parameter(binding).tensor]
        return list(bindings)

    def _sources(self, signature: Signature) -> list[Expr]:
        sources = []
        with native_function_manager(signature.function):
            bindings = signature._bindings()
        for binding in bindings:
            kind = binding.nctype
            if binding.name == "self" and signature.function.func.kind() is SchemaKind.inplace:
                kind = NamedCType("self", _TENSOR_REF)
            sources.append(Expr(binding.name, kind))
        return sources

    @contextmanager
    def _manager(self) -> Iterator[None]:
        with native_function_manager(self.group):
            yield


def _free_name(argument: str, not_free: frozenset[str]) -> str:
    return f"{argument}_" if argument in not_free else argument


def _with_free_names(function: NativeFunction, not_free: frozenset[str]) -> NativeFunction:
    """``function`` with other names for the arguments that generated code cannot have."""

    def renamed(arguments: tuple[Argument, ...]) -> tuple[Argument, ...]:
        return tuple(
            replace(argument, name=_free_name(argument.name, not_free)) for argument in arguments
        )

    arguments = function.func.arguments
    free = replace(
        arguments,
        pre_self_positional=renamed(arguments.pre_self_positional),
        post_self_positional=renamed(arguments.post_self_positional),
        pre_tensor_options_kwarg_only=renamed(arguments.pre_tensor_options_kwarg_only),
        post_tensor_options_kwarg_only=renamed(arguments.post_tensor_options_kwarg_only),
        out=renamed(arguments.out),
    )
    return replace(function, func=replace(function.func, arguments=free))


def _parameter(binding: Binding) -> Parameter:
    argument = binding.argument
    if not hasattr(argument, "type"):  # a SelfArgument
        argument = argument.argument
    kind = str(argument.type)
    base = kind.rstrip("?]0123456789[")
    tensor = bool(argument.type.is_tensor_like())
    return Parameter(binding.name, tensor, base, kind == "Tensor?[]")


def _translate(sources: Sequence[Binding | Expr], goals: Sequence[Binding]) -> str:
    return ", ".join(expr.expr for expr in translate(sources, goals, method=False))
