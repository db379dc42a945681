"""The names of ``torch.cuda`` and ``torch.xpu`` that ``torch.<name>`` leaves out, each with its reason.

A program that asks with ``hasattr`` is told no; one that uses such a name gets :class:`NameLeftOut`, which
is an ``AttributeError`` with the reason.
"""

from __future__ import annotations

from opsmith.errors import NameLeftOut
from opsmith.schema.torch_names import Feature, missing_features

_ALLOCATOR = "opsmith's caching allocator serves the device; OPSMITH_ALLOC_CONF sets it up"
_GRAPHS = "a driver's graphs cannot be looked into"
_NVIDIA = "it belongs to a library of NVIDIA's"

_REASONS = {
    "change_current_allocator": _ALLOCATOR,
    "caching_allocator_alloc": _ALLOCATOR,
    "caching_allocator_delete": _ALLOCATOR,
    "caching_allocator_enable": _ALLOCATOR,
    "caching_allocator_disabled": _ALLOCATOR,
    "list_gpu_processes": "a driver cannot tell which processes use it",
    "get_sync_debug_mode": "a driver cannot tell which calls make the host wait",
    "set_sync_debug_mode": "a driver cannot tell which calls make the host wait",
    "ExternalStream": "a stream is one of opsmith's; get_stream_from_external() finds it by its address",
    "DeferredCudaCallError": "nothing waits for a first use: the device is there once it is loaded",
    "export_dot": _GRAPHS,
    "export_graph_data": _GRAPHS,
    "graph_annotations": _GRAPHS,
    "GreenContext": "a driver cannot divide a device",
    "profiler": "torch.profiler shows the device's work",
    "sparse": "torch.sparse makes sparse tensors of any device",
    **dict.fromkeys(
        (
            "CudaError",
            "check_error",
            "cudaStatus",
            "cudart",
            "current_blas_handle",
            "current_solver_handle",
            "has_magma",
            "jiterator",
            "nccl",
            "tunable",
        ),
        _NVIDIA,
    ),
}

# Of names that carry the device's own, such as torch.cuda.CUDAGraph and torch.xpu.XPUPluggableAllocator; with
# the feature without which no device has any.
_REASONS_BY_ENDING = {
    "Graph": ("a graph has the name of its own device", Feature.GRAPHS),
    "PluggableAllocator": (_ALLOCATOR, None),
}

# Types that are missing where the installed torch lacks what they are made of.
_ENDINGS = {
    Feature.TENSOR_TYPES: "Tensor",
    Feature.TYPED_STORAGES: "Storage",
}


def missing_name(module: str, name: str) -> AttributeError:
    """The error for ``name`` of ``torch.<name>`` or of a submodule, which does not exist."""
    device_type = module.split(".")[1]
    reason = _REASONS.get(name)
    for feature, endings in _ENDINGS.items():
        if feature in missing_features and name.endswith(endings):
            reason = missing_features[feature].message
    if reason is None:
        for ending, (of_ending, of_feature) in _REASONS_BY_ENDING.items():
            own, found, _ = name.partition(ending)
            if found and own.lower() in (device_type, "cuda", "xpu"):
                lost = missing_features.get(of_feature) if of_feature else None
                reason = lost.message if lost else of_ending
    if reason is None:
        return AttributeError(f"module {module!r} has no attribute {name!r}")
    return NameLeftOut(
        f"{module} has no `{name}`: {reason}",
        remedy=f'ask first, hasattr({module}, "{name}"), and do without it',
    )
