"""One argument for each parameter that is no Tensor, by its type and its name.

Most are such that the call can be made; a few are out of range, so that errors are compared too.
"""

from __future__ import annotations

from random import Random
from typing import Any

import torch
from torch import Tensor

from opsmith.conformance.fuzzing.operators import STRINGS, Parameter
from opsmith.conformance.fuzzing.program import HERE
from opsmith.conformance.fuzzing.values import DTYPES, scalar, size, weighted

_DIM = {
    "dim", "dim0", "dim1", "dim2", "axis", "axis0", "axis1", "start_dim", "end_dim", "dimension",
    "source", "destination", "dims", "dims_self", "dims_other",
}  # fmt: skip
_SMALL_INTS = {
    "groups": (1, 1, 2), "group": (1, 2), "reduction": (0, 1, 2), "n": (1, 2, 3, 4), "steps": (0, 1, 3, 5),
    "window_length": (0, 1, 4, 5), "edge_order": (1, 2), "bins": (1, 3, 4), "sections": (1, 2, 3),
    "split_size": (1, 2, 3), "chunks": (1, 2, 3), "upscale_factor": (1, 2), "downscale_factor": (1, 2),
    "repeats": (0, 1, 2), "num_classes": (-1, 6, 8), "N": (1, 2, 3, 4), "ignore_index": (-100, 0, 1),
    "padding_idx": (-1, 0, 1), "interpolation_mode": (0, 1), "padding_mode": (0, 1, 2), "row": (0, 2, 4),
    "col": (0, 2, 4), "num_groups": (1, 2, 3), "decimals": (0, 1, -1), "step": (1, 1, 2, 3),
    "minlength": (0, 3), "K": (1, 2), "p": (1, 2, 3), "mode": (0, 1),
    "k": (0, 1, 2, -1, 3), "divisor_override": (1, 2, 3), "r": (0, 1, 2), "pow": (0, 1, 2), "size": (1, 2, 3),
    "kernel_size": (1, 2, 2, 3), "stride": (1, 1, 2, 3), "padding": (0, 0, 1), "dilation": (1, 1, 2),
    "output_padding": (0, 0, 1), "output_size": (1, 2, 3, 5), "pad": (-1, 0, 1, 2), "block_size": (1, 2),
    "s": (1, 2, 3, 4), "shifts": (-3, -1, 0, 1, 2, 5), "compute_mode": (0, 1, 2), "quant_min": (0,),
}  # fmt: skip
_FLOATS = {
    "eps": (1e-5, 1e-5, 0.0, 0.1), "momentum": (0.1, 0.0, 1.0), "p": (0.0, 0.5, 1.0, 2.0, 3.0),
    "base": (2.0, 10.0), "rtol": (1e-5, 0.0), "atol": (1e-8, 0.5), "scales": (2.0, 1.5),
    "q": (0.0, 0.25, 0.5, 1.0),
}  # fmt: skip
_ANY_FLOAT = (0.0, 0.5, 1.0, 2.0, -1.5, 0.1)
DEGREES = (0, 1, 2, 3, 7, 12, -1)
"""Of polynomials: PyTorch's CPU loops as often as they say."""

_OUT_OF_RANGE = 0.04
_LEFT_OUT = {
    "Device": 0.0,
    "Layout": 1.0,
    "ScalarType": 0.7,
    "MemoryFormat": 0.8,
    "str": 0.3,
    "List[int]": 0.35,
}

# Numbers of these make as many elements.
_RANGES = {"arange", "range", "linspace", "logspace", "full_like", "histc"}


def drawn(
    random: Random, parameter: Parameter, base: str, first: Tensor | None, given: dict[str, Any]
) -> Any:
    """An argument for ``parameter`` of the operator ``base``, whose first Tensor is ``first``.

    ``given`` holds the arguments before it.
    """
    kind = parameter.kind
    if parameter.optional and random.random() < _left_out(parameter):
        return parameter.default
    match kind:
        case "int":
            return _int(random, parameter.name, first, given)
        case "List[int]":
            return _ints(random, parameter.name, base, first, given)
        case "bool":
            drawn_truth = random.random() < 0.5
            return drawn_truth or (parameter.name == "training" and _lacks_statistics(given))
        case "float":
            return random.choice(_FLOATS.get(parameter.name, _ANY_FLOAT))
        case "number" if is_degree(base, parameter.name):
            return random.choice(DEGREES)
        case "number":
            return random.choice((0, 1, 2, 5, 6.5, -1)) if base in _RANGES else scalar(random)
        case "ScalarType":
            return weighted(random, DTYPES)
        case "Device":
            return HERE
        case "Layout":
            return torch.strided
        case "MemoryFormat":
            return random.choice(
                (torch.contiguous_format, torch.channels_last, torch.preserve_format)
            )
        case "str":
            return random.choice(STRINGS[parameter.name])
        case "List[bool]":
            return [random.random() < 0.7 for _ in range(3)]
        case "List[float]":
            return [random.choice(_ANY_FLOAT) for _ in range(2)]
        case "List[number]":
            return [scalar(random) for _ in range(random.choice((1, 2)))]
    raise AssertionError(parameter)


def is_degree(base: str, name: str) -> bool:
    """Whether the parameter ``name`` is the degree of a polynomial."""
    return name == "n" and "_polynomial_" in base


