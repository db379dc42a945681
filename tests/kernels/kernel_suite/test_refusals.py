"""Kernels with wrong arguments that nobody has checked, as in ExecuTorch's runtime.

Each kernel is called with what :mod:`wrong_arguments` makes of its samples, and beside it the runtime's own.
It may never crash or write beside its results.  What ATen and the runtime refuse, it refuses; what only the
runtime does, it may compute if ATen gives the same.  Dtypes and numbers that the runtime's takes, it takes
too, and where ATen refuses these, it gives the same.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from aten_calls import OperatorCall, functional_of, inputs_of, schema_of
from direct_calls import OWN_KEY, Answer, Caller, DirectCall, Out, built_caller
from executorch_calls import form_of, is_refused
from recording import recording
from torch import Tensor
from torch.utils._pytree import tree_leaves
from wrong_arguments import chosen, with_mistakes

import needs
from opsmith.executorch.build import build_library
from opsmith.executorch.library_file import read_library_file
from opsmith.executorch.loading import LoadedLibrary, load_library, runtime_module
from opsmith.plan.executorch.supported import rejection

pytestmark = pytest.mark.isolated(opinfo=True, timeout=3600)

LIBRARIES = (
    *("portable", "optimized", "quantized", "llm", "dim_order"),
    *(("onednn",) if needs.NEEDS["oneDNN"].is_there() else ()),
)
FOLDER = Path(os.environ["OPSMITH_TEST_FOLDER"])
BACKEND = FOLDER / "backend.yaml"
BACKEND.write_text(f"backend: suite\ndriver: sim\nlibraries: [{', '.join(LIBRARIES)}]\n")
BUILT = build_library(BACKEND, [], FOLDER / "built").library
CALLER = built_caller(FOLDER)
KERNELS = read_library_file(BUILT).description.kernels

# How many samples of each are changed in the default run.
_BY_DAY = 1

# The memory for a result is wrong, whatever ATen would do with it.
_OF_OUTS = frozenset({"out_dtypes", "out_shapes"})

# Mistakes that a kernel of a complete library takes where the runtime's kernel takes them.
_OF_DTYPES = frozenset({"dtypes", "numbers", "out_dtypes"})

# The libraries that are to take all that the runtime's kernels take: others leave it to those behind them.
_COMPLETE = frozenset({"portable", "dim_order"})

# Where the runtime's kernel takes more of these all the same: why, by the operator.
TAKES_LESS = {
    "_upsample_bilinear2d_aa.out": "the runtime's cuts off each term of a mean of integers other than bytes",
    "var_mean.correction_out": "the runtime's writes a mean to memory of another dtype than the variance's",
}

# Where the runtime's kernel refuses memory in which this one writes what ATen gives: why, by the operator.
TAKES_MORE = {
    "_log_softmax.out": "the runtime's takes no Double",
    "native_group_norm.out": "statistics may be Float beside Half and BFloat16",
    "native_layer_norm.out": "statistics may be Float beside Half and BFloat16",
}


@functools.cache
def samples() -> dict[str, list[OperatorCall]]:
    found: dict[str, list[OperatorCall]] = {}
    for call in recording():
        found.setdefault(call.operator, []).append(call)
    return found


def mistakes(place: int, most: int) -> Iterator[DirectCall]:
    """Calls with and without mistakes, made of calls that the kernel takes."""
    kernel = KERNELS[place]
    taken = [
        call
        for call in samples().get(kernel.operator, [])
        if not rejection(kernel.arguments, kernel, form_of(call)) and not is_refused(call)
    ]
    for call in chosen(taken, most):
        yield from with_mistakes(call)


def wrong(
    call: DirectCall, ours: Answer, theirs: Answer | None, *, is_known: bool, is_complete: bool
) -> str:
    """The fault in our answer, empty where there is none.

    ``is_known``: the runtime's kernel takes the call that this one was made of.  ``is_complete``: our library
    takes all that the runtime's kernels take.
    """
    if ours.died:
        return ours.died
    if call.mistake == "none" and ours.is_refusal:
        return f"it refuses what is right, with error {ours.error}"
    if theirs is None or (ours.is_refusal and theirs.is_refusal):
        return ""
    if not theirs.is_refusal:
        if not is_complete or call.mistake not in _OF_DTYPES:
            return ""
        if ours.is_refusal:
            less = call.operator.removeprefix("aten::") in TAKES_LESS
            return "" if less else "it refuses what the runtime's kernel takes"
        return (
            ""
            if _is_theirs_wrong(call) or _agree(call, ours, theirs)
            else "it gives neither what ATen nor what the runtime's gives"
        )
    if call.mistake in _OF_OUTS:
        more = call.operator.removeprefix("aten::") in TAKES_MORE
        return "it writes what the runtime's kernel refuses to" if is_known and not more else ""
    return "" if _aten_gives_something(call) else "it computes what ATen and the runtime refuse"


def _is_theirs_wrong(call: DirectCall) -> bool:
    """The runtime's ``add`` multiplies the first Tensor by alpha where that alone has a single element."""
    if call.operator != "aten::add.out":
        return False
    first, second = call.arguments[:2]
    return bool(first.numel() == 1 < second.numel())


