"""Scaled dot-product attention as one call of a kernel: what chooses it, and what the CPU makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as attention
from torch.utils.checkpoint import checkpoint

import opsmith
from fell_back import fell_back

pytestmark = pytest.mark.isolated(OPSMITH_HOST_WINDOW=("on", "off"))
opsmith.load("sim")

MATH, FUSED = SDPBackend.MATH, SDPBackend.OVERRIDEABLE


@pytest.fixture(autouse=True)
def nothing_falls_back() -> Iterator[None]:
    start = opsmith.fallbacks()
    yield
    # Copies between layouts are the CPU's where the host sees no memory of the device.
    assert fell_back(opsmith.fallbacks(since=start)) <= {"_copy_from"}


def operands(
    batch: int = 2,
    heads: int = 4,
    queries: int = 33,
    keys: int = 33,
    dim: int = 16,
    groups: int = 0,
) -> list[Tensor]:
    """On the CPU, as layers have them: heads are a view of (batch, length, heads, dim)."""
    torch.manual_seed(0)
    shapes = [(queries, heads), (keys, groups or heads), (keys, groups or heads)]
    return [torch.randn(batch, *shape, dim).transpose(1, 2) for shape in shapes]


def choice(*given: Any, **options: Any) -> SDPBackend:
    return SDPBackend(torch._fused_sdp_choice(*given, **options))


def results(device: str, given: list[Tensor], **options: Any) -> list[Tensor]:
    """The result, its strides and the gradients of the operands."""
    own = [each.detach().to(device).requires_grad_() for each in given]
    options = {k: v.to(device) if isinstance(v, Tensor) else v for k, v in options.items()}
    out = attention(*own, **options)
    out.backward(torch.linspace(-1, 1, out.numel()).view(out.shape).to(out))
    found = [out.detach(), *(each.grad for each in own if each.grad is not None)]
    return [torch.tensor(out.stride()), *(each.cpu() for each in found)]


SEEN = torch.ones(2, 1, 33, 40, dtype=torch.bool).tril(3)
SEEN[0, 0, 5] = False  # the query sees nothing

CASES: dict[str, tuple[list[Tensor], dict[str, Any]]] = {
    "plain": (operands(), {}),
    "causal": (operands(queries=300, keys=300), {"is_causal": True}),
    "causal, of other lengths": (operands(keys=40), {"is_causal": True}),
    "mask of bool": (operands(keys=40), {"attn_mask": SEEN}),
    "mask for all heads": (operands(keys=40), {"attn_mask": torch.randn(33, 40)}),
    "expanded mask": (
        operands(keys=40),
        {"attn_mask": torch.randn(2, 1, 1, 40).expand(2, 4, 33, 40)},
    ),
    "grouped heads": (operands(groups=2), {"enable_gqa": True}),
    "scale": (operands(), {"scale": -0.7}),
}


@pytest.mark.parametrize("case", CASES)
def test_like_the_cpu(case: str) -> None:
    given, options = CASES[case]
    on_sim = {k: v.to("sim") if isinstance(v, Tensor) else v for k, v in options.items()}
    assert choice(*(each.to("sim") for each in given), **on_sim) == FUSED
    for ours, theirs in zip(
        results("sim", given, **options), results("cpu", given, **options), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_views_of_one_projection() -> None:
    packed = torch.randn(2, 33, 3 * 64)

    def parts(whole: Tensor) -> list[Tensor]:
        return [each.unflatten(-1, (4, 16)).transpose(1, 2) for each in whole.split(64, -1)]

    torch.testing.assert_close(attention(*parts(packed.to("sim"))).cpu(), attention(*parts(packed)))


@pytest.mark.parametrize(
    "given",
    [
        [each.double() for each in operands()],
        [each[0] for each in operands()],
        operands(queries=0),
        operands(keys=0),
        operands(batch=0),
    ],
    ids=["double", "three dimensions", "no queries", "no keys", "no batch"],
)
def test_what_no_kernel_takes_is_computed_by_its_parts(given: list[Tensor]) -> None:
    own = [each.to("sim") for each in given]
    assert choice(*own) == MATH
    torch.testing.assert_close(attention(*own).cpu(), attention(*given), rtol=1e-3, atol=1e-3)


def test_dropout_and_gradients_of_masks_come_from_the_parts() -> None:
    given = [each.to("sim") for each in operands()]
    assert choice(*given, None, 0.5) == MATH
    assert not attention(*given, dropout_p=1.0).cpu().any()
    mask = torch.zeros(33, 33, device="sim", requires_grad=True)
    assert choice(*given, mask) == MATH
    attention(*given, attn_mask=mask).square().sum().backward()
    assert mask.grad is not None and mask.grad.cpu().any()
    with torch.no_grad():
        assert choice(*given, mask) == FUSED


def test_the_gradient_in_pythons_words_for_no_bias() -> None:
    given = [each.to("sim") for each in operands()]
    aten = torch.ops.aten
    out, logsumexp, *rest = aten._scaled_dot_product_fused_attention_overrideable(*given)
    none = torch.empty(0, device="sim")
    *found, of_bias = aten._scaled_dot_product_fused_attention_overrideable_backward(
        torch.ones_like(out), *given, none, [True, True, True, False], out, logsumexp, *rest[:4], 0.0,
        False, *rest[4:6],
    )  # fmt: skip
    own = [each.requires_grad_() for each in given]
    expected = torch.autograd.grad(attention(*own).sum(), own)
    assert of_bias is None
    assert all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(found, expected, strict=True))


def test_the_users_list_of_backends_is_kept_to() -> None:
    given = [each.to("sim") for each in operands()]
    for allowed, expected in (([MATH], MATH), ([FUSED], FUSED), ([MATH, FUSED], FUSED)):
        with sdpa_kernel(allowed):
            assert choice(*given) == expected
    with sdpa_kernel([MATH, FUSED], set_priority=True):
        assert choice(*given) == MATH
    with sdpa_kernel([FUSED, MATH], set_priority=True):
        assert choice(*given) == FUSED


@pytest.mark.parametrize(
    ("allowed", "dropout", "reason"),
    [
        (SDPBackend.FLASH_ATTENTION, 0.0, "torch.nn.attention.sdpa_kernel leaves OVERRIDEABLE out"),
        (FUSED, 0.5, "`opsmith::optimized::native::attention_out` does not have dropout"),
    ],
)
def test_a_list_that_allows_nothing_is_an_error(
    allowed: SDPBackend, dropout: float, reason: str
) -> None:
    given = [each.to("sim") for each in operands()]
    with sdpa_kernel(allowed), pytest.raises(RuntimeError) as caught:
        attention(*given, dropout_p=dropout)
    assert str(caught.value).startswith(
        "scaled_dot_product_attention on sim:0: No viable backend was found: MATH is turned off, and "
        f"OVERRIDEABLE cannot take the call: {reason}\n"
        "  remedy: add SDPBackend.MATH to the list of sdpa_kernel"
    )


def test_autocast_inference_checkpoints_and_transforms() -> None:
    given = [each.to("sim") for each in operands()]
    plain = attention(*given)
    with torch.autocast("sim", dtype=torch.bfloat16):
        cast = attention(*given)
    assert cast.dtype == torch.bfloat16
    torch.testing.assert_close(cast.float(), plain, rtol=0.05, atol=0.05)
    with torch.inference_mode():
        torch.testing.assert_close(attention(*given), plain)
    expected = results("sim", given)
    own = [each.detach().requires_grad_() for each in given]
    out = checkpoint(attention, *own, use_reentrant=False)
    out.backward(torch.linspace(-1, 1, out.numel()).view(out.shape).to(out))
    torch.testing.assert_close(
        [each.grad.cpu() for each in own if each.grad is not None], expected[2:]
    )
    torch.testing.assert_close(torch.vmap(attention)(*(each[None] for each in given))[0], plain)
    assert (
        torch.func.jvp(lambda q: attention(q, *given[1:]), (given[0],), (given[0],))[1].shape
        == plain.shape
    )


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled(dynamic: bool) -> None:
    def block(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        heads = attention(query * 1.0, key, value, is_causal=True)
        return heads.transpose(1, 2).flatten(2).sin()

    graphs: list[str] = []

    def listed(graph: torch.fx.GraphModule, _: object) -> torch.fx.GraphModule:
        graphs.append(graph.code)
        return graph

    from torch._dynamo.backends.common import aot_autograd

    torch._dynamo.reset()
    backend = aot_autograd(fw_compiler=listed, bw_compiler=listed)
    compiled = torch.compile(block, backend=backend, dynamic=dynamic)
    found = []
    for function in (block, compiled):
        own = [each.to("sim").requires_grad_() for each in operands()]
        out = function(*own)
        out.square().sum().backward()
        found.append([out.detach(), *(each.grad for each in own)])
    torch.testing.assert_close(found[1], found[0])
    assert len(graphs) == 2 and all("fused_attention_overrideable" in code for code in graphs)


@pytest.mark.parametrize("case", CASES)
def test_gradients_without_data_are_laid_out_alike(case: str) -> None:
    def gradients() -> list[tuple[object, ...]]:
        shapes, options = CASES[case]
        own = [
            torch.empty_strided(each.size(), each.stride(), device="sim").requires_grad_()
            for each in shapes
        ]
        there = {
            name: torch.zeros(each.size(), dtype=each.dtype, device="sim")
            if isinstance(each, Tensor)
            else each
            for name, each in options.items()
        }
        found = torch.autograd.grad(attention(*own, **there).sum(), own)
        return [(each.size(), each.stride(), each.dtype, each.device) for each in found]

    real = gradients()
    with FakeTensorMode(allow_fallback_kernels=False):
        assert gradients() == real


def test_a_layer_trains_as_on_the_cpu() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True)
    x = torch.randn(3, 7, 32)
    padding = torch.zeros(3, 7, dtype=torch.bool)
    padding[1, 4:] = True

    def gradients(device: str) -> list[Tensor]:
        module = layer.to(device)
        module.zero_grad()
        module(x.to(device), src_key_padding_mask=padding.to(device)).square().sum().backward()
        return [each.grad.clone().cpu() for each in module.parameters() if each.grad is not None]

    theirs = gradients("cpu")
    for ours, other in zip(gradients("sim"), theirs, strict=True):
        torch.testing.assert_close(ours, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("dim", [0, 1])
def test_softmax_of_masked_rows(dtype: torch.dtype, dim: int) -> None:
    x = torch.tensor(
        [[1.0, -torch.inf, 2.0], [-torch.inf] * 3, [torch.nan, -torch.inf, 0.0]], dtype=dtype
    )
    safe_softmax = torch.ops.aten._safe_softmax
    torch.testing.assert_close(
        safe_softmax(x.to("sim"), dim).cpu(), safe_softmax(x, dim), equal_nan=True
    )
    assert safe_softmax(x.to("sim"), dim, torch.float32).dtype == torch.float32


# ---- what PyTorch's modules call whole in inference


MASKS = {
    "nothing": {},
    "later tokens": {"src_mask": torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)},
    "padding": {"src_key_padding_mask": torch.arange(5) >= torch.tensor([[5], [3], [0]])},
}


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("masked", MASKS)
def test_an_encoder_layer_in_inference(norm_first: bool, activation: str, masked: str) -> None:
    """Of the sequence that is all padding both give NaN."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(
        16, 2, 32, 0.0, activation, batch_first=True, norm_first=norm_first
    ).eval()
    x, masks = torch.randn(3, 5, 16), MASKS[masked]
    with torch.no_grad():
        theirs = layer(x, **masks)
        ours = layer.to("sim")(
            x.to("sim"), **{name: mask.to("sim") for name, mask in masks.items()}
        )
    torch.testing.assert_close(ours.cpu(), theirs, equal_nan=True)


