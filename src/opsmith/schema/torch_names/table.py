"""The names of PyTorch and torchgen that opsmith uses and PyTorch does not promise.

Data only: :mod:`opsmith.schema.torch_names.found` finds them, ``tools/check_torch`` looks for them in a
release.  Each name stands under the feature that is lost without it, and its module.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from opsmith.schema.torch_names.features import Feature

Release: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class TorchName:
    """One name: ``attribute`` of ``module``, which opsmith calls ``name``.

    ``attribute`` may be a member of a class, ``Class.member``; of a submodule it is the last part.  Releases
    from ``since`` to ``until`` have it, and ``before`` is the attribute that stands for it in earlier ones.
    Without a ``feature``, opsmith does the same without it: it asks :func:`~opsmith.schema.torch_names.has`.
    """

    name: str
    module: str
    attribute: str
    feature: Feature | None
    since: Release | None = None
    until: Release | None = None
    before: str = ""

    @property
    def qualified(self) -> str:
        return f"{self.module}.{self.attribute}"

    @property
    def lost(self) -> str:
        """Says what is lost where it is missing."""
        return self.feature.value if self.feature else "opsmith has another way"

    def attribute_in(self, release: Release) -> str:
        """The attribute in ``release``, or an empty string where it has none."""
        if self.until is not None and release > self.until:
            return ""
        is_early = self.since is not None and release < self.since
        return self.before if is_early else self.attribute


# `attribute`, or `attribute=name` where opsmith calls it otherwise.
_NAMES: Mapping[Feature | None, Mapping[str, str]] = {
    None: {
        "torch._inductor.codegen.cpp_utils": "DEVICE_TO_ATEN",
        "torch.accelerator": "get_device_capability",
        "torch.ao.quantization.fx._decomposed": "quantized_decomposed_lib",
        "torch.testing._internal.common_utils": "extract_test_fn",
        "torch.testing._internal.opinfo.core": "extract_test_fn=extract_test_fn_of_opinfo",
    },
    Feature.PLAN: {
        "torchgen": "local=torchgen_local",
        "torchgen.api": "dispatcher meta=meta_api structured",
        "torchgen.api.cpp": "return_names",
        "torchgen.api.translate": "translate",
        "torchgen.api.types": "BaseCType Binding ConstRefCType CppSignature CppSignatureGroup "
        "DispatcherSignature Expr NamedCType NativeSignature tensorT",
        "torchgen.context": "native_function_manager",
        "torchgen.gen": "ParsedYaml parse_native_yaml pre_group_native_functions",
        "torchgen.model": "Argument BaseTy BaseType DispatchKey=TorchgenKey FunctionSchema ListType "
        "Location NativeFunction NativeFunctionsGroup OperatorName OptionalType Return SchemaKind Type",
        "torchgen.native_function_generation": "functional_to_out_signature self_to_out_signature",
        "torchgen.packaged.autograd.gen_variable_type": "DONT_REQUIRE_DERIVATIVE",
    },
    Feature.LOADING: {
        "torch": "_register_device_module",
        "torch._C": "_accelerator_exchangeDevice _accelerator_hooks_device_count "
        "_get_privateuse1_backend_name",
    },
    Feature.AOT_INDUCTOR: {
        "torch._inductor.codegen.cpp_wrapper_cpu": "CppWrapperCpu",
    },
    Feature.AUTOCAST: {
        "torch._ops": "_HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS=FALLTHROUGH_KEYS "
        "_higher_order_ops=higher_order_operators",
    },
    Feature.COMPILED_GRAPHS: {
        "torch._inductor": "metrics=inductor_metrics",
        "torch._inductor.compile_fx": "_compile_fx_inner",
        "torch._inductor.output_code": "CompiledFxGraph OutputCode",
        "torch._inductor.utils": "get_all_devices",
        "torch.fx.graph": "_parse_stack_trace",
    },
    Feature.CONFORMANCE: {
        "torch": "_conj _neg_view",
        "torch._C._autograd": "_unsafe_set_version_counter",
        "torch.testing._comparison": "default_tolerances",
        "torch.testing._internal": "common_methods_invocations",
        "torch.testing._internal.common_device_type": "PrivateUse1TestBase toleranceOverride",
        "torch.testing._internal.opinfo.core": "BinaryUfuncInfo SampleInput UnaryUfuncInfo",
    },
    Feature.CPP_KERNELS: {
        "torch._C._dynamo.guards": "_torchinductor_pyobject_tensor_data_ptr",
        "torch._inductor.async_compile": "AsyncCompile",
        "torch._inductor.codecache": "CppPythonBindingsCodeCache",
        "torch._inductor.codegen.cpp": "CppScheduling",
        "torch._inductor.scheduler": "BaseSchedulerNode",
        "torch._inductor.utils": "get_current_backend use_scatter_fallback",
    },
    Feature.CUSTOM_OUT_VARIANTS: {
        "torch._C": "FunctionSchema=CFunctionSchema",
        "torch._library._out_variant": "to_out_variant",
    },
    Feature.DATA_PARALLEL: {"torch._utils": "_get_available_device_type _handle_complex"},
    Feature.DEVICE_CONTEXTS: {
        "torch._dynamo.variables.ctx_manager": "GenericDeviceVariable register_device_context_manager",
    },
    Feature.DISPATCH_KEYS: {
        "torch._C": "DispatchKey _dispatch_dump_table _dispatch_key_name _dispatch_keys "
        "_dispatch_tls_local_exclude_set _dispatch_tls_local_include_set",
    },
    Feature.DISTRIBUTED: {
        "torch._C._distributed_c10d": "Backend=C10dBackend DebugLevel get_debug_level",
        "torch.distributed.distributed_c10d": "_create_process_group_wrapper",
    },
    Feature.DYNAMO: {
        "torch._dynamo.device_interface": "DeviceInterface caching_worker_current_devices "
        "caching_worker_device_properties register_interface_for_device",
    },
    Feature.FAKE_RESULTS: {
        "torch._decomp": "decompositions=reference_decompositions",
        "torch._prims_common": "suggest_memory_format",
        "torch._subclasses": "fake_impls",
        "torch._subclasses.fake_tensor": "FakeTensor in_kernel_invocation_manager",
        "torch.fx.experimental.symbolic_shapes": "has_guarding_hint",
        "torch.utils._python_dispatch": "_disable_current_modes",
    },
    Feature.FLEX_ATTENTION: {
        "torch._higher_order_ops.flex_attention": "flex_attention=flex_attention_operator sdpa_dense",
        "torch.nn.attention.flex_attention": "_validate_device=validate_flex_attention",
    },
    Feature.FLEX_AUTOCAST: {
        "torch._C": "DispatchKeySet _ExcludeDispatchKeyGuard",
        "torch._higher_order_ops.flex_attention": "_flex_attention_autocast_impl=cast_flex_attention",
    },
    Feature.FUSED_KERNELS: {
        "torch._inductor.codegen.common": "BackendFeature CSE CSEVariable DeferredLine OpOverrides SizeArg "
        "TensorArg",
        "torch._inductor.codegen.simd": "IterationRangesEntry SIMDKernel SIMDScheduling",
        "torch._inductor.utils": "IndentedBuffer get_bounds_index_expr upcast_compute_type",
        "torch.utils._ordered_set": "OrderedSet",
        "torch.utils._sympy.printers": "ExprPrinter",
        "torch.utils._sympy.value_ranges": "ValueRanges",
    },
    Feature.GRAPH_BREAKS: {"torch._dynamo.symbolic_convert": "graph_break_log"},
    Feature.GRAPHS: {
        "torch._prims_common": "is_non_overlapping_and_dense_or_false",
        "torch.accelerator": "Graph",
    },
    Feature.INDUCTOR: {
        "torch._inductor": "config=inductor_config",
        "torch._inductor.codegen.common": "DeviceOpOverrides register_backend_for_device "
        "register_device_op_overrides",
        "torch._inductor.codegen.wrapper": "PythonWrapperCodegen SubgraphPythonWrapperCodegen",
        "torch._inductor.custom_graph_pass": "CustomGraphModulePass",
        "torch._inductor.ir": "MultiOutput",
        "torch._inductor.lowering": "lowerings make_fallback",
        "torch._inductor.scheduler": "ExternKernelSchedulerNode",
        "torch._inductor.utils": "device_need_guard",
        "torch._inductor.virtualized": "V",
    },
    Feature.KEPT_OPERATORS: {
        "torch._inductor.decomposition": "decompositions=inductor_decompositions"
    },
    Feature.LAYOUTS: {"torch._inductor.graph": "GraphLowering"},
    Feature.OPCHECK: {
        "torch._C": "_dispatch_has_kernel_for_dispatch_key",
        "torch.testing._internal.optests.autograd_registration": "autograd_registration_check "
        "set_autograd_fallback_mode",
    },
    Feature.OPERATOR_CALLS: {"torch._ops": "OpOverload"},
    Feature.PYTHON_OPERATORS: {
        "torch._C": "_AutoDispatchBelowADInplaceOrView _AutoDispatchBelowAutograd "
        "_after_ADInplaceOrView_keyset _after_autograd_keyset _get_operation_overload",
    },
    Feature.PYTREE: {
        "torch.utils._pytree": "TreeSpec arg_tree_leaves tree_flatten tree_iter tree_leaves tree_map "
        "tree_map_only tree_unflatten",
    },
    Feature.RECOMPUTED_RANDOM: {
        "torch._prims.rng_prims": "run_and_save_rng_state run_with_rng_state",
        "torch._subclasses.fake_tensor": "FakeTensorMode",
        "torch.fx.experimental.proxy_tensor": "ProxyTorchDispatchMode track_tensor_tree",
    },
    Feature.RESTORED_PLACES: {"torch._utils": "_get_restore_location"},
    Feature.SHARING: {"torch._C": "_set_conj _set_neg"},
    Feature.SYMMETRIC_MEMORY: {"torch._C._distributed_c10d": "_SymmetricMemory"},
    Feature.TENSOR_TYPES: {"torch": "_tensor_classes"},
    Feature.TRACED_FUNCTIONS: {
        "torch._dynamo.trace_rules": "BUILTIN_INLINE_WHEN_CALLED add=add_trace_rule"
    },
    Feature.TRITON_GRAPHS: {"torch._inductor.runtime.benchmarking": "register_benchmarker"},
    Feature.TYPED_STORAGES: {"torch": "_storage_classes", "torch.storage": "_LegacyStorage"},
}

# Members that opsmith calls, overrides or replaces, by the class; their names are `Class.member`.
_MEMBERS: Mapping[Feature | None, Mapping[str, str]] = {
    None: {
        "torch._inductor.codegen.common.DeviceOpOverrides": "aten_device_type current_stream",
        "torch._inductor.scheduler.Scheduler": "_has_multi_stream_nodes",
        "torch._C._distributed_c10d._SymmetricMemory": "get_mempool_allocator",
    },
    Feature.AOT_INDUCTOR: {
        "torch._inductor.codegen.common.DeviceOpOverrides": "cpp_aoti_device_guard "
        "cpp_aoti_stream_guard cpp_device_guard cpp_kernel_type cpp_stream_guard cpp_stream_type",
        "torch._inductor.codegen.cpp_wrapper_cpu.CppWrapperCpu": "_compatible_with_stableivalue "
        "_generate_end_jit _generate_kernel_call_helper add_device_include "
        "codegen_write_arg_with_large_length_string create generate generate_c_shim_extern_kernel_call "
        "generate_fallback_kernel generate_fallback_kernel_with_runtime_lookup "
        "generate_fallback_kernel_with_runtime_lookup_aot "
        "generate_fallback_kernel_with_runtime_lookup_boxed get_c_shim_func_name "
        "get_device_include_path_aot get_device_include_path_jit wrap_kernel_call",
    },
    Feature.COMPILED_GRAPHS: {
        "torch._inductor.output_code.OutputCode": "post_compile set_triton_bundle",
    },
    Feature.COMPRESSED_GRADIENTS: {
        "torch.nn.parallel.DistributedDataParallel": "_check_comm_hook",
    },
    Feature.CPP_KERNELS: {
        "torch._inductor.async_compile.AsyncCompile": "cpp_pybinding",
        "torch._inductor.codecache.CppPythonBindingsCodeCache": "_load_library_inner load_pybinding",
        "torch._inductor.scheduler.BaseSchedulerNode": "is_cpu",
        "torch._inductor.scheduler.Scheduler": "enter_context flush",
    },
    Feature.DEVICE_CONTEXTS: {
        "torch._dynamo.variables.ctx_manager.GenericDeviceVariable": "_exchange_fn _get_device_index_fn "
        "_maybe_exchange_fn",
    },
    Feature.DISTRIBUTED: {
        "torch._C._distributed_c10d.ProcessGroup": "_get_backend _register_backend _set_default_backend",
    },
    Feature.DYNAMO: {
        "torch._dynamo.device_interface.DeviceInterface": "current_device current_stream device_count "
        "exchange_device get_compute_capability get_device_properties get_raw_stream is_available "
        "is_bf16_supported is_dtype_supported is_triton_capable maybe_exchange_device memory_allocated "
        "raise_if_triton_unavailable set_device set_stream _set_stream_by_id stream synchronize",
    },
    Feature.FUSED_KERNELS: {
        "torch._inductor.codegen.common.CSE": "newvar",
        "torch._inductor.codegen.simd.SIMDKernel": "call_kernel codegen_kernel is_compatible load "
        "prepare_indexing reduction store store_reduction",
        "torch._inductor.codegen.simd.SIMDScheduling": "can_fuse create_tiling define_kernel "
        "get_backend_features get_tiling_and_scores",
    },
    Feature.GRAPHS: {"torch.accelerator.Graph": "capture_begin capture_end replay reset"},
    Feature.INDUCTOR: {
        "torch._inductor.codegen.common.DeviceOpOverrides": "device_guard "
        "import_get_raw_stream_as set_device synchronize",
        "torch._inductor.codegen.wrapper.PythonWrapperCodegen": "_generate_kernel_call_helper create "
        "generate wrap_kernel_call write_header",
        "torch._inductor.custom_graph_pass.CustomGraphModulePass": "__call__ uuid",
    },
    Feature.LAYOUTS: {"torch._inductor.graph.GraphLowering": "decide_layout_opt"},
    Feature.OPERATOR_CALLS: {"torch._ops.OpOverload": "_schema is_view namespace"},
    Feature.SYMMETRIC_MEMORY: {
        "torch._C._distributed_c10d._SymmetricMemory": "empty_strided_p2p rendezvous",
    },
}

# The first release, where that is not the oldest that opsmith is for, and what an earlier one has instead.
_SINCE: Mapping[str, tuple[Release, str]] = {
    "BUILTIN_INLINE_WHEN_CALLED": ((2, 12), ""),
    "CppWrapperCpu._generate_end_jit": ((2, 13), ""),
    "CppWrapperCpu.generate_fallback_kernel_with_runtime_lookup_boxed": ((2, 13), ""),
    "CppWrapperCpu.get_device_include_path_aot": ((2, 13), ""),
    "CppWrapperCpu.get_device_include_path_jit": ((2, 13), ""),
    "DeviceOpOverrides.aten_device_type": ((2, 15), ""),
    "DeviceOpOverrides.current_stream": ((2, 13), ""),
    "GenericDeviceVariable": ((2, 13), ""),
    "Graph": ((2, 12), ""),
    "Scheduler._has_multi_stream_nodes": ((2, 12), ""),
    "cast_flex_attention": ((2, 11), ""),
    "get_device_capability": ((2, 10), ""),
    "has_guarding_hint": ((2, 12), "has_hint"),
    "is_non_overlapping_and_dense_or_false": ((2, 11), ""),
    "register_device_context_manager": ((2, 13), ""),
    "register_benchmarker": ((2, 12), ""),
    "to_out_variant": ((2, 11), ""),
}
# The last one.
_UNTIL: Mapping[str, Release] = {"DEVICE_TO_ATEN": (2, 14)}


def _names() -> Iterator[TorchName]:
    for feature, by_module in _NAMES.items():
        for module, names in by_module.items():
            for each in names.split():
                attribute, _, name = each.partition("=")
                yield _named(name or attribute, module, attribute, feature)
    for feature, by_class in _MEMBERS.items():
        for qualified, members in by_class.items():
            module, _, cls = qualified.rpartition(".")
            for member in members.split():
                yield _named(f"{cls}.{member}", module, f"{cls}.{member}", feature)


def _named(name: str, module: str, attribute: str, feature: Feature | None) -> TorchName:
    # A member is as old as its class, unless it has a line of its own.
    since, before = _SINCE.get(name) or _SINCE.get(name.partition(".")[0]) or (None, "")
    return TorchName(name, module, attribute, feature, since, _UNTIL.get(name), before)


TORCH_NAMES: Mapping[str, TorchName] = {each.name: each for each in _names()}
"""Each name under which opsmith has it, members as ``Class.member``."""


def lost_in(release: Release) -> dict[Feature, TorchName]:
    """The features that are lost in ``release``, each with the first name that it lacks."""
    lost: dict[Feature, TorchName] = {}
    for each in TORCH_NAMES.values():
        if each.feature is not None and not each.attribute_in(release):
            lost.setdefault(each.feature, each)
    return lost
