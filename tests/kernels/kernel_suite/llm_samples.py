"""Calls of the library ``llm``'s operators, and what they have to give, by definition in ATen's operators."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import torch
from aten_calls import OperatorCall
from torch import Tensor
from torch.nn import functional

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def llm() -> Iterator[OperatorCall]:
    """All of them."""
    yield from _attention()
    yield from _quantized_attention()
    yield from _caches()
    yield from _delta_rule()
    yield from _hadamard()
    yield from _copies()
    yield from _embeddings()
    yield from _mixed_products()


def _defined(operator: str, results: Any, *arguments: Any, **written: Tensor) -> OperatorCall:
    """A call, whose ``written`` arguments are named by their places: ``at3=…``."""
    given = tuple(each.clone() if isinstance(each, Tensor) else each for each in arguments)
    places = {int(name.removeprefix("at")): tensor for name, tensor in written.items()}
    all_results = results if isinstance(results, tuple) else (results,)
    return OperatorCall(operator, given, all_results, places, origin="by definition")


def attended(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    start: int,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Attention over the positions of a cache, [batch, positions, heads, dim], in float64."""
    queries = query.shape[1]
    if mask is None:
        key, value = (each[:, : start + queries] for each in (key, value))
    if causal:
        hidden = torch.ones(queries, start + queries, dtype=torch.bool).triu(start + 1)
        mask = torch.zeros(hidden.shape).masked_fill(hidden, -math.inf)
    shared = query.shape[2] // key.shape[2]
    q, k, v = (each.double().transpose(1, 2) for each in (query, key, value))
    k, v = (each.repeat_interleave(shared, 1) for each in (k, v))
    seen = None if mask is None else mask.double()
    result = functional.scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=scale)
    return result.nan_to_num(0.0).transpose(1, 2).contiguous()


def _attention() -> Iterator[OperatorCall]:
    sizes = (
        (1, 1, 1, 1, 1, 8, 0),
        (2, 3, 4, 2, 10, 8, 4),
        (1, 1, 8, 2, 300, 20, 270),  # a step of one position, over more than a block of keys
        (2, 60, 2, 1, 320, 16, 255),  # more than a block of queries
        (1, 2, 3, 3, 5, 4, 3),  # up to the cache's end
        (1, 0, 2, 2, 4, 8, 1),
    )
    for (batch, queries, heads, key_heads, length, dim, start), dtype in itertools.product(
        sizes, _FLOATS
    ):
        query = torch.randn(batch, queries, heads, dim).to(dtype)
        key, value = (torch.randn(batch, length, key_heads, dim).to(dtype) for _ in range(2))
        mask = torch.randn(queries, length)
        if queries > 1:
            mask[1] = -math.inf  # sees nothing
        for given, causal, scale in (
            (None, True, None),
            (None, False, 0.3),
            (mask, False, None),
        ):
            result = attended(query, key, value, start, given, causal, scale).to(dtype)
            rest = (given, 0.0, causal, scale)
            yield _defined("llama::custom_sdpa.out", result, query, key, value, start, *rest)
            step = [each[:, start : start + queries].flip(1).contiguous() for each in (key, value)]
            caches = [each.clone() for each in (key, value)]
            for cache, new in zip(caches, step, strict=True):
                cache[:, start : start + queries] = new
            result = attended(query, *caches, start, given, causal, scale).to(dtype)
            yield _defined(
                "llama::sdpa_with_kv_cache.out", result, query, *step, key, value, start, queries, *rest,
                at3=caches[0], at4=caches[1],
            )  # fmt: skip


def _quantized(shape: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """Integers with a zero point and a scale for each token."""
    tokens = (*shape[:-1], 1)
    return (
        torch.randint(-128, 128, shape).to(torch.int8),
        torch.randint(-9, 9, tokens).to(torch.int8),
        torch.rand(tokens) * 0.02,
    )


def _quantized_attention() -> Iterator[OperatorCall]:
    for heads_first, causal, masked in itertools.product((False, True), repeat=3):
        if causal and masked:
            continue
        parts = [_quantized(shape) for shape in ((2, 3, 4, 16), (2, 11, 2, 16), (2, 11, 2, 16))]
        floats = [(x.float() - zero.float()) * scale for x, zero, scale in parts]
        mask = torch.randn(3, 11) if masked else None
        result = attended(*floats, 5, mask, causal).float()
        given = [tuple(each) for each in parts]
        if heads_first:
            result = result.transpose(1, 2).contiguous()
            given = [tuple(each.transpose(1, 2).contiguous() for each in part) for part in given]
        integers = [part[0] for part in given]
        parameters = [each for part in given for each in part[1:]]
        rest = (mask, 0.0, causal, None, *parameters, heads_first)
        yield _defined("llama::custom_quantized_sdpa.out", result, *integers, 5, *rest)


def _caches() -> Iterator[OperatorCall]:
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int8, torch.int64):
        value, cache = (torch.randint(-9, 9, (2, n, 2, 3)).to(dtype) for n in (3, 7))
        nothing = torch.zeros(1, dtype=dtype)
        for start in (0, 2, 4):
            after = cache.clone()
            after[:, start : start + 3] = value
            yield _defined("llama::update_cache.out", nothing, value, cache, start, at1=after)
        after = cache.clone()
        indices = torch.tensor([[6, 0, 3], [1, 2, 5]])
        for batch, position in itertools.product(range(2), range(3)):
            after[batch, indices[batch, position]] = value[batch, position]
        yield _defined(
            "llama::update_cache_with_indices.out", nothing, value, cache, 0, indices, at1=after
        )


