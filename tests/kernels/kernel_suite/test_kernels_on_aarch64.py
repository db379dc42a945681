"""Kernels on AArch64, against ATen: cross-compiled, and called in an emulator; nightly, of all libraries.

What a kernel is asked is what it is asked on this machine, but for what the processor decides: which integer
NaN and infinity become.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
from agreement import disagreement
from aten_calls import OperatorCall
from direct_calls import Answer, DirectCall, Out
from executorch_calls import form_of, is_refused, with_runtimes_results
from foreign_calls import ForeignRunner, built_runner
from recording import recording
from torch import Tensor
from torch.utils._pytree import tree_leaves
from wrong_arguments import outs_of

from opsmith.plan.executorch.resolver import LibraryKernel
from opsmith.plan.executorch.supported import rejection

sys.path.append(str(Path(__file__).resolve().parents[2]))
from needs import AARCH64_COMPILER, AARCH64_EMULATOR, require

require("AArch64")

pytestmark = pytest.mark.isolated(opinfo=True, timeout=3600)

VECTORISED = ("optimized", "quantized")
PLAIN_LIBRARIES = ("portable", "dim_order")
# One that has NEON alone, and one with SDOT, which adds up products of bytes.
PLAIN, DOTTED = "cortex-a53", "max"
PRODUCTS_OF_BYTES = (
    "opsmith_quantized::linear_int8.out",
    "opsmith_quantized::linear_int8.per_token_out",
)
# The memory that the runner has for a Tensor.
_MOST_BYTES = 1 << 18


@functools.cache
def runner(libraries: tuple[str, ...] = VECTORISED, machine: str = "") -> ForeignRunner:
    """The kernels of some libraries; with the instruction sets of another machine, if need be."""
    folder = Path(os.environ["OPSMITH_TEST_FOLDER"], "_".join([*libraries, machine]))
    folder.mkdir(exist_ok=True)
    description = folder / "backend.yaml"
    description.write_text(f"backend: phone\ndriver: sim\nlibraries: [{', '.join(libraries)}]\n")
    return built_runner(description, AARCH64_COMPILER, folder, machine)


@functools.cache
def asked(
    libraries: tuple[str, ...] = VECTORISED,
) -> dict[str, list[tuple[int, OperatorCall]]]:
    """The recorded calls that a kernel takes, by operator, with the kernel's place."""
    kernels = runner(libraries).kernels
    places = {each.operator.name: place for place, each in enumerate(kernels)}
    found: dict[str, list[tuple[int, OperatorCall]]] = {name: [] for name in places}
    for call in recording():
        if call.operator in places and _is_asked(kernels[places[call.operator]], call):
            found[call.operator].append((places[call.operator], call))
    return found


def _is_asked(kernel: LibraryKernel, call: OperatorCall) -> bool:
    names = [argument.name for argument in kernel.operator.arguments]
    tensors = [
        each for each in tree_leaves((call.arguments, call.results)) if isinstance(each, Tensor)
    ]
    if rejection(names, kernel.kernel, form_of(call)) or is_refused(call):
        return False
    if any(each.nbytes > _MOST_BYTES for each in tensors):
        return False
    # Each processor converts NaN, and values that an integer cannot hold, in its own way.
    return kernel.kernel.library != "quantized" or all(
        bool(each.isfinite().all()) for each in tensors if each.is_floating_point()
    )


def wrong(
    on: ForeignRunner, processor: str, calls: Sequence[tuple[int, OperatorCall]]
) -> Iterator[str]:
    """The calls whose results on ``processor`` differ from ATen's, with the difference."""
    direct = [
        (place, DirectCall(call.operator, call.arguments, outs_of(call.results)))
        for place, call in calls
    ]
    answers = on.on(AARCH64_EMULATOR, "-cpu", processor).answers(direct)
    for (_, call), (_, asked_for), answer in zip(calls, direct, answers, strict=True):
        reason = _wrong(call, asked_for, answer)
        if reason:
            yield f"{call}: {reason}"


def _wrong(call: OperatorCall, direct: DirectCall, answer: Answer) -> str:
    if answer.is_refusal:
        return answer.died or f"it refuses it with error {answer.error}"
    outs = tree_leaves(list(direct.outs))
    results = (_tensor(out, *given) for out, given in zip(outs, answer.outs, strict=True))
    return disagreement(with_runtimes_results(call), tuple(results), {})


def _tensor(out: Out, sizes: Sequence[int], content: bytes) -> Tensor:
    laid = torch.frombuffer(bytearray(content or b"\0" * 16), dtype=out.dtype)
    laid = laid[: len(content) // out.dtype.itemsize].reshape([sizes[dim] for dim in out.order])
    return laid.permute([out.order.index(dim) for dim in range(len(sizes))])


@functools.cache
def found(processor: str) -> dict[str, list[str]]:
    """All mistakes of the kernels there, by operator; one emulator computes everything."""
    operators = PRODUCTS_OF_BYTES if processor == PLAIN else asked()
    calls = [each for operator in operators for each in asked()[operator]]
    said: dict[str, list[str]] = {}
    for each in wrong(runner(), processor, calls):
        said.setdefault(each.partition("(")[0], []).append(each)
    return said


@pytest.mark.parametrize("operator", asked())
def test_a_kernel_gives_what_aten_gives(operator: str) -> None:
    assert asked()[operator], "no sample reaches this kernel"
    assert found(DOTTED).get(operator, [])[:10] == []


@pytest.mark.parametrize("operator", PRODUCTS_OF_BYTES)
def test_it_does_so_without_an_instruction_for_products_of_bytes(operator: str) -> None:
    assert found(PLAIN).get(operator, [])[:10] == []


@pytest.mark.nightly
def test_the_baseline_of_other_processors_gives_it_too() -> None:
    calls = [each for operator in asked() for each in asked()[operator]]
    baseline = runner(machine="riscv64")
    assert list(wrong(baseline, DOTTED, calls))[:10] == []


@pytest.mark.nightly
def test_the_libraries_without_vectors_give_it_too() -> None:
    found_calls = asked(PLAIN_LIBRARIES)
    calls = [each for operator in found_calls for each in found_calls[operator]]
    assert list(wrong(runner(PLAIN_LIBRARIES), DOTTED, calls))[:10] == []
