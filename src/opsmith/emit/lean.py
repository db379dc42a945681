"""C++ declarations of kernels on lean tensors: by the types that ExecuTorch has for a schema's.

Both runtimes' generated files declare a kernel by this: what the sources define otherwise is missing when
they are linked.
"""

from __future__ import annotations

from opsmith.schema.torch_names import BaseType, ListType, NativeFunction, OptionalType, Type

_NAMESPACE = "torch::executor"
_TENSOR = f"{_NAMESPACE}::Tensor"
_OUT = f"{_TENSOR} &"
# The types of plan/executorch/schema.py; Tensors and Scalars are taken by reference.
_TYPES = {
    "Tensor": _TENSOR,
    "Scalar": f"{_NAMESPACE}::Scalar",
    "int": "int64_t",
    "SymInt": "int64_t",
    "float": "double",
    "bool": "bool",
    "str": "std::string_view",
    "ScalarType": f"{_NAMESPACE}::ScalarType",
    "MemoryFormat": f"{_NAMESPACE}::MemoryFormat",
}


def lean_declaration(function: NativeFunction, symbol: str) -> str:
    """The declaration of the kernel ``symbol`` of an out variant, without a namespace.

    It takes a ``KernelRuntimeContext&`` first, then the schema's arguments in their order.
    """
    parameters = [f"{_NAMESPACE}::KernelRuntimeContext & context"]
    for argument in function.func.arguments.flat_all:
        is_out = argument.is_write and str(argument.type) == "Tensor"
        parameters.append(f"{_OUT if is_out else _parameter(argument.type)} {argument.name}")
    outs = len(function.func.returns)
    result = _OUT if outs == 1 else f"::std::tuple<{','.join([_OUT] * outs)}>" if outs else "void"
    return f"{result} {symbol}({', '.join(parameters)})"


def _parameter(kind: Type) -> str:
    text = _value(kind)
    return f"const {text} &" if str(kind).rstrip("?") in ("Tensor", "Scalar") else text


def _value(kind: Type) -> str:
    if isinstance(kind, OptionalType):
        return f"std::optional<{_value(kind.elem)}>"
    if isinstance(kind, ListType):
        is_tensors = str(kind.elem) == "Tensor"
        return (
            f"{_NAMESPACE}::TensorList"
            if is_tensors
            else f"{_NAMESPACE}::ArrayRef<{_value(kind.elem)}>"
        )
    assert isinstance(kind, BaseType)
    return _TYPES[str(kind)]
