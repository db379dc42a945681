"""Trains a small CNN on scikit-learn's handwritten digits, on the device and on the CPU.

Both start from the same weights and seeds and see the same batches, so their losses can be compared
step by step.  The data set is part of scikit-learn: 1,797 real 8×8 images, nothing is downloaded.
"""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from opsmith.cli.demonstration.process_age import process_age
from opsmith.errors import OpsmithError
from opsmith.plan import Plan, Route
from opsmith.runtime.records.calls import record_calls

BATCH = 64
_TRAINED = 1437  # the first 80 %; the rest is held out
_SEED = 0


@dataclass
class Run:
    """One device's training: losses by epoch and by step, seconds by step, accuracy on held-out images.

    ``first_step_s`` is how old the process was after the first step, in seconds.
    """

    device: str
    epoch_losses: list[float] = field(default_factory=list)
    step_losses: list[float] = field(default_factory=list)
    step_seconds: list[float] = field(default_factory=list)
    accuracy: float = 0.0
    first_step_s: float = 0.0

    @property
    def warm_steps_ms(self) -> list[float]:
        """The steps in milliseconds; the first epoch warms up and is left out, where there are others."""
        warm = self.step_seconds[len(self.step_seconds) // max(len(self.epoch_losses), 1) :]
        return [1e3 * seconds for seconds in warm or self.step_seconds]

    @property
    def step_ms(self) -> float:
        """The median step in milliseconds."""
        return statistics.median(self.warm_steps_ms)


@dataclass(frozen=True)
class TrainingComparison:
    """The device's run beside the CPU's, and the device's operator calls of the first epoch by route."""

    device: Run
    cpu: Run
    calls_by_route: dict[Route, int]

    @property
    def max_loss_difference(self) -> float:
        """The largest absolute difference between the two losses at any step."""
        pairs = zip(self.device.step_losses, self.cpu.step_losses, strict=True)
        return max(abs(a - b) for a, b in pairs)


def digits() -> tuple[Tensor, Tensor]:
    """Images ``(1797, 1, 8, 8)`` float32 in [0, 1], and labels ``(1797,)`` int64."""
    found = importlib.util.find_spec("sklearn")
    if found is None or found.origin is None:
        raise OpsmithError(
            "the demo needs scikit-learn for its data set", remedy="pip install 'opsmith[demo]'"
        )
    import numpy  # scikit-learn brings it

    # Its own loader imports SciPy and pandas for it: two seconds.
    file = Path(found.origin).parent / "datasets" / "data" / "digits.csv.gz"
    try:
        rows = torch.from_numpy(numpy.loadtxt(file, delimiter=",", dtype=numpy.int64))
    except OSError as error:
        raise OpsmithError(
            f"scikit-learn's data set of digits cannot be read: {error}",
            remedy="pip install --force-reinstall scikit-learn",
        ) from None
    images = rows[:, :-1].to(torch.float32).div_(16).view(-1, 1, 8, 8)
    return images, rows[:, -1].contiguous()


class _SharedDropout(nn.Dropout):
    """Dropout by masks that the CPU draws, so that training drops the same elements on every device."""

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return input
        kept = torch.empty(input.shape).bernoulli_(1 - self.p)
        return input * kept.div_(1 - self.p).to(input.device)


def network() -> nn.Module:
    """A CNN of about 25,000 parameters, with batch norm and dropout."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        _SharedDropout(0.25),
        nn.Linear(32 * 4 * 4, 40),
        nn.GELU(),
        nn.Linear(40, 10),
    )


class _Trainer:
    """One device's model, optimiser and data, trained an epoch at a time."""

    def __init__(self, device: str, images: Tensor, labels: Tensor) -> None:
        self.run = Run(device)
        self.generator = torch.Generator().manual_seed(_SEED)
        torch.manual_seed(_SEED)
        self.model = network().to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=2e-3)
        self.images = images.to(device)
        self.labels = labels.to(device)

    def epoch(self) -> None:
        # Both devices get the same dropout masks from here on.
        torch.manual_seed(_SEED + 1 + len(self.run.epoch_losses))
        self.model.train()
        losses = []
        order = torch.randperm(_TRAINED, generator=self.generator)
        for batch in torch.split(order, BATCH):
            indices = batch.to(self.run.device)
            start = time.perf_counter()
            losses.append(self._step(self.images[indices], self.labels[indices]))
            self.run.step_seconds.append(time.perf_counter() - start)
            if not self.run.first_step_s:
                self.run.first_step_s = process_age()
        self.run.step_losses += losses
        self.run.epoch_losses.append(statistics.fmean(losses))

    def _step(self, images: Tensor, labels: Tensor) -> float:
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(images), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.item()  # waits for the device

    def measure_accuracy(self) -> None:
        self.model.eval()
        with torch.no_grad():
            predicted = self.model(self.images[_TRAINED:]).argmax(1)
            self.run.accuracy = (predicted == self.labels[_TRAINED:]).float().mean().item()


def compare(
    device: str, plan: Plan, epochs: int, report: Callable[[int, Run, Run], None]
) -> TrainingComparison:
    """Trains on ``device`` and on the CPU, epoch by epoch in turn, and calls ``report`` after each."""
    images, labels = digits()
    ours, theirs = _Trainer(device, images, labels), _Trainer("cpu", images, labels)
    calls: dict[Route, int] = {}
    for epoch in range(epochs):
        if epoch == 0:
            with record_calls() as recorded:
                ours.epoch()
            calls = recorded.calls.by_route(plan)
        else:
            ours.epoch()
        theirs.epoch()
        report(epoch, ours.run, theirs.run)
    ours.measure_accuracy()
    theirs.measure_accuracy()
    return TrainingComparison(ours.run, theirs.run, calls)
