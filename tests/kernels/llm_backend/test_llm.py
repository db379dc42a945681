"""The library for language models on a device, against ExecuTorch's own kernels, which run on the CPU here.

What its operators compute by definition is in ``kernel_suite/llm_samples.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import opsmith
from fell_back import fell_back
from refusal import refusal

pytestmark = pytest.mark.isolated(OPSMITH_HOST_WINDOW=("on", "off"), nightly=("off",))

LOADED = opsmith.load(str(Path(__file__).with_name("backend.yaml")))
DEVICE = "llmsim"

llama = torch.ops.llama
quantized = torch.ops.quantized_decomposed


@pytest.fixture(autouse=True)
def nothing_falls_back() -> Iterator[None]:
    torch.manual_seed(0)
    start = opsmith.fallbacks()
    yield
    fallen = fell_back(opsmith.fallbacks(since=start))
    assert not {name for name in fallen if "::" in name}  # ATen's are not the library's


def there(value: Any) -> Any:
    return value.to(DEVICE) if isinstance(value, Tensor) else value


def agree(operator: Any, *arguments: Any, written: tuple[int, ...] = ()) -> None:
    """The operator gives on the device what ExecuTorch's gives, and writes the same to what it changes."""
    here = [each.clone() if isinstance(each, Tensor) else each for each in arguments]
    given = [there(each) for each in arguments]
    theirs, ours = tree_leaves(operator(*here)), tree_leaves(operator(*given))
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype
        torch.testing.assert_close(a.cpu(), b, rtol=1e-4, atol=1e-5)
    for place in written:
        assert torch.equal(given[place].cpu(), here[place])


def test_attention_over_a_cache() -> None:
    for queries, heads, start in ((1, 8, 30), (5, 4, 0), (7, 2, 3)):
        query = torch.randn(2, queries, heads, 16)
        key, value = (torch.randn(2, 40, 2, 16) for _ in range(2))
        step = [torch.randn(2, queries, 2, 16) for _ in range(2)]
        for mask, causal in ((None, True), (None, False), (torch.randn(queries, 40), False)):
            rest = (mask, 0.0, causal, None)
            agree(llama.custom_sdpa, query, key, value, start, *rest)
            agree(
                llama.sdpa_with_kv_cache, query, *step, key, value, start, queries, *rest,
                written=(3, 4),
            )  # fmt: skip


def integers(*shape: int) -> tuple[Tensor, Tensor, Tensor]:
    """Quantized values, zero points and scales."""
    tokens = (*shape[:-1], 1)
    return (
        torch.randint(-128, 128, shape).to(torch.int8),
        torch.randint(-9, 9, tokens).to(torch.int8),
        torch.rand(tokens) * 0.02,
    )


def test_attention_of_integers() -> None:
    for heads_first in (False, True):
        shapes = ((1, 4, 3, 32), (1, 2, 9, 32)) if heads_first else ((1, 3, 4, 32), (1, 9, 2, 32))
        (q, *q_rest), (k, *k_rest), (v, *v_rest) = (integers(*shapes[i]) for i in (0, 1, 1))
        for causal in (False, True):
            rest = (None, 0.0, causal, None, *q_rest, *k_rest, *v_rest, heads_first)
            agree(llama.custom_quantized_sdpa, q, k, v, 4, *rest)


def test_other_operators_of_models() -> None:
    for rows in ((3, 64), (2, 5, 128), (2, 28), (1, 28 * 16)):
        agree(llama.fast_hadamard_transform, torch.randn(rows))
    operands = [torch.rand(2, 3, 5, 8) * 0.5 for _ in range(4)]
    agree(
        llama.channelwise_gated_delta_rule, *operands, torch.rand(2, 3, 5), torch.randn(2, 3, 8, 8)
    )
    x = torch.randn(4, 6)
    assert torch.equal(llama.fallback(x.to(DEVICE)).cpu(), x)
    image = torch.randn(3, 8, 12)
    tiles = torch.ops.preprocess.tile_crop(image.to(DEVICE), 4).cpu()
    assert torch.equal(tiles[5], image[:, 4:, 8:])


