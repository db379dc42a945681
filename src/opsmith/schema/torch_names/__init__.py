"""Every name of PyTorch that opsmith uses and PyTorch does not promise; no other module reaches one.

``from opsmith.schema.torch_names import OpOverload`` looks it up when it runs, and raises
:class:`~opsmith.errors.TorchNameMissing` where the installed torch has none.  What is lost then is a
:class:`Feature`, not an import nor a load: :func:`set_up` does without it.
:mod:`opsmith.schema.torch_names.table` lists the names; their types are below.  Importing this module
imports nothing of PyTorch.
"""

# mypy: implicit-reexport
# ruff: noqa: F401
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opsmith.schema.torch_names.features import Feature, missing_features, set_up
from opsmith.schema.torch_names.found import find, has, module_of, replace, require
from opsmith.schema.torch_names.table import TORCH_NAMES, TorchName, lost_in

__all__ = [
    "TORCH_NAMES",
    "Feature",
    "TorchName",
    "find",
    "has",
    "lost_in",
    "missing_features",
    "module_of",
    "replace",
    "require",
    "set_up",
]

if TYPE_CHECKING:
    from torch import _conj, _neg_view, _register_device_module, _storage_classes, _tensor_classes
    from torch._C import (
        DispatchKey,
        DispatchKeySet,
        _accelerator_exchangeDevice,
        _accelerator_hooks_device_count,
        _after_ADInplaceOrView_keyset,
        _after_autograd_keyset,
        _AutoDispatchBelowADInplaceOrView,
        _AutoDispatchBelowAutograd,
        _dispatch_dump_table,
        _dispatch_has_kernel_for_dispatch_key,
        _dispatch_key_name,
        _dispatch_keys,
        _dispatch_tls_local_exclude_set,
        _dispatch_tls_local_include_set,
        _ExcludeDispatchKeyGuard,
        _get_operation_overload,
        _get_privateuse1_backend_name,
        _set_conj,
        _set_neg,
    )
    from torch._C import FunctionSchema as CFunctionSchema
    from torch._C._autograd import _unsafe_set_version_counter
    from torch._C._distributed_c10d import Backend as C10dBackend
    from torch._C._distributed_c10d import DebugLevel, _SymmetricMemory, get_debug_level
    from torch._decomp import decompositions as reference_decompositions
    from torch._dynamo.device_interface import (
        DeviceInterface,
        caching_worker_current_devices,
        caching_worker_device_properties,
        register_interface_for_device,
    )
    from torch._dynamo.symbolic_convert import graph_break_log
    from torch._dynamo.trace_rules import BUILTIN_INLINE_WHEN_CALLED
    from torch._dynamo.trace_rules import add as add_trace_rule
    from torch._dynamo.variables.ctx_manager import (
        GenericDeviceVariable,
        register_device_context_manager,
    )
    from torch._higher_order_ops.flex_attention import (
        _flex_attention_autocast_impl as cast_flex_attention,
    )
    from torch._higher_order_ops.flex_attention import flex_attention as flex_attention_operator
    from torch._higher_order_ops.flex_attention import sdpa_dense
    from torch._inductor import config as inductor_config
    from torch._inductor import metrics as inductor_metrics
    from torch._inductor.async_compile import AsyncCompile
    from torch._inductor.codecache import CppPythonBindingsCodeCache
    from torch._inductor.codegen.common import (
        CSE,
        BackendFeature,
        CSEVariable,
        DeferredLine,
        DeviceOpOverrides,
        OpOverrides,
        SizeArg,
        TensorArg,
        register_backend_for_device,
        register_device_op_overrides,
    )
    from torch._inductor.codegen.cpp import CppScheduling
    from torch._inductor.codegen.cpp_utils import DEVICE_TO_ATEN
    from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu
    from torch._inductor.codegen.simd import IterationRangesEntry, SIMDKernel, SIMDScheduling
    from torch._inductor.codegen.wrapper import PythonWrapperCodegen, SubgraphPythonWrapperCodegen
    from torch._inductor.compile_fx import _compile_fx_inner
    from torch._inductor.custom_graph_pass import CustomGraphModulePass
    from torch._inductor.decomposition import decompositions as inductor_decompositions
    from torch._inductor.graph import GraphLowering
    from torch._inductor.ir import MultiOutput
    from torch._inductor.lowering import lowerings, make_fallback
    from torch._inductor.output_code import CompiledFxGraph, OutputCode
    from torch._inductor.runtime.benchmarking import register_benchmarker
    from torch._inductor.scheduler import BaseSchedulerNode, ExternKernelSchedulerNode
    from torch._inductor.utils import (
        IndentedBuffer,
        device_need_guard,
        get_all_devices,
        get_bounds_index_expr,
        get_current_backend,
        upcast_compute_type,
        use_scatter_fallback,
    )
    from torch._inductor.virtualized import V
    from torch._library._out_variant import to_out_variant
    from torch._ops import _HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS as FALLTHROUGH_KEYS
    from torch._ops import OpOverload
    from torch._ops import _higher_order_ops as higher_order_operators
    from torch._prims.rng_prims import run_and_save_rng_state, run_with_rng_state
    from torch._prims_common import (
        is_non_overlapping_and_dense_or_false,
        suggest_memory_format,
    )
    from torch._subclasses import fake_impls
    from torch._subclasses.fake_tensor import (
        FakeTensor,
        FakeTensorMode,
        in_kernel_invocation_manager,
    )
    from torch._utils import _get_available_device_type, _get_restore_location, _handle_complex
    from torch.accelerator import Graph, get_device_capability
    from torch.ao.quantization.fx._decomposed import quantized_decomposed_lib
    from torch.distributed.distributed_c10d import _create_process_group_wrapper
    from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode, track_tensor_tree
    from torch.fx.experimental.symbolic_shapes import has_guarding_hint
    from torch.fx.graph import _parse_stack_trace
    from torch.nn.attention.flex_attention import _validate_device as validate_flex_attention
    from torch.storage import _LegacyStorage
    from torch.testing._comparison import default_tolerances
    from torch.testing._internal import common_methods_invocations
    from torch.testing._internal.common_device_type import PrivateUse1TestBase, toleranceOverride
    from torch.testing._internal.common_utils import extract_test_fn
    from torch.testing._internal.opinfo.core import BinaryUfuncInfo, SampleInput, UnaryUfuncInfo
    from torch.testing._internal.optests.autograd_registration import (
        autograd_registration_check,
        set_autograd_fallback_mode,
    )
    from torch.utils._ordered_set import OrderedSet
    from torch.utils._python_dispatch import _disable_current_modes
    from torch.utils._pytree import (
        TreeSpec,
        arg_tree_leaves,
        tree_flatten,
        tree_iter,
        tree_leaves,
        tree_map,
        tree_map_only,
        tree_unflatten,
    )
    from torch.utils._sympy.printers import ExprPrinter
    from torch.utils._sympy.value_ranges import ValueRanges
    from torchgen import local as torchgen_local
    from torchgen.api import dispatcher, structured
    from torchgen.api import meta as meta_api
    from torchgen.api.cpp import return_names
    from torchgen.api.translate import translate
    from torchgen.api.types import (
        BaseCType,
        Binding,
        ConstRefCType,
        CppSignature,
        CppSignatureGroup,
        DispatcherSignature,
        Expr,
        NamedCType,
        NativeSignature,
        tensorT,
    )
    from torchgen.context import native_function_manager
    from torchgen.gen import ParsedYaml, parse_native_yaml, pre_group_native_functions
    from torchgen.model import (
        Argument,
        BaseTy,
        BaseType,
        FunctionSchema,
        ListType,
        Location,
        NativeFunction,
        NativeFunctionsGroup,
        OperatorName,
        OptionalType,
        Return,
        SchemaKind,
        Type,
    )
    from torchgen.model import DispatchKey as TorchgenKey
    from torchgen.native_function_generation import (
        functional_to_out_signature,
        self_to_out_signature,
    )
    from torchgen.packaged.autograd.gen_variable_type import DONT_REQUIRE_DERIVATIVE

    extract_test_fn_of_opinfo: Any
    _torchinductor_pyobject_tensor_data_ptr: Any

else:

    def __getattr__(name: str) -> Any:
        if name not in TORCH_NAMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found = find(name)
        return found
