"""What kernels on lean tensors look like in C++, by ExecuTorch's own code generator.

Both runtimes' generated files declare a kernel by this: what the sources define otherwise is missing when
they are linked.
"""

from __future__ import annotations

from torchgen import local
from torchgen.model import NativeFunction


def lean_declaration(function: NativeFunction, symbol: str) -> str:
    """The declaration of the kernel ``symbol`` of an out variant, without a namespace.

    It takes a ``KernelRuntimeContext&`` first, then the schema's arguments in their order.
    """
    from executorch.codegen.api.types import ExecutorchCppSignature

    with local.parametrize(
        use_const_ref_for_mutable_tensors=False, use_ilistref_for_tensor_lists=False
    ):
        signature = ExecutorchCppSignature.from_native_function(function)
        return str(signature.decl(name=symbol, include_context=True))
