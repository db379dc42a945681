"""``torch.compile`` on the device: what Dynamo and Inductor have to be told of it.

Neither is imported for that: each of their modules is told once it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

from opsmith.runtime.integrations.imported import when_imported
from opsmith.schema.torch_names import Feature, module_of, set_up


@dataclass(frozen=True)
class _Hook:
    """A ``function`` of ``module``, called with the device once PyTorch's module of ``name`` is imported."""

    feature: Feature
    name: str
    module: str
    function: str

    def tell(self, device: str) -> None:
        if self.module == "inductor":
            # A module that it imports calls back here while imported: that comes first.
            import_module(module_of("register_backend_for_device"))
        getattr(import_module(f"{__name__}.{self.module}"), self.function)(device)


_HOOKS = (
    _Hook(
        Feature.CUSTOM_OUT_VARIANTS, "to_out_variant", "out_variants", "keep_the_order_of_schemas"
    ),
    _Hook(Feature.FLEX_ATTENTION, "validate_flex_attention", "flex_attention", "let_through"),
    _Hook(Feature.FLEX_ATTENTION, "sdpa_dense", "flex_attention", "calculate_by_operators"),
    _Hook(
        Feature.FLEX_AUTOCAST, "flex_attention_operator", "flex_attention", "cast_under_autocast"
    ),
    _Hook(Feature.DYNAMO, "DeviceInterface", "device_interface", "register_interface"),
    _Hook(Feature.TRACED_FUNCTIONS, "add_trace_rule", "device_interface", "trace_calls_only"),
    _Hook(
        Feature.DEVICE_CONTEXTS,
        "GenericDeviceVariable",
        "device_interface",
        "trace_device_contexts",
    ),
    _Hook(Feature.RECOMPUTED_RANDOM, "run_and_save_rng_state", "recomputed_random", "draw_again"),
    _Hook(Feature.INDUCTOR, "register_backend_for_device", "inductor", "register_code_generation"),
    _Hook(Feature.KEPT_OPERATORS, "inductor_decompositions", "inductor", "keep_operators"),
    _Hook(Feature.CPP_KERNELS, "use_scatter_fallback", "window_cpp", "scatter_as_on_cpu"),
    _Hook(Feature.LAYOUTS, "GraphLowering", "inductor", "keep_layouts"),
    _Hook(
        Feature.COMPILED_GRAPHS,
        "_compile_fx_inner",
        "called_graphs",
        "call_what_is_not_compiled",
    ),
)


def serve_compilers(device: str) -> None:
    """Has ``torch.compile`` know ``device``."""
    import torch

    torch.ops.opsmith.run_packages()  # AOTInductor's
    for hook in _HOOKS:

        def tell(_: ModuleType, hook: _Hook = hook) -> None:
            set_up(hook.feature, hook.tell, device)

        when_imported(module_of(hook.name), tell)
