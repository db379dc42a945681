"""accelerate, transformers' Trainer and Lightning train on the device without being told of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import libraries

libraries.require("accelerate", "transformers", "lightning")

import opsmith  # noqa: E402

opsmith.load("sim")

import accelerate  # noqa: E402
import lightning.pytorch  # noqa: E402
import pytorch_lightning  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from accelerate.state import AcceleratorState  # noqa: E402
from lightning.fabric import Fabric  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402
from transformers import testing_utils  # noqa: E402

pytestmark = pytest.mark.isolated(OPSMITH_HOST_WINDOW=("on",), nightly=("on",))


@pytest.fixture(autouse=True)
def fresh() -> None:
    AcceleratorState._reset_state(True)
    torch.manual_seed(0)


def data() -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.randn(64, 8), torch.randn(64, 1)), batch_size=16)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1))


# ---- accelerate ----


@pytest.mark.parametrize("mixed_precision", ["no", "fp16", "bf16"])
def test_accelerate_trains(mixed_precision: str, tmp_path: Path) -> None:
    accelerator = accelerate.Accelerator(mixed_precision=mixed_precision)
    assert accelerator.device.type == "sim"
    assert (accelerator.scaler is not None) == (mixed_precision == "fp16")
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model, optimizer, loader = accelerator.prepare(model, optimizer, data())
    losses = []
    for _ in range(3):
        for inputs, wanted in loader:
            assert inputs.device.type == "sim"
            loss = nn.functional.mse_loss(model(inputs), wanted)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    assert losses[-1] < losses[0]
    accelerator.save_state(str(tmp_path))
    drawn = torch.rand(3, device="sim")
    accelerator.load_state(str(tmp_path))
    assert torch.equal(torch.rand(3, device="sim"), drawn)


def test_accelerate_spreads_a_model() -> None:
    model = nn.Sequential(*(nn.Linear(100, 100) for _ in range(4)))
    device_map = accelerate.infer_auto_device_map(model, max_memory={0: "90KB", 1: "1MB"})
    assert set(device_map.values()) == {0, 1}
    shares = accelerate.utils.get_balanced_memory(model, {0: "1MB", 1: "1MB"})
    assert shares[0] < shares[1] == 1_000_000
    expected = model(torch.ones(2, 100))
    spread = accelerate.dispatch_model(model, device_map)
    assert {each.device for each in spread.parameters()} == {
        torch.device("sim:0"),
        torch.device("sim:1"),
    }
    torch.testing.assert_close(spread(torch.ones(2, 100)), expected)


# ---- transformers ----


def tiny() -> Any:
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            attention_dropout=0.1,
        )
    )


@pytest.mark.parametrize(
    "options", [{}, {"fp16": True}, {"bf16": True}, {"use_cpu": True}], ids=str
)
def test_trainer(options: dict[str, Any], tmp_path: Path) -> None:
    tokens = [torch.randint(0, 64, (8,)) for _ in range(16)]
    texts = [{"input_ids": each, "labels": each} for each in tokens]

    def trained(checkpoint: str | None = None) -> Any:
        AcceleratorState._reset_state(True)
        arguments = transformers.TrainingArguments(
            str(tmp_path),
            max_steps=4,
            save_steps=2,
            per_device_train_batch_size=4,
            report_to=[],
            **options,
        )
        torch.manual_seed(0)
        trainer = transformers.Trainer(tiny(), arguments, train_dataset=texts)
        trainer.train(resume_from_checkpoint=checkpoint)
        return trainer

    trainer = trained()
    expected = "cpu" if options.get("use_cpu") else "sim"
    assert trainer.args.device.type == trainer.model.device.type == expected
    resumed = trained(str(tmp_path / "checkpoint-2"))
    for found, wanted in zip(resumed.model.parameters(), trainer.model.parameters(), strict=True):
        torch.testing.assert_close(found, wanted)


def test_the_device_of_transformers_tests() -> None:
    assert testing_utils.torch_device == "sim"
    assert testing_utils.backend_device_count("sim") == 2
    before = testing_utils.backend_memory_allocated("sim")
    kept = torch.ones(1000, device="sim")
    assert testing_utils.backend_memory_allocated("sim") == before + 4096
    assert kept.sum().item() == 1000


# ---- Lightning ----


@pytest.mark.parametrize("package", [lightning.pytorch, pytorch_lightning])
@pytest.mark.parametrize("accelerator", ["auto", "sim", "cpu"])
@pytest.mark.parametrize("precision", ["32-true", "16-mixed", "bf16-mixed"])
def test_lightning_trains(package: Any, accelerator: str, precision: str, tmp_path: Path) -> None:
    losses: list[torch.Tensor] = []

    class Network(package.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.network = network()

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            mixed = precision != "32-true"
            assert torch.is_autocast_enabled(self.device.type) == mixed
            loss = nn.functional.mse_loss(self.network(batch[0]), batch[1])
            losses.append(loss.detach())
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), lr=1e-2)

    trainer = package.Trainer(
        accelerator=accelerator,
        precision=precision,
        max_epochs=3,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    trainer.fit(Network(), data())
    expected = "cpu" if accelerator == "cpu" else "sim"
    assert trainer.strategy.root_device.type == losses[0].device.type == expected
    assert losses[-1] < losses[0]


def test_fabric() -> None:
    fabric = Fabric(precision="16-mixed")
    model = network()
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
    inputs = torch.randn(4, 8, device=fabric.device)
    fabric.backward(model(inputs).sum())
    optimizer.step()
    assert fabric.device == torch.device("sim:0")
    assert {each.grad.device.type for each in model.parameters()} == {"sim"}
