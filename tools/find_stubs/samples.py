"""Calls of ATen operators to try: what PyTorch's own OpInfo samples come to below autograd.

Every OpInfo sample is run on the CPU, forward and backward, under a mode that sees each ATen operator with
its arguments.  Operators that OpInfo never calls by themselves (out variants, in-place ones) get the calls
of their group's functional operator; what is left is written by hand in ``BY_HAND``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from operator_calls import Call, overload
from opsmith.schema import Catalogue, Variant

_DTYPES = (torch.float32, torch.int64, torch.complex64, torch.bool)
_SAMPLES = 12
_CALLS = 32
_MAX_NUMEL = 20_000


class Recorder(TorchDispatchMode):
    """Keeps some calls of every operator, no two of them alike."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[str, dict[str, Call]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = f"{func._schema.name}.{func._overloadname}".removesuffix(".default")
        if name.startswith("aten::"):
            self._keep(name.removeprefix("aten::"), Call(tuple(args), dict(kwargs or {})))
        return func(*args, **(kwargs or {}))

    def _keep(self, name: str, call: Call) -> None:
        kept = self.calls.setdefault(name, {})
        leaves, shape = tree_flatten((call.args, dict(call.kwargs)))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        if len(kept) >= _CALLS or not all(_is_plain(tensor) for tensor in tensors):
            return
        if any(isinstance(leaf, torch.Generator) for leaf in leaves):
            return
        key = f"{shape} {[_described(leaf) for leaf in leaves]}"
        if key not in kept:
            kept[key] = call.map(_copied)


def _is_plain(tensor: torch.Tensor) -> bool:
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and not tensor.is_quantized
        and not tensor.is_conj()
        and not tensor.is_neg()
        and tensor.numel() <= _MAX_NUMEL
    )


def _described(leaf: object) -> str:
    if isinstance(leaf, torch.Tensor):
        return f"{leaf.dtype}{leaf.dim()}{leaf.is_contiguous()}{leaf.numel() > 0}"
    return repr(leaf)


def _copied(leaf: Any) -> Any:
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf


def record_opinfo() -> dict[str, list[Call]]:
    """Calls of every ATen operator that OpInfo's samples reach, by name; takes about two minutes."""
    from torch.testing._internal.common_methods_invocations import op_db

    recorder = Recorder()
    for info in op_db:
        for dtype in _DTYPES:
            if dtype in info.supported_dtypes("cpu"):
                for call in _sample_calls(info, dtype):
                    torch.manual_seed(0)
                    try:
                        with warnings.catch_warnings(), recorder:
                            warnings.simplefilter("ignore")
                            _run(call)
                    except Exception:
                        continue  # what the CPU refuses is no sample
    return {name: list(kept.values()) for name, kept in recorder.calls.items()}


def _sample_calls(info: Any, dtype: torch.dtype) -> Iterator[Callable[[], Any]]:
    grad = dtype.is_floating_point and info.supports_autograd
    try:
        samples = info.sample_inputs("cpu", dtype, requires_grad=grad)
        for _, sample in zip(range(_SAMPLES), samples, strict=False):
            yield lambda s=sample: info.op(s.input, *s.args, **s.kwargs)
            if info.inplace_variant is not None:
                yield lambda s=sample: info.inplace_variant(
                    tree_map(_copied, s.input), *s.args, **s.kwargs
                )
    except Exception:
        return


def _run(call: Callable[[], Any]) -> None:
    result = call()
    leaves = [leaf for leaf in tree_flatten(result)[0] if isinstance(leaf, torch.Tensor)]
    scalars = [leaf.sum() for leaf in leaves if leaf.requires_grad and not leaf.is_complex()]
    if scalars:
        sum(scalars).backward()


