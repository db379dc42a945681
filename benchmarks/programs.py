"""Whole programs in ExecuTorch, on our kernels beside XNNPACK's delegate and the wheel's portable kernels.

Of each model there are three programs: ours is what ``opsmith executorch export`` writes for the libraries,
XNNPACK's has all that its partitioner takes, and the wheel's is lowered as it is.  Quantized ones have no
third program, since the wheel's kernels for them cannot be loaded beside ours.  One image or sequence at a
time, with one thread and two, in turns in one process.  A method binds its kernels when it is loaded: the
peers' are loaded before the library is there.  All are exported in another process: XNNPACK's partitioner
loads a library with the operators of ``quantized``.
"""

from __future__ import annotations

import json
import logging
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from _models import llama, mobilenet_v3_small, resnet18, vit
from _turns import median_microseconds, microseconds_in_turns
from torch import Tensor, nn

from opsmith.executorch.build import build_library
from opsmith.executorch.export import ModuleToExport, export_program
from opsmith.executorch.loading import load_library, runtime_module
from opsmith.executorch.program import read_program
from opsmith.observe.benchmarks.measurements import Measurement, measured, report

BACKEND = "backend: bench\ndriver: sim\nlibraries: [quantized, optimized, portable, dim_order]\n"
THREADS = [1, 2]
ROUNDS, SECONDS = 7, 0.2
# The part of XNNPACK's time, of each and for all together; and of the wheel's.
EACH, TOGETHER, OF_WHEEL = 1 / 0.8, 1.0, 1 / 30

Run = Callable[[], object]


Quantize = Callable[[nn.Module, Tensor], nn.Module]


def by_pt2e(module: nn.Module, x: Tensor) -> nn.Module:
    """Activations and weights of 8 bits, as XNNPACK's quantizer has them."""
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    symmetric = get_symmetric_quantization_config(is_per_channel=True)
    quantizer = XNNPACKQuantizer().set_global(symmetric)
    prepared = prepare_pt2e(torch.export.export(module, (x,)).module(), quantizer)
    prepared(x)
    return convert_pt2e(prepared)


def by_torchao(module: nn.Module, x: Tensor) -> nn.Module:
    """Activations of 8 bits and weights of 4, by groups of 32: ``8da4w``."""
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_
    from torchao.quantization.granularity import PerGroup

    group = PerGroup(32)
    config = Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int4, weight_granularity=group
    )
    quantize_(module, config)
    return module


@dataclass(frozen=True)
class Model:
    """A model to export, for one image or sequence; quantized by ``quantize``, where that is given.

    ``tolerance`` is for what the programs compute, against eager.
    """

    make: Callable[[], nn.Module]
    batch: Callable[[], Tensor]
    quantize: Quantize | None = None
    tolerance: float = 1e-3

    def made(self) -> tuple[nn.Module, Tensor]:
        """The same module and input each time."""
        torch.manual_seed(0)
        module, x = Named(self.make()).eval(), self.batch()
        return (self.quantize(module, x) if self.quantize else module), x


def image(size: int) -> Callable[[], Tensor]:
    return lambda: torch.rand(1, 3, size, size)


def tokens(count: int) -> Callable[[], Tensor]:
    return lambda: torch.randint(0, 1000, (1, count))


MODELS = {
    "MobileNetV3-small, 224 x 224": Model(mobilenet_v3_small, image(224)),
    "ResNet-18, 224 x 224": Model(resnet18, image(224)),
    "ViT, 64 x 64": Model(vit, image(64)),
    "Llama-like, 128 tokens": Model(llama, tokens(128)),
    "Llama-like, 1 token": Model(llama, tokens(1)),
    "int8 ResNet-18, 224 x 224": Model(resnet18, image(224), by_pt2e, 0.005),
    "8da4w Llama-like, 128 tokens": Model(llama, tokens(128), by_torchao, 0.1),
    "8da4w Llama-like, 1 token": Model(llama, tokens(1), by_torchao, 0.1),
}


