"""Whole programs in ExecuTorch, on our kernels beside XNNPACK's delegate and the wheel's portable kernels.

Of each model there are three programs: ours is what ``opsmith executorch export`` writes for the libraries,
XNNPACK's has all that its partitioner takes, and the wheel's is lowered as it is.  One image or sequence at a
time, with one thread and two, in turns in one process.  A method binds its kernels when it is loaded: the
peers' are loaded before the library is there.
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

from opsmith.benchmarks.measurements import Measurement, measured, report
from opsmith.executorch.build import build_library
from opsmith.executorch.export import ModuleToExport, export_program
from opsmith.executorch.loading import load_library, runtime_module
from opsmith.executorch.program import read_program

BACKEND = "backend: bench\ndriver: sim\nlibraries: [optimized, portable]\n"
THREADS = [1, 2]
ROUNDS, SECONDS = 7, 0.2
# The part of XNNPACK's time, of each and for all together; and of the wheel's.
EACH, TOGETHER, OF_WHEEL = 1 / 0.8, 1.0, 1 / 30

Run = Callable[[], object]


@dataclass(frozen=True)
class Model:
    """What is exported, for one image or sequence."""

    make: Callable[[], nn.Module]
    batch: Callable[[], Tensor]


MODELS = {
    "MobileNetV3-small, 224 x 224": Model(mobilenet_v3_small, lambda: torch.rand(1, 3, 224, 224)),
    "ResNet-18, 224 x 224": Model(resnet18, lambda: torch.rand(1, 3, 224, 224)),
    "ViT, 64 x 64": Model(vit, lambda: torch.rand(1, 3, 64, 64)),
    "Llama-like, 128 tokens": Model(llama, lambda: torch.randint(0, 1000, (1, 128))),
    "Llama-like, 1 token": Model(llama, lambda: torch.randint(0, 1000, (1, 1))),
}


class Named(nn.Module):
    """A module whose parameters have names that begin with a letter, as XNNPACK's passes want them."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.model(x)
        return result


def exported_for_xnnpack(module: nn.Module, x: Tensor) -> bytes:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    exported = torch.export.export(module, (x,))
    lowered = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    return bytes(lowered.to_executorch().buffer)


def exported_for_wheel(module: nn.Module, x: Tensor) -> bytes:
    from executorch.exir import to_edge

    return bytes(to_edge(torch.export.export(module, (x,))).to_executorch().buffer)


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


def time_all(threads: int) -> None:
    """Prints what every program takes with ``threads`` threads, as JSON."""
    logging.disable(logging.WARNING)
    torch.manual_seed(0)
    runtime_module()._unsafe_reset_threadpool(threads)
    with tempfile.TemporaryDirectory() as folder:
        results = [dict(name=name, **taken) for name, taken in _timed(Path(folder))]
    print(json.dumps(results))


def _timed(folder: Path) -> Iterator[tuple[str, dict[str, list[float]]]]:
    description = folder / "backend.yaml"
    description.write_text(BACKEND)
    peers: dict[str, dict[str, LoadedProgram]] = {}
    programs = {}
    for place, (name, model) in enumerate(MODELS.items()):
        module, x = Named(model.make()).eval(), model.batch()
        own = export_program(
            ModuleToExport(name, module, (x,), {}), folder / f"{place}.pte", description
        )
        programs[name] = own.program, x, module(x)
        peers[name] = {
            "XNNPACK": LoadedProgram(exported_for_xnnpack(module, x), x),
            "wheel": LoadedProgram(exported_for_wheel(module, x), x),
        }
    library = load_library(build_library(description, [], folder / "built").library)
    for name, (path, x, expected) in programs.items():
        library.register_for([call.form for call in read_program(path).calls])
        each = {"ours": LoadedProgram(path.read_bytes(), x), **peers[name]}
        for program in each.values():
            torch.testing.assert_close(program.result(), expected, rtol=1e-3, atol=1e-3)
        wheel = each.pop("wheel")
        taken = microseconds_in_turns({k: v.run for k, v in each.items()}, ROUNDS, SECONDS)
        yield name, {**taken, "wheel": [median_microseconds(wheel.run, 0.05)]}


def measurements(threads: int, results: list[dict[str, Any]]) -> Iterator[Measurement]:
    count = f"{threads} thread{'s'[: threads > 1]}"
    for taken in results:
        milliseconds = {
            who: [one / 1e3 for one in taken[who]] for who in ("ours", "XNNPACK", "wheel")
        }
        ours = milliseconds["ours"]
        yield measured(f"{taken['name']}, {count}", "ms", ours, milliseconds["XNNPACK"], EACH)
        yield measured(
            f"{taken['name']}, {count}, peer: the wheel",
            "ms",
            ours,
            milliseconds["wheel"],
            OF_WHEEL,
        )


def main() -> None:
    found: list[Measurement] = []
    for threads in THREADS:
        done = subprocess.run(
            [sys.executable, __file__, str(threads)], check=True, stdout=subprocess.PIPE, text=True
        )
        found += measurements(threads, json.loads(done.stdout.splitlines()[-1]))
    ratios = [each.ratio or 1.0 for each in found if "wheel" not in each.name]
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    report(
        "programs in ExecuTorch, peer: XNNPACK's delegate",
        [*found, measured("geometric mean beside XNNPACK", "x", [mean], goal=TOGETHER)],
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        time_all(int(sys.argv[1]))
    else:
        main()
