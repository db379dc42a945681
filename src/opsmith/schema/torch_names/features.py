"""Parts of opsmith that stand on names of PyTorch's own, which a release may lack.

:func:`set_up` runs one step of a set-up, and does without it where such a name is missing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from typing import ParamSpec

from opsmith.errors import TorchNameMissing

_log = logging.getLogger("opsmith")

P = ParamSpec("P")


class Feature(Enum):
    """A part of opsmith; the value says what is lost without it."""

    PLAN = "no backend is planned or built"
    LOADING = "no backend is loaded"
    AOT_INDUCTOR = "`cpp_wrapper` and AOTInductor write no graph for the device"
    AUTOCAST = "`torch.cond` and other higher-order operators fail under the device's autocast"
    COMPILED_GRAPHS = "a graph that Inductor cannot compile raises its error"
    COMPRESSED_GRADIENTS = "DistributedDataParallel refuses `bf16_compress_hook` on the device"
    CONFORMANCE = "`opsmith conform` does not run"
    CPP_KERNELS = "`inductor: cpp` compiles no graph"
    CUSTOM_OUT_VARIANTS = (
        "compiled graphs may call out variants of custom operators with arguments in a wrong order"
    )
    DATA_PARALLEL = "`torch.nn.DataParallel` does not take the device"
    DEVICE_CONTEXTS = "`with torch.<device>.device(…)` breaks the graph of a compiled function"
    DISPATCH_KEYS = "`opsmith explain` and `opsmith trace` show no dispatch keys"
    DISTRIBUTED = "`torch.distributed` has no backend for the device"
    DYNAMO = "`torch.compile` does not know the device"
    EAGER_KERNELS = "`inductor: eager_kernels` compiles no graph"
    FAKE_RESULTS = (
        "traced programs have CUDA's shapes and strides where those of the device are the CPU's"
    )
    FLEX_ATTENTION = "FlexAttention rejects tensors on the device"
    FLEX_AUTOCAST = "FlexAttention does not cast its operands under the device's autocast"
    FUSED_KERNELS = "compiled graphs fuse nothing on devices without a host window"
    GRAPH_BREAKS = "graph breaks are not reported"
    GRAPHS = '`torch.<device>` records no graphs, and `mode="reduce-overhead"` replays none'
    INDUCTOR = "Inductor generates no code for the device"
    KEPT_OPERATORS = "Inductor decomposes operators that the backend has kernels for"
    LAYOUTS = "Inductor may change the memory formats of convolutions"
    OPCHECK = "`torch.library.opcheck` refuses arguments on the device that require a gradient"
    OPERATOR_CALLS = "compiled graphs and programs for ExecuTorch are not made"
    PYTHON_OPERATORS = "operators from Python are not differentiated"
    PYTREE = "compiled graphs, conformance tests and programs for ExecuTorch are not made"
    RECOMPUTED_RANDOM = (
        "compiled graphs refuse random operators that activation checkpointing runs again"
    )
    RESTORED_PLACES = (
        "torchao's tensors that are loaded to the device without an index do not meet others"
    )
    SHARING = "conjugated and negated tensors cannot be sent to another process"
    SYMMETRIC_MEMORY = "symmetric memory of the device is refused without a reason"
    TENSOR_TYPES = "`torch.<device>.FloatTensor` and its like are missing"
    TRACED_FUNCTIONS = (
        "Dynamo traces the functions of `torch.<device>` outside of compiled functions too"
    )
    TRITON_GRAPHS = "`inductor: triton` compiles no graph"
    TYPED_STORAGES = "`torch.<device>.FloatStorage` and its like are missing"


missing_features: dict[Feature, TorchNameMissing] = {}
"""The features that this process does without, each with the first name that is missing for it."""


def set_up(feature: Feature, step: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
    """Calls ``step``, which sets up ``feature``; notes where the installed torch lacks a name for it."""
    try:
        step(*args, **kwargs)
    except TorchNameMissing as error:
        if feature is Feature.LOADING:
            raise
        # A traceback keeps alive what the frames hold in which this happened to be needed: Tensors, say.
        error.__cause__ = error.__context__ = error.__traceback__ = None
        missing_features.setdefault(feature, error)
        _log.info("%s: %s", feature.value, error.message)
