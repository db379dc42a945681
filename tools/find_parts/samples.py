"""Calls that make PyTorch decompose operators: OpInfo's samples, with ``out=``, in place and backward.

What OpInfo never calls is written by hand in ``BY_HAND``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.testing._internal import common_methods_invocations as invocations
from torch.utils._pytree import tree_flatten, tree_map

_DTYPES = (torch.float32, torch.int64, torch.complex64, torch.bool)
_SAMPLES = 12

Call = Callable[[], Any]


def databases() -> list[Any]:
    """All of OpInfo's entries, those of the operators on lists included."""
    foreach = [
        name for name in dir(invocations) if name.startswith("foreach_") and name.endswith("_op_db")
    ]
    return [*invocations.op_db, *(info for name in foreach for info in getattr(invocations, name))]


def calls_of(info: Any, device: str) -> Iterator[Call]:
    """Calls of the entry ``info``, of its variants and of its aliases, on ``device``."""
    for dtype in _DTYPES:
        if dtype not in info.supported_dtypes("cpu"):
            continue
        for differentiated in (False, True):
            if differentiated and not (dtype.is_floating_point and info.supports_autograd):
                continue
            yield from _sample_calls(info, device, dtype, differentiated)


def _sample_calls(
    info: Any, device: str, dtype: torch.dtype, differentiated: bool
) -> Iterator[Call]:
    try:
        samples = info.sample_inputs(device, dtype, requires_grad=differentiated)
        for _, sample in zip(range(_SAMPLES), samples, strict=False):
            if differentiated:
                yield lambda s=sample: _backward(info.op(s.input, *s.args, **s.kwargs))
            else:
                yield from _variants(info, info.supports_out, sample)
                for alias in info.aliases:
                    yield from _variants(alias, info.supports_out, sample)
    except (NotImplementedError, RuntimeError):
        return  # the device has no sparse Tensors


def _variants(info: Any, supports_out: bool, sample: Any) -> Iterator[Call]:
    def call(**out: Any) -> Any:
        return info.op(sample.input, *sample.args, **sample.kwargs, **out)

    yield call
    if supports_out:
        yield lambda: call(out=tree_map(_empty_like, call()))
    if info.inplace_variant is not None:
        yield lambda: info.inplace_variant(
            tree_map(_copied, sample.input), *sample.args, **sample.kwargs
        )


def _backward(result: Any) -> None:
    for leaf in tree_flatten(result)[0]:
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
            leaf.backward(torch.ones_like(leaf), retain_graph=True)


def _empty_like(leaf: Any) -> Any:
    return torch.empty_like(leaf) if isinstance(leaf, torch.Tensor) else leaf


def _copied(leaf: Any) -> Any:
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf


def run(calls: Iterable[Call], record: Callable[[bool], None]) -> None:
    """Runs ``calls`` while recording; what the CPU refuses is no sample."""
    for call in calls:
        torch.manual_seed(0)
        record(True)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                call()
        except Exception:
            continue
        finally:
            record(False)


def calls_by_hand(device: str) -> Iterator[Call]:
    """Calls of what no OpInfo reaches."""

    def floats(*shape: int) -> torch.Tensor:
        return torch.linspace(0.1, 0.9, torch.Size(shape).numel()).reshape(shape).to(device)

    def module(kind: Any, *arguments: Any, **options: Any) -> Any:
        made = kind(*arguments, **options).to(device)
        for parameter in made.parameters():
            parameter.data.copy_(floats(*parameter.shape))
        return made

    yield from _calls_of_modules(floats, module)
    yield from _calls_of_functions(floats, device)


