"""Graphs that Inductor writes in C++: with ``cpp_wrapper``, and AOTInductor's packages.

Inductor's own C++ for the CPU, where a graph on the device calls the backend by
``csrc/opsmith/compile/graph_functions.h``, whose text each graph carries: fused kernels, products and
convolutions, memory of constants.  Every other operator goes through PyTorch's dispatcher.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import chain
from typing import Any

import torch

from opsmith.build.csrc import CSRC
from opsmith.description import FusedKernel, Inductor
from opsmith.runtime.compile.compiling import compiling, note_called
from opsmith.schema import torch_names
from opsmith.schema.torch_names import Feature, OpOverload

# AOTInductor's model supports the devices that PyTorch knows; of these, MPS' code gets memory by functions.
_MODEL_OF_DEVICE = """
#define USE_MPS 1
#define aoti_torch_device_type_mps aoti_torch_device_type_privateuse1
"""

# C functions of graph_functions_called.h, which Inductor calls by a device's name.
_CALLED = frozenset(
    "mm_out bmm_out addmm_out baddbmm_out convolution randint_low_out view_dtype scatter__src scatter__value "
    "scatter_reduce__two".split()
)


@contextmanager
def written_by_functions() -> Iterator[None]:
    """Within it AOTInductor compiles what it writes, and no header of PyTorch's before."""
    from opsmith.schema.torch_names import inductor_config

    # There is none for the device, and definitions go before it.
    with inductor_config.patch({"aot_inductor.precompile_headers": False}):
        yield


def fused_kernel_in_cpp(name: str, is_reduction: bool, source: str, fused: FusedKernel) -> str:
    """The definition of the fused kernel ``name``, a function of tensors and numbers, in C++."""
    return (
        f'static opsmith::GraphKernel {name}("{fused.make}", "{fused.run}", "{name}", '
        f'{str(is_reduction).lower()}, R"opsmith({source})opsmith");'
    )


@cache
def cpp_wrapper_codegen(device: str) -> type:
    """The class that writes graphs on ``device``."""
    torch_names.require(Feature.AOT_INDUCTOR)
    from opsmith.schema.torch_names import CppWrapperCpu

    if torch_names.has("DEVICE_TO_ATEN"):  # others ask DeviceOpOverrides.aten_device_type
        torch_names.DEVICE_TO_ATEN[device] = "at::kPrivateUse1"
    of_device = f"aoti_torch_{device}_"

    class DeviceCppWrapper(CppWrapperCpu):
        def __init__(self) -> None:
            self.device = device
            super().__init__()  # type: ignore[no-untyped-call]
            self.needs_vec_isa = compiling().inductor is Inductor.CPP

        @staticmethod
        def create(*_: Any) -> Any:
            return DeviceCppWrapper()

        def generate(self, is_inference: bool) -> Any:
            note_called()
            return super().generate(is_inference)  # type: ignore[no-untyped-call]

        # ---- the text before the graph

        def add_device_include(self, asked: str) -> None:
            if device not in self.included_devices:
                self.included_devices.add(device)
                self.header.splice_aot(_MODEL_OF_DEVICE)
                self.header.splice_aot(self.get_device_include_path_aot("cpu"))
                self.header.splice_jit(self.get_device_include_path_jit("cpu"))
                self.header.splice(_functions())
                self.header.writeline(f"#define {of_device}view_dtype opsmith_view_dtype")
            if asked != device:
                super().add_device_include(asked)

        def codegen_write_arg_with_large_length_string(
            self, arg_name: str, arg_str_val: str, *given: Any
        ) -> None:
            if arg_name == "in_spec_":  # in the model's constructor
                self.prefix.writeline("opsmith::keep_constants_on(device_idx_);")
            super().codegen_write_arg_with_large_length_string(arg_name, arg_str_val, *given)

        def _generate_end_jit(self, result: Any) -> None:
            self.device = "cpu"  # whose compiler it is
            try:
                super()._generate_end_jit(result)  # type: ignore[no-untyped-call]
            finally:
                self.device = device

        # ---- calls

        @staticmethod
        def get_c_shim_func_name(kernel: str, asked: str) -> str:
            if "::" not in kernel:
                return kernel
            name = CppWrapperCpu.get_c_shim_func_name(kernel, asked)
            if not name.startswith(of_device):
                return name
            function = name.removeprefix(of_device)
            return f"opsmith_{function}" if function in _CALLED else name

        def generate_c_shim_extern_kernel_call(
            self, kernel: str, args: list[str], device: str, **given: Any
        ) -> None:
            if self.get_c_shim_func_name(kernel, device).startswith(of_device):
                raise NotImplementedError(
                    f"no graph in C++ on {device} calls {kernel}, for which it has no C function"
                )
            super().generate_c_shim_extern_kernel_call(kernel, args, device, **given)

        def _generate_kernel_call_helper(
            self,
            kernel_name: str,
            call_args: Any,
            *,
            triton: bool = True,
            arg_types: Any = None,
            **given: Any,
        ) -> None:
            if triton:
                super()._generate_kernel_call_helper(
                    kernel_name, call_args, triton=triton, arg_types=arg_types, **given
                )
                return
            arguments = [
                f"opsmith::host_data<{kind.rstrip('* ')}>({each})"
                if isinstance(kind, str) and "*" in kind
                else str(each)
                for each, kind in zip(call_args, arg_types, strict=True)
            ]
            self.writeline(self.wrap_kernel_call(kernel_name, arguments))  # type: ignore[no-untyped-call]

        @staticmethod
        def _compatible_with_stableivalue(op: OpOverload) -> bool:
            # PyTorch 2.13's code for an optional argument that is given crashes the process.
            optional = any(
                isinstance(each.type, torch.OptionalType) for each in op._schema.arguments
            )
            return not optional and CppWrapperCpu._compatible_with_stableivalue(op)

        def generate_fallback_kernel(self, node: Any) -> None:
            if _is_on_cpu(node):
                super().generate_fallback_kernel(node)
                return
            given = node.export_extern_kernel_node()
            self.generate_fallback_kernel_with_runtime_lookup(
                node.get_name(),
                node.python_kernel_name,
                lambda: [*node.codegen_args(), *node.codegen_kwargs()],
                node.op_overload,
                given,
                node.outputs or node.mutation_outputs,
            )

        def generate_fallback_kernel_with_runtime_lookup_aot(
            self,
            op_overload: Any,
            raw_args: Sequence[Any],
            output_args: Any,
            raw_outputs: Sequence[Any],
        ) -> None:
            # PyTorch's executor of a package's operators knows no device but CUDA's.
            if any(isinstance(each, torch.device) for each in raw_args):
                self.generate_fallback_kernel_with_runtime_lookup_boxed(
                    op_overload, raw_args, output_args, raw_outputs
                )
            else:
                super().generate_fallback_kernel_with_runtime_lookup_aot(
                    op_overload, raw_args, output_args, raw_outputs
                )

    return DeviceCppWrapper


@cache
def _functions() -> str:
    """The text by which graphs call the backend."""
    folder = CSRC / "opsmith" / "compile"
    texts = (
        (folder / f"{name}.h").read_text() for name in ("graph_functions", "graph_functions_called")
    )
    return "\n".join(texts).replace("#pragma once", "")


def _is_on_cpu(node: Any) -> bool:
    """Whether all tensors of a call are the CPU's."""
    made = node.outputs if node.outputs else [node]
    places = (each.get_device() for each in chain(node.inputs, made) if hasattr(each, "get_device"))
    return all(each is None or each.type == "cpu" for each in places)