def _lacks_statistics(given: dict[str, Any]) -> bool:
    """Whether a norm has no running statistics: PyTorch's CPU crashes where it is to compute with them."""
    return None in (given.get("running_mean"), given.get("running_var"))


def _left_out(parameter: Parameter) -> float:
    """How often an optional argument is not given."""
    if parameter.kind == "str" and parameter.name not in STRINGS:
        return 1.0
    if parameter.name == "pin_memory":
        return 1.0  # only memory of the CPU is pinned
    return _LEFT_OUT.get(parameter.kind, 0.5)


def _int(random: Random, name: str, first: Tensor | None, given: dict[str, Any]) -> int:
    if name in _DIM:
        return dim(random, first)
    if name in _SMALL_INTS:
        return random.choice(_SMALL_INTS[name])
    if name in {"start", "end", "index", "length"}:
        along = _size_along(first, given.get("dim", 0))
        if name == "index" and random.random() > _OUT_OF_RANGE and along:
            return random.randrange(-along, along)
        if name == "length":
            return random.randint(0, max(along, 0))
        return random.randint(-along - 1, along + 1)
    if name in {"diagonal", "offset"}:
        return random.choice((0, 0, 1, -1, 2, -2, 5))
    if name == "storage_offset":
        return random.choice((0, 0, 1, 2))
    return random.choice((-1, 0, 1, 2, 3))


def dim(random: Random, tensor: Tensor | None) -> int:
    """A dimension of ``tensor``, rarely one that it does not have."""
    dims = max(tensor.dim(), 1) if tensor is not None else 2
    if random.random() < _OUT_OF_RANGE:
        return random.choice((dims, -dims - 1, dims + 3))
    return random.randrange(-dims, dims)


def _size_along(tensor: Tensor | None, where: Any) -> int:
    if tensor is None or tensor.dim() == 0 or not isinstance(where, int):
        return 1
    return tensor.shape[where] if -tensor.dim() <= where < tensor.dim() else 1


def _ints(
    random: Random, name: str, base: str, first: Tensor | None, given: dict[str, Any]
) -> list[int]:
    dims = first.dim() if first is not None else 2
    if name in _DIM:
        if base.startswith("permute"):
            order = random.sample(range(dims), dims)
            return [each - dims if random.random() < 0.2 else each for each in order]
        if base == "rot90":
            return random.sample(range(max(dims, 2)), 2)
        chosen = random.sample(range(max(dims, 1)), random.randint(0, max(dims, 1)))
        chosen = [each - max(dims, 1) if random.random() < 0.2 else each for each in chosen]
        return [*chosen, dim(random, first)] if random.random() < _OUT_OF_RANGE else chosen
    if name in {"size", "shape", "sizes"} and first is not None:
        return _new_shape(random, base, first)
    if name == "size":
        return [size(random) for _ in range(random.choice((0, 1, 2, 3)))]
    if name == "stride" and base.startswith("as_strided"):
        return [random.choice((0, 1, 1, 2, 3)) for _ in given["size"]]
    if name == "normalized_shape":
        return [*first.shape[-1:]] if first is not None else [2]
    if name == "repeats":
        return [random.choice((0, 1, 1, 2)) for _ in range(dims + random.choice((0, 0, 1)))]
    if name == "split_sizes" or (name == "split_size" and base.startswith("split")):
        along = _size_along(first, given.get("dim", 0))
        cut = random.randint(0, along)
        return [cut, along - cut]
    if name == "indices":
        return sorted(random.randint(0, 4) for _ in range(random.choice((1, 2))))
    if name == "pad":
        return [random.choice((-1, 0, 1, 2)) for _ in range(2 * random.randint(0, dims))]
    spatial = _spatial(base)
    pools = name == "dilation" and base.startswith("max_pool")
    if pools and first is not None and 1 in first.shape[-spatial:]:
        return [
            1
        ]  # the gradient of PyTorch's CPU writes to the pixel that a window without one does not have
    count = 2 * spatial if name == "padding" and "_pad" in base else spatial
    if random.random() < 0.2:
        count = 1
    return [random.choice(_SMALL_INTS.get(name, (0, 1, 2))) for _ in range(count)]


def _spatial(base: str) -> int:
    """How many dimensions an image has for the operator."""
    return next((count for count in (1, 2, 3) if f"{count}d" in base), 2)


def _new_shape(random: Random, base: str, first: Tensor) -> list[int]:
    """A shape that ``first`` can be given: by a view, by expanding it, or a new tensor's."""
    if base.startswith(("expand", "broadcast")):
        sizes = [random.choice((size(random), -1)) if old == 1 else old for old in first.shape]
        return [*(size(random) for _ in range(random.choice((0, 0, 1)))), *sizes]
    if base.startswith(("as_strided", "new_")):
        return [random.choice((1, 2, 2, 3)) for _ in range(random.choice((0, 1, 2, 3)))]
    if base == "sum_to_size":
        sizes = [1 if random.random() < 0.3 else old for old in first.shape]
        return sizes[random.choice((0, 0, 1)) :]
    factors = [*first.shape]
    if random.random() < 0.5 and len(factors) > 1:
        at = random.randrange(len(factors) - 1)
        factors[at : at + 2] = [factors[at] * factors[at + 1]]
    else:
        random.shuffle(factors)
    if factors and 0 not in factors and random.random() < 0.3:
        factors[random.randrange(len(factors))] = -1
    if random.random() < 0.3:
        factors.insert(random.randint(0, len(factors)), 1)
    return factors