def _calls_of_modules(
    floats: Callable[..., torch.Tensor], module: Callable[..., Any]
) -> Iterator[Call]:
    def without_gradient(made: Any, *arguments: Any) -> Call:
        def call() -> Any:
            with torch.no_grad():
                return made(*arguments)

        return call

    for kind in (torch.nn.RNN, torch.nn.GRU, torch.nn.LSTM):
        for layers, bidirectional in ((1, False), (2, True)):
            rnn = module(kind, 3, 4, layers, bidirectional=bidirectional)
            yield without_gradient(rnn, floats(5, 2, 3))
            packed = torch.nn.utils.rnn.pack_padded_sequence(floats(5, 2, 3), torch.tensor([5, 3]))
            yield without_gradient(rnn, packed)
    yield without_gradient(module(torch.nn.RNN, 3, 4, nonlinearity="relu"), floats(5, 2, 3))
    for cell in (torch.nn.RNNCell, torch.nn.GRUCell, torch.nn.LSTMCell):
        yield without_gradient(module(cell, 3, 4), floats(2, 3))
    yield without_gradient(module(torch.nn.RNNCell, 3, 4, nonlinearity="relu"), floats(2, 3))
    for training in (False, True):
        norm = module(torch.nn.InstanceNorm1d, 3, affine=True, track_running_stats=True)
        yield without_gradient(norm.train(training), floats(2, 3, 4))
        batch = module(torch.nn.BatchNorm1d, 3)
        yield without_gradient(batch.train(training), floats(2, 3, 4))


def _calls_of_functions(floats: Callable[..., torch.Tensor], device: str) -> Iterator[Call]:
    yield lambda: torch.nn.utils.rnn.pad_packed_sequence(
        torch.nn.utils.rnn.pack_padded_sequence(floats(5, 2, 3), torch.tensor([5, 3]))
    )
    yield lambda: torch.nn.utils.rnn.pad_sequence([floats(2, 3), floats(4, 3)])
    for quantile in (torch.quantile, torch.nanquantile):
        yield lambda quantile=quantile: quantile(floats(4, 3), floats(2), dim=1)
        yield lambda quantile=quantile: quantile(
            floats(4, 3), floats(2), dim=1, out=torch.empty(0, device=device)
        )
    for norm in ("fro", "nuc"):
        yield lambda norm=norm: floats(3, 3).norm(norm)
        yield lambda norm=norm: floats(2, 3, 3).norm(norm, dim=(1, 2))
    yield lambda: torch.frobenius_norm(floats(3, 3), dim=1)
    yield lambda: torch.nuclear_norm(floats(3, 3))
    yield lambda: torch._weight_norm(floats(4, 3), floats(4, 1), 0)
    yield lambda: torch.norm_except_dim(floats(4, 3), 2, 0)
    yield lambda: torch.vander(floats(4))
    yield lambda: torch.chain_matmul(floats(2, 3), floats(3, 4), floats(4, 2))
    yield lambda: floats(3, 3).fill_diagonal_(1.0)
    yield lambda: floats(4, 4).fill_diagonal_(1.0, wrap=True)
    yield lambda: torch.relu6_(floats(4))
    yield lambda: torch.where(floats(4) > 0.5, 1.0, 2.0)
    yield lambda: torch.where(floats(4) > 0.5)
    yield lambda: torch.where(floats(4) > 0.5, floats(4), 2.0)
    yield lambda: torch.argsort(floats(4, 3), stable=True)
    yield lambda: torch.float_power(2.0, floats(3))
    yield lambda: torch.gradient(floats(4, 3), spacing=[2.0, 3.0])
    yield lambda: torch.gradient(floats(4, 3), spacing=[floats(4), floats(3)])
    yield lambda: torch.nn.functional.embedding_bag(
        torch.tensor([0, 1, 2], device=device), floats(4, 3), torch.tensor([0, 2], device=device)
    )
    yield lambda: torch.fake_quantize_per_tensor_affine(floats(4), 0.1, 0, 0, 255)
    yield lambda: torch.fake_quantize_per_channel_affine(
        floats(2, 4), floats(2), torch.zeros(2, dtype=torch.int32, device=device), 0, 0, 255
    )
    yield lambda: torch.native_channel_shuffle(floats(1, 4, 2, 2), 2)
    yield lambda: torch.histogramdd(floats(8, 2), 3)
    for window in (torch.bartlett_window, torch.blackman_window, torch.hamming_window):
        yield lambda window=window: window(8, device=device)
    yield lambda: torch.hann_window(8, periodic=False, device=device)
    yield lambda: torch.einsum("ij->ji", floats(2, 3))
    yield lambda: torch.einsum("bij,bjk->bik", floats(2, 3, 4), floats(2, 4, 3))
