"""Which names a device may have.

The name becomes a C++ namespace (``at::<name>``), a module (``torch.<name>``), methods of Tensor, Module and
PackedSequence (``<name>``, ``is_<name>``) and a type of ``torch.device``: what has a meaning in one of
these places is refused.  Operators are the catalogue's to tell.  Called by ``backend``.
"""

from __future__ import annotations

import keyword
import re

from opsmith.errors import Location, SyntaxInvalid
from opsmith.schema import CPP_WORDS

_NAME = re.compile(r"[a-z][a-z0-9_]*")

_DEVICE_TYPES = frozenset(
    """
    cpu cuda fpga hip hpu ipu lazy maia meta mkldnn mps mtia privateuseone ve
    vulkan xla xpu
    """.split()
)
"""The types of c10/core/DeviceType.h that have code somewhere; ``opencl`` is free for those who bring it."""

_IN_PYTHON = frozenset(
    """
    accelerator add_module amp ao apply apply_ are_deterministic_algorithms_enabled as_subclass
    as_tensor asarray autocast autocast_decrement_nesting autocast_increment_nesting autograd backends
    backward batch_sizes bcomplex32 bfloat16 bit bits16 bits1x8 bits2x4 bits4x2 bits8 broadcast_shapes
    buffers builtins byte call_super_init cdouble cfloat channels_last channels_last_3d children
    cholesky classes classproperty clear_autocast_cache coalesced compile compiled_with_cxx11_abi
    compiler complex128 complex32 complex64 cond const_data_ptr contiguous_format contrib count cpp
    ctypes data_ptr default_generator device dim dim_order distributed distributions dsmm dtype
    dump_patches e eig element_size enable_grad eval extra_repr fft finfo float16 float32
    float4_e2m1fn_x2 float64 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu
    floating_point foreach fork forward from_dlpack from_numpy frombuffer func functional functools
    futures fx get_autocast_cpu_dtype get_autocast_dtype get_autocast_gpu_dtype get_autocast_ipu_dtype
    get_autocast_xla_dtype get_buffer get_default_device get_default_dtype
    get_deterministic_debug_mode get_device get_device_module get_extra_state get_file_path
    get_float32_matmul_precision get_num_interop_threads get_num_threads get_parameter get_rng_state
    get_submodule glob grad grad_dtype grad_fn half has_lapack has_mkl has_names has_openmp
    has_spectral hsmm hub iinfo import_ir_module import_ir_module_from_buffer importlib inf inference
    inference_mode init_num_threads initial_seed inspect int1 int16 int2 int3 int32 int4 int5 int6
    int64 int7 int8 is_anomaly_check_nan_enabled is_anomaly_enabled is_autocast_cache_enabled
    is_autocast_cpu_enabled is_autocast_enabled is_autocast_ipu_enabled is_autocast_xla_enabled
    is_contiguous is_cpu is_cuda is_deterministic_algorithms_warn_only_enabled is_grad_enabled
    is_inference_mode_enabled is_ipu is_maia is_meta is_mkldnn is_mps is_mtia is_nested is_quantized
    is_shared is_sparse is_sparse_csr is_storage is_tensor is_vulkan is_warn_always_enabled is_xla
    is_xpu itemsize jagged jit layout leaf legacy_contiguous_format library linalg load
    load_state_dict lobpcg lstsq lu manual_seed map2_ map_ masked math matrix_rank memory_format
    merge_type_from_type_comment module_load modules monitor multiprocessing name named_buffers
    named_children named_modules named_parameters names nan nativert nbytes ndim ndimension nelement
    nested new_tensor newaxis nn no_grad numa numel numpy onnx ops optim os overrides package
    parameters parse_ir parse_schema parse_type_comment pca_lowrank per_channel_affine
    per_channel_affine_float_qparams per_channel_symmetric per_tensor_affine per_tensor_symmetric pi
    pinned platform prepare_multiprocessing_environment preserve_format profiler
    profiler_allow_cudagraph_cupti_lazy_reinit_cuda12 qint32 qint8 qr quantization quantized
    quasirandom quint2x4 quint4x2 quint8 read_vitals register_backward_hook register_buffer
    register_forward_hook register_forward_pre_hook register_full_backward_hook
    register_full_backward_pre_hook register_hook register_load_state_dict_post_hook
    register_load_state_dict_pre_hook register_module register_parameter
    register_post_accumulate_grad_hook register_state_dict_post_hook register_state_dict_pre_hook
    reinforce requires_grad return_types saddmm same_size save seed serialization set_anomaly_enabled
    set_autocast_cache_enabled set_autocast_cpu_dtype set_autocast_cpu_enabled set_autocast_dtype
    set_autocast_enabled set_autocast_gpu_dtype set_autocast_ipu_dtype set_autocast_ipu_enabled
    set_autocast_xla_dtype set_autocast_xla_enabled set_default_device set_default_dtype
    set_default_tensor_type set_deterministic_debug_mode set_extra_state set_float32_matmul_precision
    set_flush_denormal set_grad_enabled set_num_interop_threads set_num_threads set_printoptions
    set_rng_state set_submodule set_to set_vital set_warn_always shape share_memory share_memory_
    shared signal solve sorted_indices sparse sparse_bsc sparse_bsr sparse_coo sparse_csc sparse_csr
    special spmm state_dict storage storage_offset storage_type strided svd_lowrank sym_float
    sym_fresh_size sym_int sym_ite sym_max sym_min sym_not sym_sqrt sym_sum symeig sys tensor testing
    textwrap thread_safe_generator threading to_dlpack to_empty to_sparse_coo tolist torch
    torch_version train training type types typing typing_extensions uint1 uint16 uint2 uint3 uint32
    uint4 uint5 uint6 uint64 uint7 uint8 unify_type_list unique unravel_index unsorted_indices
    untyped_storage use_deterministic_algorithms utils version vitals_enabled vmap wait warnings
    while_loop windows zero_grad
    """.split()
)
"""Names in ``torch`` and on its classes, operators aside, of any release: tests compare them with one."""