@pytest.mark.parametrize("average", [True, False])
def test_attention_of_a_module_in_inference(average: bool) -> None:
    torch.manual_seed(0)
    module = nn.MultiheadAttention(16, 2, batch_first=True).eval()
    x = torch.randn(3, 5, 16)

    def call(device: str, need_weights: bool) -> Any:
        there = x.to(device)
        with torch.no_grad():
            return module.to(device)(
                there, there, there, need_weights=need_weights, average_attn_weights=average
            )

    for need_weights in (True, False):
        theirs = call("cpu", need_weights)
        for mine, other in zip(call("sim", need_weights), theirs, strict=True):
            assert (
                (mine is None) == (other is None) == (other is not theirs[0] and not need_weights)
            )
            if mine is not None:
                torch.testing.assert_close(mine.cpu(), other)


def test_native_attention_of_other_keys_and_values() -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 2, 5, 8)
    weights = torch.randn(24, 8), torch.randn(24), torch.randn(8, 8), torch.randn(8)
    attend = torch.ops.aten._native_multi_head_attention
    on_device = [each.to("sim") for each in (query, key, value)]
    weights_there = [each.to("sim") for each in weights]
    ours = attend(*on_device, 8, 2, *weights_there)
    for mine, other in zip(ours, attend(query, key, value, 8, 2, *weights), strict=True):
        torch.testing.assert_close(mine.cpu(), other)
    with pytest.raises(RuntimeError, match="`embed_dim` must divide evenly by `num_heads`"):
        attend(*on_device, 8, 3, *weights_there)
    with pytest.raises(RuntimeError, match="Mask Type should be defined"):
        attend(*on_device, 8, 2, *weights_there, torch.ones(5, 5, device="sim", dtype=torch.bool))
