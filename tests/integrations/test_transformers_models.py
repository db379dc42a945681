"""Models of transformers on the device, with random weights, against the same on the CPU."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import libraries

libraries.require("transformers", "accelerate")

import opsmith  # noqa: E402

opsmith.load("sim")

import torch  # noqa: E402
import transformers  # noqa: E402

pytestmark = pytest.mark.isolated(OPSMITH_HOST_WINDOW=("on", "off"), nightly=("on", "off"))

VOCABULARY = 64
IDS = {"vocab_size": VOCABULARY, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
HEADS = {"num_attention_heads": 4, "num_hidden_layers": 2}
WIDTH = {"hidden_size": 32, "intermediate_size": 48}
DECODER = {**IDS, **HEADS, **WIDTH, "num_key_value_heads": 2, "max_position_embeddings": 64}
ENCODER_DECODER = {
    **IDS,
    **dict.fromkeys(("encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 48),
    "d_model": 32,
    "dropout": 0,
    "decoder_start_token_id": 3,
}
NO_DROPOUT = {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}

Inputs = dict[str, Any]


class Model(NamedTuple):
    """The class of a model without its end, its configuration, its inputs, and those of ``generate``."""

    head: str
    config: str
    options: dict[str, Any]
    inputs: Callable[[], Inputs]
    generated_from: tuple[str, ...] = ()


def ids(*shape: int) -> torch.Tensor:
    return torch.randint(4, VOCABULARY - 1, shape)


def text() -> Inputs:
    tokens = ids(2, 9)
    mask = torch.ones_like(tokens)
    mask[0, :3] = 0
    return {"input_ids": tokens, "attention_mask": mask, "labels": tokens.clone()}


def translation() -> Inputs:
    return {**text(), "labels": ids(2, 5)}


def images() -> Inputs:
    return {"pixel_values": torch.randn(2, 3, 16, 16), "labels": torch.tensor([0, 1])}


def images_and_text() -> Inputs:
    return {
        "input_ids": ids(2, 9),
        "pixel_values": torch.randn(2, 3, 16, 16),
        "return_loss": True,
    }


TEXT = ("input_ids", "attention_mask")
MODELS = {
    "llama": Model("LlamaForCausalLM", "LlamaConfig", DECODER, text, TEXT),
    "gpt2": Model(
        "GPT2LMHeadModel",
        "GPT2Config",
        {
            **{**IDS, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
            **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0),
        },
        text,
        TEXT,
    ),
    "mistral": Model(
        "MistralForCausalLM", "MistralConfig", {**DECODER, "sliding_window": 6}, text, TEXT
    ),
    # Its experts are counted by torch.histc of integers.
    "mixtral": Model(
        "MixtralForCausalLM", "MixtralConfig", {**DECODER, "num_local_experts": 4}, text, TEXT
    ),
    "bert": Model("BertForMaskedLM", "BertConfig", {**IDS, **HEADS, **WIDTH, **NO_DROPOUT}, text),
    "distilbert": Model(
        "DistilBertForMaskedLM",
        "DistilBertConfig",
        {
            **{**IDS, "dim": 32, "hidden_dim": 48, "n_layers": 2, "n_heads": 4},
            **{"dropout": 0, "attention_dropout": 0},
        },
        text,
    ),
    "t5": Model(
        "T5ForConditionalGeneration",
        "T5Config",
        {
            **{**IDS, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4},
            **{"dropout_rate": 0, "decoder_start_token_id": 0},
        },
        translation,
        TEXT,
    ),
    "vit": Model(
        "ViTForImageClassification",
        "ViTConfig",
        {**HEADS, **WIDTH, **NO_DROPOUT, "image_size": 16, "patch_size": 4},
        images,
    ),
    "whisper": Model(
        "WhisperForConditionalGeneration",
        "WhisperConfig",
        {
            **ENCODER_DECODER,
            **{"num_mel_bins": 16, "max_source_positions": 20, "max_target_positions": 32},
            **{"suppress_tokens": None, "begin_suppress_tokens": None},
        },
        lambda: {"input_features": torch.randn(2, 16, 40), "labels": ids(2, 5)},
        ("input_features",),
    ),
    "clip": Model(
        "CLIPModel",
        "CLIPConfig",
        {
            "text_config": {**IDS, **HEADS, **WIDTH, "max_position_embeddings": 16},
            "vision_config": {**HEADS, **WIDTH, "image_size": 16, "patch_size": 4},
            "projection_dim": 16,
        },
        images_and_text,
    ),
    "wav2vec2": Model(
        "Wav2Vec2ForCTC",
        "Wav2Vec2Config",
        {
            **{**IDS, **HEADS, **WIDTH, "num_feat_extract_layers": 2},
            **{"conv_dim": (8, 8), "conv_kernel": (4, 3), "conv_stride": (4, 2)},
            **{"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2},
            **dict.fromkeys(
                ("hidden_dropout", "attention_dropout", "activation_dropout", "layerdrop"), 0
            ),
            **{"feat_proj_dropout": 0, "final_dropout": 0, "apply_spec_augment": False},
        },
        lambda: {"input_values": torch.randn(2, 400), "labels": ids(2, 5)},
    ),
}
GENERATING = [name for name, model in MODELS.items() if model.generated_from]


class Pair(NamedTuple):
    """A model on the CPU, its copy on the device, and inputs."""

    cpu: Any
    device: Any
    inputs: Inputs


def make(name: str) -> Pair:
    torch.manual_seed(0)
    model = MODELS[name]
    config = getattr(transformers, model.config)(**model.options)
    on_cpu = getattr(transformers, model.head)(config)
    return Pair(on_cpu, copy.deepcopy(on_cpu).to("sim"), model.inputs())


def on(device: str, inputs: Inputs, dtype: torch.dtype | None = None) -> Inputs:
    return {
        name: value.to(device, dtype if value.is_floating_point() else None)
        if isinstance(value, torch.Tensor)
        else value
        for name, value in inputs.items()
    }


def result(output: Any) -> torch.Tensor:
    found: torch.Tensor = (
        output.logits if output.get("logits") is not None else output.logits_per_image
    )
    return found


def check_close(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert found.device.type == "sim"
    assert found.dtype == expected.dtype
    scale = max(1.0, expected.abs().max().item())
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-3, atol=1e-3 * scale)


def trained(model: Any, inputs: Inputs) -> dict[str, torch.Tensor]:
    """The output of one step, and all gradients."""
    output = model(**inputs)
    output.loss.backward()
    gradients = {
        name: each.grad for name, each in model.named_parameters() if each.grad is not None
    }
    assert gradients
    return {"output": result(output).detach(), **gradients}


def check_training(pair: Pair) -> None:
    found = trained(pair.device, on("sim", pair.inputs))
    expected = trained(pair.cpu, pair.inputs)
    assert found.keys() == expected.keys()
    for name in expected:
        check_close(found[name], expected[name])


def largest_error(found: dict[str, torch.Tensor], exact: dict[str, torch.Tensor]) -> float:
    """The largest distance of a tensor, in parts of the norm of the exact one where that is above 1."""
    return max(
        ((found[name].cpu().float() - exact[name]).norm() / max(1.0, exact[name].norm())).item()
        for name in exact
    )


@pytest.mark.parametrize("name", MODELS)
def test_outputs_and_gradients(name: str) -> None:
    check_training(make(name))


@pytest.mark.parametrize("name", MODELS)
def test_gradient_checkpointing(name: str) -> None:
    pair = make(name)
    pair.cpu.train()
    pair.device.train()
    pair.cpu.gradient_checkpointing_enable()
    pair.device.gradient_checkpointing_enable()
    check_training(pair)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
@pytest.mark.parametrize("name", MODELS)
def test_half_precision(name: str, dtype: torch.dtype) -> None:
    """As near to float32 as the CPU, which rounds in another order."""
    pair = make(name)
    on_cpu, on_device = pair.cpu.to(dtype), pair.device.to(dtype)
    inputs = on("cpu", pair.inputs, dtype)
    exact = trained(copy.deepcopy(on_cpu).float(), on("cpu", inputs, torch.float32))
    found = trained(on_device, on("sim", inputs))
    assert {each.device.type for each in found.values()} == {"sim"}
    assert largest_error(found, exact) <= 2 * largest_error(trained(on_cpu, inputs), exact)


SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "beams": {"num_beams": 3, "num_return_sequences": 2},
    "without_cache": {"use_cache": False},
    "static_cache": {"cache_implementation": "static"},
    "penalties": {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2, "min_new_tokens": 3},
}


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("name", GENERATING)
def test_generating(name: str, search: str) -> None:
    pair = make(name)
    options = {**SEARCHES[search], "max_new_tokens": 8, "do_sample": False}
    inputs = {key: pair.inputs[key] for key in MODELS[name].generated_from}
    found = pair.device.eval().generate(**on("sim", inputs), **options)
    assert found.device.type == "sim"
    assert torch.equal(found.cpu(), pair.cpu.eval().generate(**inputs, **options))


@pytest.mark.parametrize("name", GENERATING)
def test_sampling_draws_from_the_device(name: str) -> None:
    pair = make(name)
    inputs = on("sim", {key: pair.inputs[key] for key in MODELS[name].generated_from})
    options = {"max_new_tokens": 8, "do_sample": True, "top_k": 20, "top_p": 0.9, "num_beams": 1}
    drawn = []
    for _ in range(2):
        torch.manual_seed(5)
        drawn.append(pair.device.eval().generate(**inputs, **options))
    assert torch.equal(drawn[0], drawn[1])


@pytest.mark.parametrize("name", MODELS)
def test_saved_and_loaded(name: str, tmp_path: Path) -> None:
    pair = make(name)
    pair.device.save_pretrained(tmp_path)
    expected = result(pair.cpu.eval()(**pair.inputs)).detach()
    for device_map in ("sim", {"": "sim:0"}, {"": 0}, "auto"):
        loaded = type(pair.device).from_pretrained(tmp_path, device_map=device_map)
        assert {each.device.type for each in loaded.parameters()} == {"sim"}
        with torch.no_grad():
            check_close(result(loaded(**on("sim", pair.inputs))), expected)
