"""``torch.compile`` on the device: what Dynamo and Inductor have to be told of it.

Neither is imported for that: each of their modules is told once it is.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from opsmith.integrations.imported import when_imported


def _inductor() -> ModuleType:
    """What tells Inductor.  A module that it imports calls back here while imported: that comes first."""
    import torch._inductor.codegen.common  # noqa: F401  # for its import alone

    from opsmith.runtime.compile import inductor

    return inductor


def serve_compilers(device: str, library: Path) -> None:
    """Has ``torch.compile`` know ``device``, whose backend's library is ``library``."""

    def tell_interface(_: ModuleType) -> None:
        from opsmith.runtime.compile.device_interface import register_interface

        register_interface(device)

    def tell_tracing(_: ModuleType) -> None:
        from opsmith.runtime.compile.device_interface import trace_calls_only

        trace_calls_only()

    def tell_contexts(_: ModuleType) -> None:
        from opsmith.runtime.compile.device_interface import trace_device_contexts

        trace_device_contexts()

    def tell_code_generation(_: ModuleType) -> None:
        _inductor().register_code_generation(device, library)

    def tell_decompositions(_: ModuleType) -> None:
        _inductor().keep_operators(device)

    def tell_layouts(_: ModuleType) -> None:
        _inductor().keep_layouts(device)

    def tell_graphs(_: ModuleType) -> None:
        from opsmith.runtime.compile.called_graphs import call_what_is_not_compiled

        call_what_is_not_compiled(device)

    def tell_flex_attention(module: ModuleType) -> None:
        from opsmith.runtime.compile.flex_attention import let_through

        let_through(module, device)

    def tell_its_operators(module: ModuleType) -> None:
        from opsmith.runtime.compile.flex_attention import calculate_by_operators

        calculate_by_operators(module, device)

    def tell_out_variants(module: ModuleType) -> None:
        from opsmith.runtime.compile.out_variants import call_in_the_order_of_schemas

        call_in_the_order_of_schemas(module)

    import torch

    torch.ops.opsmith.run_packages()  # AOTInductor's
    when_imported("torch._library._out_variant", tell_out_variants)
    when_imported("torch.nn.attention.flex_attention", tell_flex_attention)
    when_imported("torch._higher_order_ops.flex_attention", tell_its_operators)
    when_imported("torch._dynamo.device_interface", tell_interface)
    when_imported("torch._dynamo.trace_rules", tell_tracing)
    when_imported("torch._dynamo.variables.ctx_manager", tell_contexts)
    when_imported("torch._inductor.codegen.common", tell_code_generation)
    when_imported("torch._inductor.decomposition", tell_decompositions)
    when_imported("torch._inductor.graph", tell_layouts)
    when_imported("torch._inductor.compile_fx", tell_graphs)