_IN_CPP = frozenset(
    """
    assert_no_internal_overlap assert_no_overlap assert_no_partial_overlap at blas c10 caching caffe2
    check_dim_size compositeexplicitautograd compositeexplicitautogradnonfunctional
    compositeimplicitautograd compositeimplicitautogradnestedtensor cpp_custom_type_hack cudnn detail
    divup expand_inplace expand_outplace for_blob from_blob from_blob_quantized_per_channel_affine
    from_blob_quantized_per_tensor_affine functionalization functorch geometry_is_contiguous
    get_dtensor_allow_implicit_replication get_overlap_status get_qtensorimpl get_record_function_tls_
    get_tensor_base get_thread_num globalcontext has_internal_overlap impl in_parallel_region indexing
    infer_dense_strides infer_size infer_size_dimvector infer_size_symdimvector infer_size_symint
    internal interpreter intraop_default_num_threads intraop_launch intraop_launch_future is_custom_op
    launch make_per_channel_affine_quantizer make_per_tensor_affine_quantizer make_unknown_quantizer
    maybe_data_ptr metal mobile native new_qtensor new_shm_fd_storage opsmith parallel_for
    parallel_reduce print pybind11 redispatch scaled sequence_number serialize
    set_dtensor_allow_implicit_replication set_printoption_sci_mode set_quantizer_
    set_record_function_seed_for_testing set_record_function_tls_ storage_copy str2backend
    str2cudnn_depthwise str2op str2precision symint templates tracer transformation vec vml
    """.split()
)
"""Namespaces and functions in the namespace ``at``, or such as its headers name without a leading ``::``."""


def check_device_name(name: str, location: Location | None) -> None:
    """Raises :class:`SyntaxInvalid` for what cannot name a device; ``location`` is where a file says so."""
    if not _NAME.fullmatch(name) or name in _DEVICE_TYPES:
        raise SyntaxInvalid(
            f"`{name}` cannot name a device",
            location=location,
            remedy="use lower-case letters, digits and _, and none of torch's own device names",
        )
    if obstacle := _obstacle(name):
        raise SyntaxInvalid(
            f"`{name}` cannot name a device: {obstacle}",
            location=location,
            remedy=f"choose another name, e.g. `{name}chip`",
        )


def _obstacle(name: str) -> str:
    if name in CPP_WORDS:
        return f"it is a word of C++, and generated code has a namespace `at::{name}`"
    if keyword.iskeyword(name):
        return f"it is a word of Python, and programs write `torch.{name}`"
    if name in _IN_PYTHON:
        return (
            f"PyTorch has something else called `torch.{name}`, or a method `{name}` or `is_{name}`"
        )
    if name in _IN_CPP:
        return f"PyTorch has something else called `at::{name}` in C++"
    return ""
