"""A device beside another of the same machine: calls, bandwidth, products, overlap, training steps.

``python benchmarks/beside.py [PART…] [--device cuda_driver] [--peer cuda] [--small]``: all parts where none
is named.  Both sides have the same inputs and take turns; results are compared before anything is measured.
What fails on the device is said and left out of the table, and the exit status is 1.  ``--small`` takes sizes
that a simulated device is done with.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from _models import TRAININGS, Bottleneck, Training, gpt2_of, gpt2_small, normed, resnet50
from torch import Tensor, nn
from torch.nn import functional

import opsmith
from opsmith.observe.benchmarks.measurements import Measurement, measured, report
from opsmith.runtime.records.calls import record_calls

ROUNDS = 9
ROUND_SECONDS = 0.05
_MOST_CALLS = 500
# Relative to the largest magnitude of the peer's result: both sides sum in an order of their own.
_TOLERANCES = {torch.float32: 2e-3, torch.float16: 2e-2, torch.bfloat16: 4e-2}

Step = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """One thing to measure: ``make`` gives it on a device, the same numbers each time.

    ``calls`` in a row, or as many as a round has time for, are measured until they are queued where
    ``is_queued`` is set, else to their end.
    """

    name: str
    make: Callable[[str], Callable[[], Tensor]]
    goal: float
    calls: int = 0
    is_queued: bool = False
    is_compared: bool = True


def synchronize(device: str) -> None:
    getattr(torch, device).synchronize()


def microseconds(device: str, call: Step, calls: int, *, is_queued: bool) -> float:
    """Of one of ``calls`` calls in a row, until the last is queued, or done."""
    synchronize(device)
    start = time.perf_counter()
    for _ in range(calls):
        call()
    if not is_queued:
        synchronize(device)
    taken = time.perf_counter() - start
    synchronize(device)
    return 1e6 * taken / calls


def difference(ours: Tensor, peer: Tensor) -> float:
    """The largest, as a part of the peer's largest magnitude."""
    ours, peer = ours.detach().cpu().double(), peer.detach().cpu().double()
    return ((ours - peer).abs().max() / peer.abs().max().clamp_min(1e-30)).item()


def beside(case: Case, device: str, peer: str) -> Measurement:
    """The case on both, in turn.  Raises AssertionError where the results differ."""
    sides = {name: case.make(name) for name in (device, peer)}
    results = {name: call() for name, call in sides.items()}
    if case.is_compared:
        expected = results[peer]
        off = difference(results[device], expected)
        # Not-a-number is never within.
        if not off <= _TOLERANCES.get(expected.dtype, 0.0):
            raise AssertionError(f"differs from {peer}'s by {off:.2g} of its largest value")
    del results
    calls = case.calls
    if not calls:
        slowest = max(microseconds(name, call, 2, is_queued=False) for name, call in sides.items())
        calls = max(1, min(_MOST_CALLS, round(1e6 * ROUND_SECONDS / slowest)))
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(ROUNDS):
        for name, call in sides.items():
            taken[name].append(microseconds(name, call, calls, is_queued=case.is_queued))
    return measured(case.name, "µs", taken[device], taken[peer], case.goal)