def _agree(call: DirectCall, ours: Answer, theirs: Answer) -> bool:
    """Whether both computed the same, or what ATen has something to say of, or C++ nothing."""
    if not all(
        out.dtype.is_floating_point or out.dtype.is_complex for out in tree_leaves(call.outs)
    ) and any(isinstance(each, float) and not abs(each) < 2**63 for each in call.arguments):
        return True
    for out, mine, other in zip(tree_leaves(call.outs), ours.outs, theirs.outs, strict=True):
        if mine == other:
            continue
        values, others = (_contents(out, each[1]) for each in (mine, other))
        if mine[0] != other[0] or not torch.allclose(
            values, others, rtol=1e-2, atol=1e-2, equal_nan=True
        ):
            return _aten_gives_something(call)
    return True


def _contents(out: Out, memory: bytes) -> Tensor:
    values = torch.frombuffer(bytearray(memory), dtype=out.dtype)
    return torch.view_as_real(values).double() if out.dtype.is_complex else values.double()


def _aten_gives_something(call: DirectCall) -> bool:
    names = [argument.name for argument in inputs_of(schema_of(call.operator))]
    given = [each.clone() if isinstance(each, Tensor) else each for each in call.arguments]
    try:
        with warnings.catch_warnings(action="ignore"):
            functional_of(call.operator)(**dict(zip(names, given, strict=True)))
    except Exception:
        return False
    return True


def answer(questions: Any) -> None:
    """Says what is wrong with each kernel that is asked for; the process may end before it has."""
    torch.set_num_threads(1)
    runtime_module()
    loaded = load_library(BUILT)
    caller = Caller(CALLER)
    while (question := questions.recv()) is not None:
        questions.send(examined(*question, loaded, caller))


def examined(place: int, most: int, loaded: LoadedLibrary, caller: Caller) -> tuple[int, list[str]]:
    """How many calls were made of the kernel, and what is wrong with which."""
    kernel = KERNELS[place]
    loaded.register(place, OWN_KEY)
    ours, theirs = caller.registered(kernel.operator), caller.runtimes_own(kernel.operator)
    assert ours is not None
    found: list[str] = []
    count, is_known = 0, False
    for call in mistakes(place, most):
        count += 1
        reference = None if theirs is None or theirs == ours else caller.call(theirs, call)
        if call.mistake == "none":
            is_known = reference is not None and not reference.is_refusal
        answer = caller.call(ours, call)
        is_complete = kernel.library in _COMPLETE
        if reason := wrong(call, answer, reference, is_known=is_known, is_complete=is_complete):
            found.append(f"{call}: {reason}")
        if answer.error != caller.call(ours, call, allocator=False).error:
            found.append(f"{call}: it needs temporary memory of the runtime's")
    return count, found


class Examiner:
    """A process in which kernels are called, each under :data:`OWN_KEY`: one kernel of an operator."""

    def __init__(self) -> None:
        samples()  # once for all the processes
        context = multiprocessing.get_context("fork")
        self._answers, questions = context.Pipe()
        self._process = context.Process(target=answer, args=(questions,), daemon=True)
        self._process.start()
        questions.close()
        self._operators: set[str] = set()

    def takes(self, operator: str) -> bool:
        """Whether it is there, and has not been asked for the operator."""
        return self._process.is_alive() and operator not in self._operators

    def ask(self, place: int, most: int) -> tuple[int, list[str]]:
        """Raises :class:`EOFError` where the process ends."""
        self._operators.add(KERNELS[place].operator)
        self._answers.send((place, most))
        found: tuple[int, list[str]] = self._answers.recv()
        return found

    def end(self) -> None:
        if self._process.is_alive():
            self._answers.send(None)
        self._process.join()


@pytest.fixture(scope="module")
def examiner() -> Iterator[Callable[[str], Examiner]]:
    """One that takes an operator."""
    running: list[Examiner] = []

    def take(operator: str) -> Examiner:
        if running and not running[0].takes(operator):
            running.pop().end()
        if not running:
            running.append(Examiner())
        return running[0]

    yield take
    for each in running:
        each.end()


def check(place: int, most: int, take: Callable[[str], Examiner]) -> None:
    examiner = take(KERNELS[place].operator)
    try:
        count, found = examiner.ask(place, most)
    except EOFError:
        pytest.fail("it ended the process")
    assert not found, f"{len(found)} of {count} calls:\n" + "\n".join(found[:10])
    assert count, "no sample reaches this kernel"


PLACES = [
    pytest.param(place, id=f"{kernel.library}-{kernel.operator}")
    for place, kernel in enumerate(KERNELS)
    if kernel.library in LIBRARIES
]


@pytest.mark.parametrize("place", PLACES)
def test_a_kernel_refuses_wrong_arguments(place: int, examiner: Callable[[str], Examiner]) -> None:
    check(place, _BY_DAY, examiner)


@pytest.mark.nightly
@pytest.mark.parametrize("place", PLACES)
def test_a_kernel_refuses_wrong_arguments_of_every_rank(
    place: int, examiner: Callable[[str], Examiner]
) -> None:
    check(place, 6, examiner)