def calls_of(name: str, catalogue: Catalogue, recorded: Mapping[str, list[Call]]) -> list[Call]:
    """Calls of the operator ``name``: recorded ones, made from its group's, and those of ``BY_HAND``."""
    calls = [*recorded.get(name, []), *BY_HAND.get(name, [])]
    group = catalogue.group_of.get(name)
    variant = catalogue.operators[name].variant
    if group is None or group.functional in (None, name):
        return calls
    made = [*recorded.get(group.functional, []), *BY_HAND.get(group.functional, [])]
    if variant is Variant.OUT:
        calls += [call for base in made if (call := _with_outs(name, group.functional, base))]
    elif variant is Variant.INPLACE:
        calls += made
    return calls[: 2 * _CALLS]


def _with_outs(name: str, functional: str, call: Call) -> Call | None:
    schema = overload(name)._schema
    outs = [argument.name for argument in schema.arguments if argument.is_out]
    taken = {argument.name for argument in schema.arguments}
    try:
        fresh = call.map(_copied)
        results = overload(functional)(*fresh.args, **fresh.kwargs)
    except Exception:
        return None
    results = results if isinstance(results, (tuple, list)) else (results,)
    if len(results) != len(outs) or not all(isinstance(r, torch.Tensor) for r in results):
        return None
    kwargs = {key: value for key, value in call.kwargs.items() if key in taken}
    given = {out: torch.empty_like(result) for out, result in zip(outs, results, strict=True)}
    return Call(call.args, {**kwargs, **given})


def _floats(*shape: int) -> torch.Tensor:
    return torch.linspace(0.1, 0.9, max(1, torch.Size(shape).numel())).reshape(shape)


def _adam() -> Call:
    how = dict(
        lr=0.1, beta1=0.9, beta2=0.99, weight_decay=0.1, eps=1e-6, amsgrad=True, maximize=False
    )
    return Call((*([_floats(3)] for _ in range(5)), [torch.ones(())]), how)


# Operators, or ways to call them, that no OpInfo reaches.
BY_HAND: Mapping[str, list[Call]] = {
    "div.Tensor_mode": [Call((_floats(5), _floats(5)), {"rounding_mode": None})],
    "bernoulli_.float": [Call((_floats(5), 0.3))],
    "bernoulli_.Tensor": [Call((_floats(5), _floats(5)))],
    "cauchy_": [Call((_floats(5), 0.5, 2.0))],
    "exponential_": [Call((_floats(5), 2.0))],
    "geometric_": [Call((_floats(5), 0.3))],
    "log_normal_": [Call((_floats(5), 1.0, 2.0))],
    "normal_": [Call((_floats(40), 1.0, 2.0))],
    "uniform_": [Call((_floats(5), 0.0, 2.0))],
    "random_": [Call((_floats(5),))],
    "random_.from": [Call((_floats(5), 0, 10))],
    "random_.to": [Call((_floats(5), 10))],
    "_pdist_backward": [Call((_floats(3), _floats(3, 2), 2.0, _floats(3)))],
    "_amp_foreach_non_finite_check_and_unscale_": [
        Call(([_floats(3)], torch.zeros(1), torch.full((1,), 2.0)))
    ],
    "_amp_update_scale_": [
        Call((torch.ones(1), torch.zeros(1, dtype=torch.int32), torch.zeros(1), 2.0, 0.5, 5))
    ],
    "_fused_sgd_": [
        Call(
            ([_floats(3)], [_floats(3)], []),
            dict(
                weight_decay=0.1, momentum=0.0, lr=0.1, dampening=0.0, nesterov=False,
                maximize=False, is_first_step=True,
            ),
        )
    ],
    "_fused_adagrad_": [
        Call(
            ([_floats(3)], [_floats(3)], [_floats(3)], [torch.ones(())]),
            dict(lr=0.1, lr_decay=0.1, weight_decay=0.1, eps=1e-6, maximize=False),
        )
    ],
    "_fused_adam_": [_adam()],
    "_fused_adamw_": [_adam()],
}  # fmt: skip