def numbers(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def on(*tensors: Tensor, call: Callable[..., Tensor]) -> Callable[[str], Callable[[], Tensor]]:
    """``call`` of ``tensors``, on the device that it is then given."""

    def make(device: str) -> Callable[[], Tensor]:
        return partial(call, *(tensor.to(device) for tensor in tensors))

    return make


def calls(small: bool) -> Iterator[Case]:
    """The host's time of a call, and many small ones in a row."""
    a, b, out = numbers(4), numbers(4, seed=1), torch.zeros(4)
    square = numbers(16, 16)
    count = 50 if small else 2000
    queued = {
        "add of 4": on(a, b, call=torch.add),
        "add_ of 4": on(out, b, call=Tensor.add_),
        "add of 4, out": on(a, b, out, call=lambda a, b, out: torch.add(a, b, out=out)),
        "mm of 16 × 16": on(square, square, call=torch.mm),
    }
    for name, make in queued.items():
        yield Case(f"{name}, queued", make, 1.2, calls=count // 4, is_queued=True)
    yield Case(f"{5 * count:,} × add of 4, each", on(a, b, call=torch.add), 1.2, calls=5 * count)


def bandwidth(small: bool) -> Iterator[Case]:
    """Operators that move each byte once: 64 MiB of inputs."""
    for dtype in (torch.float32, torch.bfloat16):
        size = (1 << 16 if small else 64 << 20) // dtype.itemsize
        wide = numbers(size // 1024, 1024, dtype=dtype)
        name = f"{'64 KiB' if small else '64 MiB'} {str(dtype).removeprefix('torch.')}"
        cases: dict[str, Callable[..., Tensor]] = {
            "add": lambda x: x + x,
            "mul by a number": lambda x: x * 1.5,
            "exp": torch.exp,
            "gelu": functional.gelu,
            "copy": torch.clone,
            "transposed copy": lambda x: x.t().contiguous(),
            "sum of rows": lambda x: x.sum(-1),
            "sum of columns": lambda x: x.sum(0),
            "softmax": lambda x: x.softmax(-1),
            "layer_norm": lambda x: functional.layer_norm(x, x.shape[-1:]),
        }
        for case, call in cases.items():
            yield Case(f"{case}, {name}", on(wide, call=call), 1 / 0.9)
        yield Case(f"sum, {name}", on(wide, call=torch.sum), 1 / 0.9, is_compared=False)


def products(small: bool) -> Iterator[Case]:
    """Matrix products, convolutions, attention."""
    side = 64 if small else 4096
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        name = "TF32" if dtype is torch.float32 else str(dtype).removeprefix("torch.")
        square = numbers(side, side, dtype=dtype)
        yield Case(f"mm of {side}³, {name}", on(square, square, call=torch.mm), 1 / 0.95)
    channels, image = (8, 8) if small else (256, 56)
    for dtype in (torch.bfloat16, torch.float32):
        images = numbers(4 if small else 32, channels, image, image, dtype=dtype)
        weight = numbers(channels, channels, 3, 3, dtype=dtype) / (3 * channels**0.5)
        name = f"3 × 3 convolution of {channels} channels, {dtype}".replace("torch.", "")
        yield Case(
            name, on(images, weight, call=lambda x, w: functional.conv2d(x, w, padding=1)), 1 / 0.95
        )
    tokens = 64 if small else 4096
    heads = numbers(1, 16, tokens, 64, dtype=torch.bfloat16)
    attend = functional.scaled_dot_product_attention
    yield Case(
        f"attention, 16 heads, {tokens:,} tokens, bfloat16",
        on(heads, heads, heads, call=attend),
        1 / 0.8,
    )


@dataclass(frozen=True)
class Trained:
    """A model's training step, the model and its batch in ``layout``, in ``autocast`` if set."""

    training: Training
    layout: torch.memory_format = torch.preserve_format
    autocast: torch.dtype | None = None
    steps: int = 1

    def on(self, device: str, *, is_compiled: bool = False) -> Step:
        context: Callable[[], AbstractContextManager[object]] = nullcontext
        if self.autocast is not None:
            context = partial(torch.autocast, device, self.autocast)
        return self.training.step(device, self.layout, context, is_compiled=is_compiled)


def trained(small: bool) -> dict[str, Trained]:
    """The models that are trained, by name; small ones have a layer of each kind."""
    images, size, batch, tokens = (2, 8, 1, 8) if small else (64, 224, 8, 1024)
    known = 100 if small else 50257

    def pictures() -> tuple[Tensor, Tensor]:
        return numbers(images, 3, size, size), torch.randint(0, 10, (images,))

    def text() -> tuple[Tensor, Tensor]:
        inputs, classes = torch.randint(0, known, (2, batch, tokens)).unbind()
        return inputs, classes

    cnn = TRAININGS["CNN of the demo, batch 64"]
    resnet = Training(small_resnet if small else resnet50, pictures)
    gpt2 = Training(partial(gpt2_of, known, 32, 2, 1) if small else gpt2_small, text)
    return {
        "the demo's CNN": Trained(cnn, steps=1 if small else 20),
        f"ResNet{'' if small else '-50'}, channels-last, autocast": Trained(
            resnet, torch.channels_last, torch.bfloat16
        ),
        "GPT-2 small, autocast": Trained(gpt2, autocast=torch.bfloat16),
    }


def small_resnet() -> nn.Module:
    """ResNet's beginning, two of its blocks and its end."""
    blocks = (Bottleneck(8, 4, 1), Bottleneck(16, 4, 2))
    end = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
    return nn.Sequential(*normed(3, 8, 3), nn.ReLU(), nn.MaxPool2d(3, 2, 1), *blocks, *end)


def overlap(device: str, small: bool) -> Measurement:
    """The host's time of products in a row, beside that until all are done."""
    side = 128 if small else 2048
    square = numbers(side, side).to(device)
    call = partial(torch.mm, square, square)
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for is_queued, times in ((True, taken[0]), (False, taken[1])):
            times.append(microseconds(device, call, 50, is_queued=is_queued))
    return measured(f"the host's part of 50 × mm of {side}³", "µs", *taken, 0.3)


_COMPILED = ", compiled"
_current: dict[str, Step] = {}


def _begin(device: str, name: str, small: bool, backend: str = "") -> dict[str, int]:
    """In a side's process: two first steps; what of a step ran on the CPU, by operator.

    ``device`` is that of ``backend``, if it is one of opsmith's.  The ``name`` of a compiled model says so.
    """
    if backend:
        opsmith.load(backend)
    _current.clear()
    each = trained(small)[name.removesuffix(_COMPILED)]
    step = _current[name] = each.on(device, is_compiled=name.endswith(_COMPILED))
    step()
    with record_calls() if backend else nullcontext() as recorded:
        step()
    if recorded is None:
        return {}
    on_cpu = Counter[str]()
    for call in recorded.calls.tree:
        on_cpu[call.operator] += call.fell_back + call.on_copies
    return dict(+on_cpu)


def _milliseconds(device: str, name: str, steps: int) -> float:
    return microseconds(device, _current[name], steps, is_queued=False) / 1e3


def training(
    backend: str, device: str, peer: str, small: bool, ending: str = ""
) -> Iterator[Measurement]:
    """Steps of SGD in turn on the device of ``backend`` and on its peer, each side in a process of its own.

    Models are compiled by ``torch.compile`` where ``ending``, of the names, says so.

    PyTorch's autograd engine orders the streams of one accelerator alone, which the backend is as soon as it
    is loaded: a backward pass on ``cuda`` fails from then on.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context) as ours, ProcessPoolExecutor(1, context) as theirs:
        for model, each in trained(small).items():
            name = model + ending
            on_cpu = ours.submit(_begin, device, name, small, backend).result()
            theirs.submit(_begin, peer, name, small).result()
            taken: tuple[list[float], list[float]] = ([], [])
            for _ in range(ROUNDS if each.steps > 1 else 3):
                for pool, which, times in ((ours, device, taken[0]), (theirs, peer, taken[1])):
                    times.append(pool.submit(_milliseconds, which, name, each.steps).result())
            print(f"{name}: calls on the CPU in a step: {on_cpu or 0}", flush=True)
            yield measured(f"step: {name}", "ms", *taken, 1.15)


_CASES = {part.__name__: part for part in (calls, bandwidth, products)}
PARTS = (*_CASES, overlap.__name__, training.__name__, "compiled")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument(
        "--device", default="cuda_driver", help="a backend's name, or a backend.yaml"
    )
    parser.add_argument("--peer", default="cuda", help="a device of torch's own")
    parser.add_argument("--small", action="store_true", help="for a simulated device")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    options = parser.parse_args()
    chosen = options.parts or list(PARTS)
    for part in chosen:
        if part not in PARTS:
            parser.error(f"there is no part {part!r}: {', '.join(PARTS)}")
    if not getattr(torch, options.peer).is_available():
        sys.exit(f"the peer is torch's own {options.peer}, which this machine lacks")
    device = opsmith.load(options.device, progress=print).name
    cases = (case for part in chosen if part in _CASES for case in _CASES[part](options.small))
    found, failed = measure(cases, device, options.peer)
    if overlap.__name__ in chosen:
        found.append(overlap(device, options.small))
        tell(found[-1], "to the end")
    for part, ending in ((training.__name__, ""), ("compiled", _COMPILED)):
        if part in chosen:
            for each in training(options.device, device, options.peer, options.small, ending):
                found.append(each)
                tell(each, options.peer)
    report(f"{device}; peer: {options.peer}", found)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def measure(cases: Iterable[Case], device: str, peer: str) -> tuple[list[Measurement], list[str]]:
    """The measurements, and the names of the cases that failed; each is told as it comes."""
    found: list[Measurement] = []
    failed: list[str] = []
    for case in cases:
        try:
            found.append(beside(case, device, peer))
        except Exception:
            failed.append(case.name)
            print(f"{case.name}: {traceback.format_exc()}", file=sys.stderr, flush=True)
            continue
        tell(found[-1], peer)
    return found, failed


def tell(last: Measurement, peer: str) -> None:
    print(f"{last.name}: {last.ours} {last.unit}; {peer} {last.peer}; {last.ratio:.3f}", flush=True)


if __name__ == "__main__":
    main()