@pytest.mark.parametrize(("bits", "width"), [("byte", 12), ("4bit", 6), ("2bit", 3)])
def test_quantized_embeddings(bits: str, width: int) -> None:
    low, high = {"byte": (-128, 127), "4bit": (-8, 7), "2bit": (-2, 1)}[bits]
    weight = torch.randint(0, 256, (9, width)).to(torch.uint8)
    weight = weight.view(torch.int8) if bits == "byte" else weight
    scales, indices = torch.rand(9, 2), torch.tensor([[8, 0, 3]])
    packet = getattr(quantized, f"embedding_{bits}")
    agree(packet.default, weight, scales, torch.ones(9, 2), low, high, indices)
    agree(packet.default, weight, scales[:, :1].contiguous(), None, low, high, indices)
    rest = (weight, scales.half(), None, low, high, indices)
    ours = packet.dtype(*map(there, rest), dtype=torch.float32)
    wide = packet.default(weight, scales.half().float(), None, low, high, indices)
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours.cpu(), wide)


def test_products_with_integer_weights() -> None:
    # On the CPU only the out variants have kernels.
    x, weight = torch.randn(5, 32), torch.randint(-128, 128, (32, 7)).to(torch.int8)
    calls = [(quantized.mixed_mm, (x, weight, torch.rand(32), None))]
    for scales in (torch.rand(7), torch.rand(7, 4)):
        calls.append((quantized.mixed_linear, (x, weight.T.contiguous(), scales, None)))
    for packet, given in calls:
        theirs = packet.out(*given, out=torch.empty(5, 7))
        torch.testing.assert_close(packet(*map(there, given)).cpu(), theirs, rtol=1e-4, atol=1e-3)


class Decoder(nn.Module):
    """One layer of a language model that keeps its keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(32, 64)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, 16, 2, 8))

    def forward(self, x: Tensor, start: int) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (8, 8)).split((4, 2, 2), 2)
        llama.update_cache(k.contiguous(), self.keys, start)
        llama.update_cache(v.contiguous(), self.values, start)
        seen = llama.custom_sdpa(
            q.contiguous(), self.keys, self.values, start, None, 0.0, True, None
        )
        return seen.flatten(2)  # type: ignore[no-any-return]


def test_a_model_decodes_step_by_step() -> None:
    model = Decoder()
    with torch.no_grad():
        tokens = torch.randn(1, 9, 32)
        at_once = model(tokens, 0)
        model.keys.zero_()
        model.values.zero_()
        on_device = model.to(DEVICE)
        compiled = torch.compile(on_device, backend="aot_eager", dynamic=True)
        steps = [on_device(tokens[:, :4].to(DEVICE), 0)]
        steps += [compiled(tokens[:, i : i + 1].to(DEVICE), i) for i in range(4, 9)]
    torch.testing.assert_close(torch.cat(steps, 1).cpu(), at_once, rtol=1e-4, atol=1e-5)


def test_what_it_refuses() -> None:
    cache = torch.zeros(1, 4, 2, 8, device=DEVICE)
    step = torch.ones(1, 2, 2, 8, device=DEVICE)
    message = refusal(RuntimeError, llama.update_cache, step, cache, 3)
    assert message.splitlines()[0] == (
        "llama::update_cache: its kernel `opsmith::llm::native::update_cache_out` (library llm) refuses the "
        "call: update_cache: 2 positions from 3 on do not fit a cache of 4"
    )
    indices = torch.tensor([[0, 4]], device=DEVICE)
    message = refusal(IndexError, llama.update_cache_with_indices, step, cache, 0, indices)
    assert "the index 4 is out of bounds for a cache of 4 positions" in message
    assert not cache.cpu().any()
    message = refusal(RuntimeError, llama.custom_sdpa, step, cache, cache, -1)
    assert "2 queries from position -1 on do not fit 4 keys" in message
    mask = torch.zeros(2, 3, device=DEVICE)
    message = refusal(RuntimeError, llama.custom_sdpa, step, cache, cache, 0, mask)
    assert "a mask is Float, of [2 queries, 4 keys]" in message
    x = torch.ones(12, device=DEVICE)
    message = refusal(RuntimeError, llama.fast_hadamard_transform, x)
    assert "rows have 2^k or 28·2^k elements, not 12" in message
    weight = torch.zeros(3, 4, dtype=torch.int8, device=DEVICE)
    given = (weight, torch.ones(3, device=DEVICE), None, -128, 127)
    message = refusal(
        IndexError, quantized.embedding_byte, *given, torch.tensor([3], device=DEVICE)
    )
    assert "the index 3 is out of bounds for 3 embeddings" in message
