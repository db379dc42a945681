"""Shape functions of lean kernels, in the place of PyTorch's meta kernels in Python, agree with these.

Every call of a shaped operator that PyTorch's own samples make on the device, forward and backward, is made
on the meta device too: dtypes, sizes and strides are the same, or those of the CPU where its kernels disagree
with PyTorch's meta kernels.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from beside_the_cpu import no_fallback
from device import ALONE, DEVICE, LOADED
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

# See ``device.py``.
pytestmark = pytest.mark.isolated(
    OPSMITH_PORTABLE_BACKEND=("sim", "portsim"), nightly=("portsim",), opinfo=True
)

SHAPED = {
    entry.meta.operator: entry.name for entry in LOADED.plan.entries if entry.meta is not None
}
NAMES = frozenset(
    "nn.functional.relu nn.functional.hardswish nn.functional.hardtanh abs isinf isnan logical_not "
    "logical_and logical_or logical_xor where masked_fill sum mean prod max min var std var_mean "
    "nn.functional.layer_norm native_layer_norm nn.functional.group_norm nn.functional.conv1d "
    "nn.functional.conv2d nn.functional.conv3d nn.functional.conv_transpose2d "
    "nn.functional.adaptive_avg_pool2d nn.functional.adaptive_avg_pool3d index_select index_put "
    "nn.functional.embedding sort stack repeat roll view_copy nn.functional.pixel_shuffle "
    "nn.functional.pixel_unshuffle nn.functional.pad _native_batch_norm_legit "
    "nn.functional.instance_norm nn.functional.unfold nn.functional.grid_sample "
    "nn.functional.embedding_bag nonzero masked_select fft.fft2 fft.rfftn fft.irfftn".split()
)
DTYPES = (torch.float32, torch.bfloat16, torch.int64)
CHECKED: Counter[str] = Counter()


class Beside(TorchDispatchMode):
    """Compares each call of a shaped operator with PyTorch's meta kernel."""

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        name = func.name().removeprefix("aten::")
        ours = func(*args, **kwargs)
        if name in SHAPED:
            CHECKED[name] += 1
            given = tree_map_only(Tensor, described, (args, kwargs))
            try:
                on_meta = shapes(func(*given[0], **given[1]))
            except RuntimeError:  # view_copy's takes what can be viewed only
                on_meta = []
            if shapes(ours) != on_meta:
                # The reference in Python can be wrong of strides where the CPU's kernel is not.
                moved = tree_map_only(Tensor, Tensor.cpu, (args, kwargs))
                on_cpu = shapes(func(*moved[0], **moved[1]))
                pairs = zip(shapes(ours), on_meta or on_cpu, on_cpu, strict=True)
                assert all(mine in (meta, cpu) for mine, meta, cpu in pairs), (name, given)
        return ours


def described(tensor: Tensor) -> Tensor:
    """The Tensor without its elements; a number stays what it is."""
    if tensor.device.type == "cpu":
        return tensor
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def shapes(returned: Any) -> list[Any]:
    every = list(returned) if isinstance(returned, tuple | list) else [returned]
    return [each is not None and (each.dtype, each.shape, each.stride()) for each in every]


def permuted(tensor: Tensor) -> Tensor:
    """The same elements in another order in memory."""
    if tensor.dim() == 4:
        return tensor.contiguous(memory_format=torch.channels_last)
    return tensor.transpose(0, -1).contiguous().transpose(0, -1) if tensor.dim() > 1 else tensor


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {"as sampled": lambda t: t, "permuted": permuted}


def samples(info: OpInfo, dtype: torch.dtype) -> Iterator[Any]:
    # Gradients in the default run in one dtype.
    grad = (
        dtype is torch.float32 or (ALONE and dtype.is_floating_point)
    ) and dtype in info.supported_backward_dtypes("cpu")
    yield from info.sample_inputs("cpu", dtype, requires_grad=grad)


def call_of(info: OpInfo, sample: Any, layout: Callable[[Tensor], Tensor]) -> Callable[[], Any]:
    def moved(tensor: Tensor) -> Tensor:
        device = layout(tensor.detach()).to(DEVICE)
        return device.requires_grad_(tensor.requires_grad)

    sample = sample.transform(lambda value: moved(value) if isinstance(value, Tensor) else value)
    return lambda: info.op(sample.input, *sample.args, **sample.kwargs)


