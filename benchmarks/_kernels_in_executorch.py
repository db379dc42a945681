"""The kernel libraries in ExecuTorch's runtime, beside the wheel's kernels and, for linear, XNNPACK.

Programs are single calls, written down directly as the tests do it, so that nothing is decomposed.  A method
binds its kernels when it is loaded: the peers' are loaded before the library is there.  ``kernels.py``
runs ``time_all`` in a process of its own, since the runtime's threads are counted when it is loaded.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from _turns import microseconds_in_turns
from torch import Tensor, nn

from opsmith.executorch.build import build_library
from opsmith.executorch.loading import load_library, runtime_module
from opsmith.executorch.transforms.packed_linear import packed_weight

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "kernels" / "kernel_suite"))
from aten_calls import OperatorCall, directly
from executorch_calls import form_of, is_input, program_of

BACKEND = "backend: bench\ndriver: sim\nlibraries: [optimized, portable]\n"
ROUNDS = 9
ROUND_SECONDS = 1e-2
ROW = 1000

Run = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """Calls on the libraries' kernels, and on the wheel's: the same, or what gives the same there.

    ``counts`` towards the geometric mean.  ``module``, where given, runs on XNNPACK instead
    of the peer.
    """

    name: str
    operator: str
    ours: tuple[OperatorCall, ...]
    peer: tuple[OperatorCall, ...] = ()
    counts: bool = True
    module: nn.Module | None = None


def cases() -> Iterator[Case]:
    """Issue 6's list at a million elements, and linear of 1024 features.

    Without the quantized operators: the wheel has those kernels in a library of its own, which cannot be in
    one process with ours.
    """

    def alike(name: str, operator: str, call: OperatorCall, counts: bool = True) -> Case:
        return Case(name, operator, (call,), (call,), counts)

    x, weight = torch.randn(ROW, ROW), torch.randn(ROW)
    half, half_weight = x.bfloat16(), weight.bfloat16()
    yield alike("exp f32", "exp", directly("aten::exp.out", x))
    for how, approximate in (("erf", "none"), ("tanh", "tanh")):
        yield alike(f"gelu-{how} f32", "gelu", directly("aten::gelu.out", x, approximate))
    yield alike("softmax f32", "_softmax", directly("aten::_softmax.out", x, 1, False))
    for name, given, w in (("f32", x, weight), ("bf16", half, half_weight)):
        call = directly("aten::native_layer_norm.out", given, [ROW], w, w, 1e-5)
        yield alike(f"layer_norm {name}", "native_layer_norm", call)
    yield alike("add bf16", "add.Tensor", directly("aten::add.out", half, half, 1))
    yield rms_norm(x, weight)
    for short, dtype in (("f32", torch.float32), ("bf16", torch.bfloat16)):
        for rows in (1, 4, 16):
            yield from linear(short, dtype, rows)


def rms_norm(x: Tensor, weight: Tensor) -> Case:
    """The wheel has no such operator: a program has what PyTorch decomposes it into."""
    square = directly("aten::mul.out", x, x)
    mean = directly("aten::mean.out", square.results[0], [1], True, None)
    shifted = directly("aten::add.out", mean.results[0], torch.tensor(1e-5), 1)
    factor = directly("aten::rsqrt.out", shifted.results[0])
    normed = directly("aten::mul.out", x, factor.results[0])
    peer = (
        square,
        mean,
        shifted,
        factor,
        normed,
        directly("aten::mul.out", normed.results[0], weight),
    )
    ours = OperatorCall("optimized::rms_norm.out", (x, [ROW], weight, 1e-5), (torch.empty_like(x),))
    return Case("rms_norm f32", "rms_norm", (ours,), peer)


def linear(short: str, dtype: torch.dtype, rows: int) -> Iterator[Case]:
    layer, x = nn.Linear(1024, 1024).to(dtype), torch.randn(rows, 1024).to(dtype)
    weight, bias = layer.weight.detach(), layer.bias.detach()
    plain = directly("aten::linear.out", x, weight, bias)
    given = (x, packed_weight(weight).contiguous(), bias, 1024, None, "none")
    packed = OperatorCall("optimized::linear_packed.out", given, plain.results)
    size = f"{rows}×1024×1024"
    yield Case(f"packed linear {short} {size}", "linear", (packed,), (plain,))
    yield Case(f"linear {short} {size}", "linear", (plain,), (plain,), counts=False)
    if dtype == torch.float32:
        name = f"packed linear {short} {size}, peer: XNNPACK"
        yield Case(name, "linear", (packed,), (plain,), counts=False, module=layer)


# ---- the runtime


def loaded(calls: Sequence[OperatorCall]) -> tuple[Run, Any]:
    """The calls as a program, one after another, and what has to stay alive for it."""
    runtime = runtime_module()
    program_bytes = program_of(calls)
    program = runtime._load_program_from_buffer(program_bytes)
    methods = []
    for place, call in enumerate(calls):
        method = program.load_method(f"call{place}")
        method.set_inputs([each for each in call.tensors if is_input(each)])
        methods.append(method)

    def run() -> None:
        for method in methods:
            method.execute()

    return run, (program_bytes, program, calls)


def on_xnnpack(module: nn.Module, x: Tensor) -> tuple[Run, Any]:
    """The module as a program that XNNPACK runs."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    exported = torch.export.export(module.eval(), (x,))
    lowered = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    program_bytes = lowered.to_executorch().buffer
    program = runtime_module()._load_program_from_buffer(program_bytes)
    method = program.load_method("forward")
    method.set_inputs([x])
    return method.execute, (program_bytes, program, x)


def time_all(threads: int) -> None:
    """Prints what every case takes with ``threads`` threads, as JSON."""
    logging.disable(logging.WARNING)
    torch.manual_seed(0)
    runtime_module()._unsafe_reset_threadpool(threads)
    every = list(cases())
    peers = [
        on_xnnpack(case.module, case.peer[0].tensors[0]) if case.module else loaded(case.peer)
        for case in every
    ]
    with tempfile.TemporaryDirectory() as folder:
        description = Path(folder, "backend.yaml")
        description.write_text(BACKEND)
        library = load_library(build_library(description, [], Path(folder, "built")).library)
        library.register_for([form_of(call) for case in every for call in case.ours])
        ours = [loaded(case.ours) for case in every]
    results = [
        {
            "name": case.name,
            "operator": case.operator,
            "counts": case.counts,
            **microseconds_in_turns({"ours": own[0], "peer": peer[0]}, ROUNDS, ROUND_SECONDS),
        }
        for case, own, peer in zip(every, ours, peers, strict=True)
    ]
    print(json.dumps(results))


if __name__ == "__main__":
    time_all(int(sys.argv[1]))
