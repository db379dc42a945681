"""Sizes and strides of fake results, where PyTorch asks whether the device is the CPU.

Some of PyTorch's Python rules for ``FakeTensor`` say what its kernels on the CPU return, and for any other
device what CUDA's do: saved statistics of another size, other strides.  An out-of-tree device returns what
the CPU does: its fallback runs the CPU's kernels, the libraries that come with opsmith follow them, and
``opsmith conform`` asks it of a vendor's.  :mod:`opsmith.runtime.load` calls
:func:`shape_fakes_as_on_cpu`; memory formats of convolutions are
:mod:`~opsmith.runtime.patches.fake_convolutions`'s.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_ASK_FOR_THE_CPU = (
    "_embedding_bag",
    "_embedding_bag_forward_only",
    "nonzero_static",
    "pixel_shuffle",
)


def shape_fakes_as_on_cpu(device_type: str) -> None:
    """Has fake results on ``device_type`` shaped as the CPU's are."""
    import torch

    from opsmith.schema.torch_names import fake_impls
    from opsmith.schema.torch_names import reference_decompositions as decompositions

    implementations = fake_impls.op_implementations_dict
    for name in _ASK_FOR_THE_CPU:
        operator = getattr(torch.ops.aten, name).default
        implementations[operator] = _as_on_cpu(implementations.get(operator), device_type)
    operator = torch.ops.aten.native_group_norm.default
    implementations[operator] = _in_memory_format_of_input(
        implementations.get(operator), device_type
    )
    # The decompositions of all operators that normalize a batch call this one by its name.
    decompositions.native_batch_norm_helper = _with_statistics_of_the_cpu(
        decompositions.native_batch_norm_helper, device_type
    )


def _as_on_cpu(rule: Any, device_type: str) -> Any:
    """``rule``, if there is one; on ``device_type`` what comes of it for the CPU."""

    def fake(fake_mode: Any, operator: Any, *arguments: Any, **options: Any) -> Any:
        import torch

        from opsmith.schema.torch_names import FakeTensor, tree_leaves, tree_map_only

        given = [each for each in tree_leaves(arguments) if isinstance(each, FakeTensor)]
        if not given or given[0].fake_device.type != device_type:
            return rule(fake_mode, operator, *arguments, **options) if rule else NotImplemented

        def moved(device: torch.device, values: Any) -> Any:
            return tree_map_only(FakeTensor, functools.partial(_on, fake_mode, device), values)

        on_cpu = moved(torch.device("cpu"), (arguments, options))
        with fake_mode:
            results = operator(*on_cpu[0], **on_cpu[1])
        return moved(given[0].fake_device, results)

    return fake


def _in_memory_format_of_input(rule: Any, device_type: str) -> Any:
    """``rule``, if there is one; on ``device_type`` its first result has the input's memory format, which
    kernels keep.  PyTorch 2.14's own rule says contiguous, on the CPU too.
    """

    def fake(fake_mode: Any, operator: Any, input: Any, *arguments: Any, **options: Any) -> Any:
        from opsmith.schema.torch_names import (
            FakeTensor,
            in_kernel_invocation_manager,
            suggest_memory_format,
        )

        if input.fake_device.type != device_type:
            return (
                rule(fake_mode, operator, input, *arguments, **options) if rule else NotImplemented
            )
        with in_kernel_invocation_manager(fake_mode):
            first, *others = operator(input, *arguments, **options)
            first = first.contiguous(memory_format=suggest_memory_format(input))
        return tuple(FakeTensor(fake_mode, each, input.fake_device) for each in (first, *others))

    return fake


def _on(fake_mode: Any, device: torch.device, tensor: Any) -> Any:
    """``tensor``, as if it were on ``device``."""
    import torch

    from opsmith.schema.torch_names import FakeTensor, in_kernel_invocation_manager

    with in_kernel_invocation_manager(fake_mode):
        meta = torch.ops.aten.alias.default(tensor)
    return FakeTensor(fake_mode, meta, device)


def _with_statistics_of_the_cpu(helper: Any, device_type: str) -> Any:
    """The batch norm of PyTorch's decompositions with what the CPU saves for the gradient: nothing that the
    running statistics say, and all in the dtype of the input.
    """

    @functools.wraps(helper)
    def native_batch_norm_helper(
        input: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        running_mean: torch.Tensor | None,
        running_var: torch.Tensor | None,
        training: bool,
        *rest: Any,
    ) -> Any:
        output, *saved, new_mean, new_var = helper(
            input, weight, bias, running_mean, running_var, training, *rest
        )
        if input.device.type == device_type:
            saved = [each.to(input.dtype) if training else input.new_zeros((0,)) for each in saved]
        return output, *saved, new_mean, new_var

    return native_batch_norm_helper