def _delta_rule() -> Iterator[OperatorCall]:
    for shape, width in (
        ((1, 1, 1, 2), 3),
        ((2, 3, 9, 20), 17),
        ((1, 2, 0, 4), 4),
        ((1, 2, 3, 0), 4),
    ):
        query, key, decay = (torch.rand(shape) * 0.5 for _ in range(3))
        value, beta = torch.randn(*shape[:3], width), torch.rand(shape[:3])
        state = initial = torch.randn(*shape[:2], shape[3], width)
        results = torch.zeros_like(value)
        for t in range(shape[2]):
            state = state * decay[:, :, t, :, None]
            k, q = key[:, :, t, :, None], query[:, :, t, :, None]
            wrong = (value[:, :, t] - (k * state).sum(2)) * beta[:, :, t, None]
            state = state + k * wrong[:, :, None]
            results[:, :, t] = (q * state).sum(2)
        name, given = "llama::channelwise_gated_delta_rule.out", (query, key, value, decay, beta)
        yield _defined(name, (results, state), *given, initial)


def sylvester(order: int) -> Tensor:
    """The Hadamard matrix of a power of two, in float64 and not scaled."""
    matrix = torch.ones(1, 1, dtype=torch.float64)
    while len(matrix) < order:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix


def _hadamard() -> Iterator[OperatorCall]:
    for shape in ((1,), (3, 2), (2, 5, 64), (0, 8), (70, 256)):
        for dtype in (*_FLOATS, torch.float64):
            x = torch.randn(shape).to(dtype)
            order = shape[-1]
            result = (x.double() @ sylvester(order) / math.sqrt(order)).to(dtype)
            yield _defined("llama::fast_hadamard_transform.out", result, x)


def _copies() -> Iterator[OperatorCall]:
    for dtype in (torch.float32, torch.int8, torch.bool, torch.float16):
        x = torch.randint(0, 2, (3, 4, 6)).to(dtype)
        yield _defined("llama::fallback.out", x, x)
        tiles = x.view(3, 2, 2, 3, 2).permute(1, 3, 0, 2, 4).reshape(6, 3, 2, 2)
        yield _defined("preprocess::tile_crop.out", tiles, x, 2)


def packed(values: Tensor, bits: int) -> Tensor:
    """Integers of so many bits, as the rows of an embedding hold them."""
    if bits == 8:
        return values.to(torch.int8)
    shifted = (values + 2 ** (bits - 1)).to(torch.uint8).unflatten(-1, (-1, 8 // bits))
    places = range(8 // bits) if bits == 2 else reversed(range(8 // bits))
    found = [shifted[..., i] << (bits * place) for i, place in enumerate(places)]
    return torch.stack(found, -1).sum(-1).to(torch.uint8)


def _embeddings() -> Iterator[OperatorCall]:
    for bits, groups, zeros in itertools.product((8, 4, 2), (0, 1, 4), (False, True)):
        low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        values = torch.randint(low, high + 1, (10, 16))
        shape = (10, groups) if groups else (10,)
        name = f"quantized_decomposed::embedding_{'byte' if bits == 8 else f'{bits}bit'}"
        for scale_dtype, dtype in itertools.product(_FLOATS, _FLOATS):
            scales = (torch.rand(shape) * 0.1).to(scale_dtype)
            zero_points = torch.randint(-3, 3, shape).to(scale_dtype) if zeros else None
            zero = 0.0 if zero_points is None else zero_points.float().view(10, -1, 1)
            grouped = values.float().view(10, groups or 1, -1)
            rows = ((grouped - zero) * scales.float().view(10, -1, 1)).view(10, 16)
            for indices in (
                torch.tensor([[3, 9, 0], [3, 1, 2]]),
                torch.tensor(4),
                torch.empty(0).int(),
            ):
                given = (packed(values, bits), scales, zero_points, low, high, indices)
                result = rows[indices.long()].to(dtype)
                yield _defined(f"{name}.dtype_out", result, *given, dtype)
                if dtype == scale_dtype:
                    yield _defined(f"{name}.out", result, *given)
    unsigned = torch.randint(0, 256, (5, 3)).to(torch.uint8)
    given = (unsigned, torch.full((5,), 0.5), torch.full((5,), 128.0), 0, 255, torch.tensor([4, 0]))
    result = ((unsigned.float() - 128) * 0.5)[[4, 0]]
    yield _defined("quantized_decomposed::embedding_byte.out", result, *given)


def _mixed_products() -> Iterator[OperatorCall]:
    sizes = ((1, 8, 6), (5, 64, 33), (0, 4, 4), (3, 0, 2), (20, 48, 1))
    for (m, k, n), dtype in itertools.product(sizes, (torch.float32, torch.float16)):
        x = (torch.randn(m, k) * 0.1).to(dtype)
        weight, scales = (
            torch.randint(-128, 128, (k, n)).to(torch.int8),
            (torch.rand(k) * 0.1).to(dtype),
        )
        result = x.double() @ (weight.double() * scales.double()[:, None])
        yield _defined(
            "quantized_decomposed::mixed_mm.out", result.to(dtype), x, weight, scales, None
        )
        weight = torch.empty(n, k, dtype=torch.int8).copy_(weight.T)
        for groups in (0, 1, 2):
            shape = (n, groups) if groups else (n,)
            scales = (torch.rand(shape) * 0.1).to(dtype)
            length = k // (groups or 1)
            wide = weight.double() * scales.double().view(n, -1).repeat_interleave(length, 1)
            for out in (None, torch.float32, torch.float16):
                yield _defined(
                    "quantized_decomposed::mixed_linear.out", (x.double() @ wide.T).to(out or dtype),
                    x, weight, scales, None, out,
                )  # fmt: skip
