"""Every kernel of the libraries in ExecuTorch's runtime, against ATen.

The runtime's registry has room for 2,000 kernels and a key for each form of call, so that the calls are
dealt out to processes, which also keeps a kernel that crashes from ending the suite.
"""

from __future__ import annotations

import functools
import multiprocessing
import multiprocessing.connection
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
from agreement import disagreement
from aten_calls import OperatorCall
from executorch_calls import Outcome, form_of, is_refused, run_calls, with_runtimes_results
from recording import recording
from torch import Tensor

from opsmith.executorch.build import build_library
from opsmith.executorch.library_file import read_library_file
from opsmith.executorch.loading import load_library, runtime_module
from opsmith.plan.executorch.kernel_keys import CallForm
from opsmith.plan.executorch.library_facts import DescribedKernel
from opsmith.plan.executorch.supported import rejection

sys.path.append(str(Path(__file__).resolve().parent.parent))
import needs
from instruction_sets import SUPPORTED

pytestmark = pytest.mark.isolated(opinfo=True, timeout=3600)

LIBRARIES = (
    *("portable", "optimized", "quantized", "llm", "dim_order"),
    *(("onednn",) if needs.NEEDS["oneDNN"].is_there() else ()),
)
FOLDER = Path(os.environ["OPSMITH_TEST_FOLDER"])
BACKEND = FOLDER / "backend.yaml"
BACKEND.write_text(f"backend: suite\ndriver: sim\nlibraries: [{', '.join(LIBRARIES)}]\n")
BUILT = build_library(BACKEND, [], FOLDER / "built").library

# The registry's room is for 2,000, and the runtime and the library begin with some hundreds.
_FORMS = 1200

# Dtypes for the calls that a kernel does not take, and the number of taken calls that these are made of.
_OTHER_DTYPES = (torch.uint16, torch.bool, torch.int16, torch.float16, torch.float64)
_TRIED = 200


DESCRIPTION = read_library_file(BUILT).description


def kernels(library: str) -> dict[str, tuple[int, DescribedKernel]]:
    """The kernels of ``library`` by operator, with their places in the built one."""
    return {
        kernel.operator: (place, kernel)
        for place, kernel in enumerate(DESCRIPTION.kernels)
        if kernel.library == library
    }


def reason_against(kernel: DescribedKernel, call: OperatorCall) -> str:
    """The reason why the manifest does not let ``kernel`` take ``call``; empty where it does."""
    return rejection(kernel.arguments, kernel, form_of(call))


@dataclass(frozen=True)
class Asked:
    """Whether ``library`` serves the calls that it ``takes``, or refuses or computes those that it does not.

    ``instruction_set`` is the one that its vectorised sources use; empty for the best.
    """

    library: str
    instruction_set: str = ""
    takes: bool = True

    def judge(self, call: OperatorCall, outcome: Outcome) -> str:
        """The mistake in the ``outcome`` of a call that the library served; empty where there is none."""
        # Where the runtime has no kernel of its own, the library's is called with everything.
        if outcome.failure:
            return outcome.failure if self.takes and not is_refused(call) else ""
        return disagreement(with_runtimes_results(call), outcome.results, outcome.written)


# ---- processes


def batches(calls: Sequence[OperatorCall]) -> Iterator[list[OperatorCall]]:
    """The calls, so many at a time as have room in a registry."""
    batch: list[OperatorCall] = []
    forms: set[CallForm] = set()
    for call in calls:
        form = form_of(call)
        if form not in forms and len(forms) == _FORMS:
            yield batch
            batch, forms = [], set()
        forms.add(form)
        batch.append(call)
    yield batch


def run_batch(asked: Asked, calls: list[OperatorCall], answers: Connection) -> None:
    """Sends the place of each call before it runs, and then what is wrong with it."""
    os.environ["OPSMITH_ISA"] = asked.instruction_set
    torch.set_num_threads(1)
    own = kernels(asked.library)
    loaded = load_library(BUILT)
    if asked.takes:
        for call in calls:
            loaded.register(own[call.operator][0], form_of(call).key)
    servers = [loaded.server(form.operator, form.key) for form in map(form_of, calls)]
    # Calls that others serve are not made: the runtime's own kernels end the process here and there.
    ours = [place for place, server in enumerate(servers) if server == asked.library]
    for place in {*range(len(calls))}.difference(ours):
        answers.send((place, f"it is served by {servers[place]}" if asked.takes else ""))
    outcomes = run_calls(
        runtime_module(), [calls[place] for place in ours], lambda turn: answers.send(ours[turn])
    )
    for place, outcome in zip(ours, outcomes, strict=True):
        answers.send((place, asked.judge(calls[place], outcome)))


def outcomes(asked: Asked, calls: Sequence[OperatorCall]) -> list[tuple[OperatorCall, str]]:
    """The calls, each with what is wrong with what came of it; empty where that is nothing."""
    answered: list[tuple[OperatorCall, str]] = []
    waiting = list(batches(calls))
    running: dict[Any, tuple[Any, list[OperatorCall], list[Any]]] = {}
    context = multiprocessing.get_context("fork")
    while waiting or running:
        while waiting and len(running) < (os.cpu_count() or 1):
            batch = waiting.pop()
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=run_batch, args=(asked, batch, theirs))
            process.start()
            theirs.close()
            running[ours] = process, batch, []
        for ready in multiprocessing.connection.wait(list(running)):
            process, batch, answers = running[ready]
            try:
                answers.append(ready.recv())
            except EOFError:
                del running[ready]
                process.join()
                ended, rest = _ended(batch, answers, process.exitcode)
                answered += ended
                waiting += [rest] if rest else []
    return answered