def works_on_the_cpu(info: OpInfo, sample: Any) -> bool:
    try:
        info.op(sample.input, *sample.args, **sample.kwargs)
    except Exception:  # whatever: the sample is for another device
        return False
    return True


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "info", [i for i in op_db if i.name in NAMES], ids=lambda i: i.formatted_name
)
def test_shapes_are_those_of_pytorchs_meta_kernels(info: OpInfo, layout: str) -> None:
    for dtype in DTYPES:
        if dtype not in info.supported_dtypes("cpu"):
            continue
        for sample in samples(info, dtype):
            if not works_on_the_cpu(info, sample):
                continue
            call = call_of(info, sample, LAYOUTS[layout])
            with Beside():
                returned = [
                    each
                    for each in tree_leaves(call())
                    if isinstance(each, Tensor) and each.requires_grad
                ]
                if returned:
                    torch.autograd.backward(returned, [torch.ones_like(each) for each in returned])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_tensor_and_a_number(layout: str) -> None:
    """Python makes a Tensor of the number; PyTorch's optimisers call these."""
    shaped = [name for name in SHAPED if name.endswith(".Scalar") and "fill" not in name]
    assert len(shaped) == 10
    for name, dtype, number in itertools.product(shaped, (*DTYPES, torch.bool), (True, 2, 0.5)):
        base, _, overload = name.partition(".")
        operator = getattr(getattr(torch.ops.aten, base), overload)
        operand = LAYOUTS[layout](torch.ones(2, 3, 4, 2, dtype=dtype))
        try:
            operator(operand, number)
        except (RuntimeError, NotImplementedError):
            continue  # nor on the CPU
        with Beside():
            operator(operand.to(DEVICE), number)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_batch_norm_in_evaluation(layout: str) -> None:
    """The batch norm that torch.export makes of a module; PyTorch's samples have none."""
    operand = LAYOUTS[layout](torch.ones(2, 3, 4, 2)).to(DEVICE)
    ones = torch.ones(3, device=DEVICE)
    with Beside():
        torch.ops.aten._native_batch_norm_legit_no_training(
            operand, ones, ones, ones, ones, 0.1, 1e-5
        )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_copies_of_views(layout: str) -> None:
    operand = LAYOUTS[layout](torch.ones(2, 3, 4, 2)).to(DEVICE)
    aten = torch.ops.aten
    with Beside():
        aten.alias_copy(operand)
        aten.permute_copy(operand, [2, -1, 0, 1])
        aten.transpose_copy(operand, 0, -2)
        aten.t_copy(operand[0, 0])
        aten.expand_copy(operand[:, :1], (5, 2, 3, 4, 2))
        aten.slice_copy(operand, 2, 1, None, 2)
        aten.narrow_copy(operand, 1, 1, 2)
        aten.select_copy(operand, -1, -2)
        aten.squeeze_copy(operand[:1])
        aten.squeeze_copy.dim(operand[:, :1], 1)
        aten.squeeze_copy.dims(operand[:1, :1], [0, 1])
        aten.unsqueeze_copy(operand, -1)
        aten.diagonal_copy(operand, 1, 1, 2)
        aten.unfold_copy(operand, 2, 2, 1)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_writes_to_places(layout: str) -> None:
    operand = LAYOUTS[layout](torch.ones(2, 3, 4, 2)).to(DEVICE)
    places = torch.tensor([1, 0], device=DEVICE)
    with Beside():
        torch.ops.aten._index_put_impl(operand, [None, places], operand[:, :2], True, True)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_quotients_and_logits(layout: str) -> None:
    for dtype in DTYPES:
        operand = LAYOUTS[layout](torch.ones(2, 3, 4, 2, dtype=dtype)).to(DEVICE)
        with Beside():
            torch.logit(operand)
            torch.floor_divide(operand, operand[:1, 0])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_fill(layout: str) -> None:
    operand = LAYOUTS[layout](torch.ones(2, 3, 4, 2)).to(DEVICE)
    with Beside():
        torch.fill(operand, 2)
        torch.fill(operand, torch.tensor(2.0, device=DEVICE))


def test_masked_scatter() -> None:
    operand, mask = torch.ones(2, 3, device=DEVICE), torch.ones(3, dtype=torch.bool, device=DEVICE)
    with Beside():
        torch.masked_scatter(operand, mask, torch.ones(6, device=DEVICE))


def test_a_number_and_a_tensor() -> None:
    operand = torch.ones(2, 3, device=DEVICE)
    with Beside():
        torch.ops.aten.div.Scalar_mode(operand, 2, rounding_mode="floor")
        torch.remainder(5, operand)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_shifts_by_a_number(layout: str) -> None:
    operand = LAYOUTS[layout](torch.ones(2, 1, 4, 2, dtype=torch.int64)).to(DEVICE)
    with Beside():
        torch.bitwise_left_shift(operand, 2)
        torch.bitwise_right_shift(operand, 2)


def test_new_running_statistics() -> None:
    x, statistic = torch.ones(4, 3, 2, device=DEVICE), torch.ones(6, device=DEVICE)[::2]
    with Beside():
        for training in (True, False):
            torch.ops.aten._native_batch_norm_legit_functional(
                x, None, None, statistic, statistic, training, 0.1, 1e-5
            )


def test_every_operator_was_seen() -> None:
    assert set(SHAPED) - set(CHECKED) == set()


def test_no_call_enters_python() -> None:
    """Nothing is found of PyTorch's meta kernels in Python where the plan has its own function."""
    x = torch.ones(2, 4, device=DEVICE)

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            seen.append(func)
            return func(*args, **(kwargs or {}))

    seen: list[Any] = []
    with no_fallback(), Counting():
        torch.native_layer_norm(x, [4], None, None, 1e-5)
    # PyTorch's meta kernel is a decomposition into some twenty operators on meta tensors.
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda x: torch.native_layer_norm(x, [3], None, None, 1e-5),
            "Given normalized_shape=[3], expected input with shape [*, 3], but got input of size[2, 4]",
        ),
        (
            lambda x: torch.native_layer_norm(x, [4], x[0, :2], None, 1e-5),
            "Expected weight to be of same shape as normalized_shape, but got weight of shape [2] and "
            "normalized_shape = [4]",
        ),
        (
            lambda x: torch.max(x[:0]),
            "max(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim "
            "with the 'dim' argument.",
        ),
        (
            lambda x: x.repeat(2),
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor",
        ),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)  # fmt: skip
def test_what_atens_kernels_refuse_is_refused_in_their_words(
    call: Callable[[Tensor], Any], text: str
) -> None:
    x = torch.ones(2, 4)
    for device in ("cpu", DEVICE):
        with pytest.raises(RuntimeError) as caught:
            call(x.to(device))
        assert str(caught.value).splitlines()[0] == text


def test_statistics_of_empty_tensors() -> None:
    x = torch.ones(0, 4, device=DEVICE)
    _, mean, _ = torch.native_layer_norm(x, [4], None, None, 1e-5)
    assert mean.shape == (0, 1)
    assert math.isnan(torch.mean(x).item())