class Named(nn.Module):
    """A module whose parameters have names that begin with a letter, as XNNPACK's passes want them."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.model(x)
        return result


def exported_for_xnnpack(model: Model, module: nn.Module, x: Tensor) -> bytes:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import (
        XnnpackDynamicallyQuantizedPartitioner,
        XnnpackPartitioner,
    )
    from executorch.exir import to_edge_transform_and_lower

    partitioners = [XnnpackPartitioner()]
    if model.quantize is by_torchao:
        from torchao.utils import unwrap_tensor_subclass

        unwrap_tensor_subclass(module)
        # First, as ExecuTorch has it for language models; of other models it would take too little.
        partitioners.insert(0, XnnpackDynamicallyQuantizedPartitioner())
    exported = torch.export.export(module, (x,))
    lowered = to_edge_transform_and_lower(exported, partitioner=partitioners)
    return bytes(lowered.to_executorch().buffer)


def exported_for_wheel(module: nn.Module, x: Tensor) -> bytes:
    from executorch.exir import to_edge

    return bytes(to_edge(torch.export.export(module, (x,))).to_executorch().buffer)


def export_all(folder: Path) -> None:
    """Writes the programs into ``folder``, by the models' places, with their inputs and what eager gives."""
    logging.disable(logging.WARNING)
    description = folder / "backend.yaml"
    description.write_text(BACKEND)
    for place, (name, model) in enumerate(MODELS.items()):
        module, x = model.made()
        own = ModuleToExport(name, module, (x,), {})
        export_program(own, folder / f"{place}_ours.pte", description)
        torch.save((x, module(x).detach()), folder / f"{place}.pt")
        if model.quantize is None:
            (folder / f"{place}_wheel.pte").write_bytes(exported_for_wheel(module, x))
        (folder / f"{place}_XNNPACK.pte").write_bytes(exported_for_xnnpack(model, module, x))


class LoadedProgram:
    """A program's method with its input, ready to run."""

    def __init__(self, path: Path, x: Tensor) -> None:
        self._x = x
        self._program = runtime_module()._load_program(str(path))
        self._method = self._program.load_method("forward")

    def run(self) -> None:
        # The input's memory is used again within the program.
        self._method.set_inputs([self._x])
        self._method.execute()

    def result(self) -> Tensor:
        self.run()
        found: Tensor = self._method.get_outputs()[0]
        return found.clone()


def time_all(folder: Path, threads: int) -> None:
    """Prints what every program in ``folder`` takes with ``threads`` threads, as JSON."""
    logging.disable(logging.WARNING)
    runtime_module()._unsafe_reset_threadpool(threads)
    print(json.dumps([dict(name=name, **taken) for name, taken in _timed(folder)]))


def _timed(folder: Path) -> Iterator[tuple[str, dict[str, list[float]]]]:
    tensors = [torch.load(folder / f"{place}.pt") for place in range(len(MODELS))]
    peers = [
        {
            peer: LoadedProgram(path, x)
            for peer in ("XNNPACK", "wheel")
            if (path := folder / f"{place}_{peer}.pte").exists()
        }
        for place, (x, _) in enumerate(tensors)
    ]
    library = load_library(build_library(folder / "backend.yaml", [], folder / "built").library)
    for place, (name, model) in enumerate(MODELS.items()):
        x, expected = tensors[place]
        path = folder / f"{place}_ours.pte"
        library.register_for([call.form for call in read_program(path).calls])
        each = {"ours": LoadedProgram(path, x), **peers[place]}
        for program in each.values():
            result = program.result()
            torch.testing.assert_close(result, expected, rtol=1e-3, atol=model.tolerance)
        wheel = each.pop("wheel", None)
        taken = microseconds_in_turns({k: v.run for k, v in each.items()}, ROUNDS, SECONDS)
        if wheel is not None:
            taken["wheel"] = [median_microseconds(wheel.run, 0.05)]
        yield name, taken


def measurements(threads: int, results: list[dict[str, Any]]) -> Iterator[Measurement]:
    count = f"{threads} thread{'s'[: threads > 1]}"
    for taken in results:
        milliseconds = {
            who: [one / 1e3 for one in values] for who, values in taken.items() if who != "name"
        }
        ours = milliseconds["ours"]
        yield measured(f"{taken['name']}, {count}", "ms", ours, milliseconds["XNNPACK"], EACH)
        if "wheel" in milliseconds:
            yield measured(
                f"{taken['name']}, {count}, peer: the wheel",
                "ms",
                ours,
                milliseconds["wheel"],
                OF_WHEEL,
            )


def main() -> None:
    found: list[Measurement] = []
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, __file__, "export", folder], check=True)
        for threads in THREADS:
            command = [sys.executable, __file__, "time", folder, str(threads)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            found += measurements(threads, json.loads(done.stdout.splitlines()[-1]))
    ratios = [each.ratio or 1.0 for each in found if "wheel" not in each.name]
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    report(
        "programs in ExecuTorch, peer: XNNPACK's delegate",
        [*found, measured("geometric mean beside XNNPACK", "x", [mean], goal=TOGETHER)],
    )


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["export", folder]:
            export_all(Path(folder))
        case ["time", folder, threads]:
            time_all(Path(folder), int(threads))
        case _:
            main()