def _ended(
    batch: list[OperatorCall], answers: list[Any], status: int
) -> tuple[list[tuple[OperatorCall, str]], list[OperatorCall]]:
    """The answers of a process, and those calls that it did not come to, since one ended it."""
    found = dict(each for each in answers if isinstance(each, tuple))
    rest: list[OperatorCall] = []
    if status:
        last = max((each for each in answers if isinstance(each, int)), default=0)
        found[last] = f"it ended the process with status {status}"
        rest = [batch[place] for place in range(last + 1, len(batch)) if place not in found]
    return [(batch[place], wrong) for place, wrong in found.items()], rest


# ---- what is asked


@functools.cache
def recorded(library: str, takes: bool) -> dict[str, list[OperatorCall]]:
    """The recorded calls that the kernels of ``library`` take, or do not take, by operator."""
    calls: dict[str, list[OperatorCall]] = {}
    own = kernels(library)
    for call in recording():
        if call.operator in own and takes == (not reason_against(own[call.operator][1], call)):
            calls.setdefault(call.operator, []).append(call)
    return calls


@functools.cache
def not_taken(library: str) -> dict[str, list[OperatorCall]]:
    """Calls that the kernels of ``library`` do not take, by operator; without those that take everything.

    Those that are recorded, and others with one argument in another dtype.
    """
    calls = {
        operator: list({form_of(call): call for call in known}.values())
        for operator, known in recorded(library, takes=False).items()
    }
    for operator, known in recorded(library, takes=True).items():
        kernel = kernels(library)[operator][1]
        changed = {
            place: each
            for call in known[:_TRIED]
            for place, each in in_other_dtypes(call)
            if reason_against(kernel, each)
        }
        if changed:
            calls.setdefault(operator, []).extend(changed.values())
    return calls


def in_other_dtypes(call: OperatorCall) -> Iterator[tuple[int, OperatorCall]]:
    """The call with one Tensor in a dtype that holds all its values too; first the Tensor's place."""
    for place, given in enumerate(call.arguments):
        for dtype in _OTHER_DTYPES if isinstance(given, Tensor) and given.numel() else ():
            other = given.to(dtype)
            if are_equal(other.to(given.dtype), given):
                arguments = (*call.arguments[:place], other, *call.arguments[place + 1 :])
                origin = f"{call.origin}, argument {place} in {dtype}"
                yield place, replace(call, arguments=arguments, origin=origin)


def are_equal(a: Tensor, b: Tensor) -> bool:
    """``torch.equal``, of complex32 too."""
    return torch.equal(
        *(torch.view_as_real(each.resolve_conj()) if each.is_complex() else each for each in (a, b))
    )


@functools.cache
def found(asked: Asked) -> dict[str, list[tuple[OperatorCall, str]]]:
    """By operator, the calls that the question is about, and what is wrong with each."""
    asked_for = recorded(asked.library, takes=True) if asked.takes else not_taken(asked.library)
    calls = [call for calls in asked_for.values() for call in calls]
    answers: dict[str, list[tuple[OperatorCall, str]]] = {}
    for call, wrong in outcomes(asked, calls):
        answers.setdefault(call.operator, []).append((call, wrong))
    return answers


def check(asked: Asked, operator: str) -> int:
    """How many calls of the operator there were; fails where any went wrong."""
    answers = found(asked).get(operator, [])
    wrong = [f"{call}: {why}" for call, why in answers if why]
    assert not wrong, f"{len(wrong)} of {len(answers)} calls:\n" + "\n".join(wrong[:10])
    return len(answers)


OPERATORS = [(library, operator) for library in LIBRARIES for operator in kernels(library)]


@pytest.mark.parametrize(("library", "operator"), OPERATORS)
def test_a_kernel_gives_what_aten_gives(library: str, operator: str) -> None:
    assert check(Asked(library), operator), "no sample reaches this kernel"


def test_cat_ignores_empty_tensors_of_any_shape() -> None:
    """As the runtime's own kernel does; ATen takes only those that would add nothing."""
    whole, empty = torch.arange(4).reshape(2, 2), torch.empty(0, 10, 3, dtype=torch.int64)
    arguments, result = ([whole, empty, whole], 0), torch.cat([whole, whole])
    call = OperatorCall("aten::cat.out", arguments, (result,))
    assert [why for _, why in outcomes(Asked("portable"), [call])] == [""]


@pytest.mark.parametrize("instruction_set", SUPPORTED[:-1])
@pytest.mark.parametrize(
    ("library", "operator"),
    [each for each in OPERATORS if each[0] not in ("portable", "dim_order", "onednn")],
)
def test_other_instruction_sets_give_it_too(
    library: str, operator: str, instruction_set: str
) -> None:
    assert check(Asked(library, instruction_set), operator)


def test_an_instruction_set_that_the_processor_lacks_ends_the_process(
    capfd: pytest.CaptureFixture[str],
) -> None:
    call = recorded("optimized", takes=True)["aten::exp.out"][0]
    ((_, wrong),) = outcomes(Asked("optimized", "avx10"), [call])
    assert wrong == "it ended the process with status -6"
    assert f"OPSMITH_ISA is `avx10`, and this processor has {', '.join(SUPPORTED)}: " in (
        capfd.readouterr().err
    )


@pytest.mark.parametrize(
    ("library", "operator"),
    [(library, operator) for library in LIBRARIES for operator in not_taken(library)],
)
def test_a_kernel_is_not_given_what_its_manifest_does_not_declare(
    library: str, operator: str
) -> None:
    assert check(Asked(library, takes=False), operator)
