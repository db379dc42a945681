"""How a convolution's results lie in the device's memory, for tensors without data.

What is traced for ``torch.compile`` relies on the strides of ``FakeTensor``: a ``view`` of what is thought
to be contiguous fails when it runs.  For an out-of-tree device PyTorch takes all results of convolutions to
be contiguous, whereas the fallback and the libraries that come with opsmith keep channels-last, as the CPU
does.  A vendor's kernel may do either.  So the device is asked, with a convolution of a few elements.
:mod:`opsmith.runtime.load` calls :func:`lay_out_fake_convolutions`.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_CHANNELS_LAST_RANKS = (4, 5)


def lay_out_fake_convolutions(device_type: str) -> None:
    """Has fake convolutions on ``device_type`` and their gradients keep channels-last where real ones do."""
    import torch

    from opsmith.schema.torch_names import fake_impls

    implementations = fake_impls.op_implementations_dict
    for operator in (
        torch.ops.aten.convolution.default,
        torch.ops.aten.convolution_backward.default,
    ):
        implementations[operator] = _laid_out(implementations[operator], device_type)


def _laid_out(fake: Any, device_type: str) -> Any:
    @functools.wraps(fake)
    def convolution(fake_mode: Any, operator: Any, *arguments: Any, **options: Any) -> Any:
        from opsmith.schema.torch_names import suggest_memory_format

        results = fake(fake_mode, operator, *arguments, **options)
        given = _by_name(operator, arguments, options)
        first, weight = given["input"], given["weight"]
        if first.fake_device.type != device_type or first.dim() not in _CHANNELS_LAST_RANKS:
            return results
        if not (_is_sized(first) and _is_sized(weight)):
            return results  # as PyTorch's own: contiguous
        formats = _formats(
            operator,
            first.fake_device,
            first.dtype,
            suggest_memory_format(first),
            suggest_memory_format(weight),
            first.dim(),
            given["transposed"],
        )
        each = (results,) if operator._schema.name == "aten::convolution" else results
        laid_out = tuple(
            fake if fake is None or format is None else fake.contiguous(memory_format=format)
            for fake, format in zip(each, formats, strict=True)
        )
        return laid_out[0] if len(laid_out) == 1 else laid_out

    return convolution


def _by_name(operator: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
    names = (argument.name for argument in operator._schema.arguments)
    return dict(zip(names, arguments, strict=False)) | options


def _is_sized(tensor: torch.Tensor) -> bool:
    from opsmith.schema.torch_names import has_guarding_hint

    return all(has_guarding_hint(size) for size in tensor.shape)


@functools.cache
def _formats(
    operator: Any,
    device: torch.device,
    dtype: torch.dtype,
    first: torch.memory_format,
    weight: torch.memory_format,
    rank: int,
    transposed: bool,
) -> tuple[torch.memory_format | None, ...]:
    """The formats of the results on the device; None where it does not matter, or the device cannot say."""
    import torch

    from opsmith.schema.torch_names import _disable_current_modes, suggest_memory_format

    nothing = (None,) * len(operator._schema.returns)
    if first is weight is torch.contiguous_format:
        return nothing
    spatial = rank - 2
    with _disable_current_modes(), torch.no_grad():
        image = torch.zeros(2, 2, *(2,) * spatial, dtype=dtype, device=device)
        kernel = torch.zeros(2, 2, *(2,) * spatial, dtype=dtype, device=device)
        operands = [image.contiguous(memory_format=first), kernel.contiguous(memory_format=weight)]
        ones, zeros = [1] * spatial, [0] * spatial
        # Either way the result's edges have 3 elements.
        geometry = [ones, zeros if transposed else ones, ones, transposed, zeros, 1]
        try:
            if len(nothing) == 1:
                results = [operator(*operands, None, *geometry)]
            else:
                gradient = torch.zeros(2, 2, *(3,) * spatial, dtype=dtype, device=device)
                results = operator(gradient, *operands, [2], *geometry, [True] * 3)
        except RuntimeError:  # a policy that denies the fallback, a dtype that is not served
            return nothing
    return tuple(
        suggest_memory_format(result) if result.dim() == rank else None for result in results
    )
