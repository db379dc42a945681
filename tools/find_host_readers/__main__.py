"""Finds the composites that read host memory, and writes ``host_readers.yaml`` of ``schema/recorded``.

    python tools/find_host_readers [--check] [--all | OPERATOR …]

PyTorch registers them for every device, and on one whose memory is not the host's they end the process.
Nobody publishes which they are, so composites are called on a simulated device without kernels, in processes
that may die.  Called are the readers of the nearest other release, and what ``operators.yaml`` and
``parts.yaml`` say has changed since: schemas, names of kernels, what kernels call.  A kernel that was
rewritten under its name and calls what it called is not among them; ``--all`` calls every composite, which
takes about forty minutes.  ``--check`` writes nothing and fails where the file in the tree says something
else; with OPERATORs only those are called, and the readers among them shown.
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

import opsmith

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # what the tools share
from arguments import calls_of
from forked import lines_of
from operator_calls import overload
from opsmith.build.backend import build_backend
from opsmith.schema import Composite, read_catalogue
from opsmith.schema.catalogue import torch_release
from opsmith.schema.recorded import FOLDER, read_facts, recorded_releases, shown
from recorded_files import add_check, differences, nearest_other, record, sections

DEVICE = "host_readers"
_HEADER = """\
# PyTorch's composite kernels that read their arguments' elements as host memory, and so end the process on
# a device whose memory is not the host's. Written by tools/find_host_readers, which calls every composite;
# do not edit.
#   differentiated  those that PyTorch differentiates through other operators, which they call too
"""
# Calls that the CPU takes, of one operator; deaths on the CPU itself after which no more are tried, and how
# many of them one call counts for that did not end.
_CALLS = 60
_DEATHS = 40
_ENDLESS = 20
_SECONDS = 30


class Stage(Enum):
    """The stage that a process was in when it wrote a line."""

    BEGUN = "begun"
    ON_CPU = "on the CPU"
    ON_DEVICE = "on the device"


@dataclass(frozen=True)
class Step:
    """``call`` is the number of a call among the operator's."""

    operator: str
    stage: Stage
    call: int


def main() -> int:
    parser = argparse.ArgumentParser(prog="find_host_readers", description=__doc__)
    parser.add_argument("operators", nargs="*", metavar="OPERATOR")
    parser.add_argument("--all", action="store_true", help="call every composite")
    add_check(parser)
    options = parser.parse_args()

    names = options.operators or (composites() if options.all else changed_composites())
    nearest = read_facts("host_readers", nearest_other("host_readers", torch_release()))
    with no_known_readers():
        found, called = find_readers(names, described_device())
    # Where the CPU refused all calls, or none could have had a gradient, nothing new is known.
    found = sorted({*found, *set(nearest["readers"]) & set(names) - called})
    differentiated = [
        name for name in found if name in nearest["differentiated"] or is_differentiated(name)
    ]
    facts = {"readers": found, "differentiated": differentiated}
    if options.operators:
        print(sections(facts))
        return 0
    return record("host_readers", _HEADER, facts, check=options.check)


@contextmanager
def no_known_readers() -> Iterator[None]:
    """Plans of the installed torch know of no readers, so each is called as PyTorch registers it.

    A plan would serve those that are recorded by one call on the CPU.  It is found again by the files that it
    was made from, as what is built of it, so these are changed.
    """
    path = FOLDER / shown(torch_release()) / "host_readers.yaml"
    kept = path.read_bytes() if path.exists() else None
    empty = {"torch": shown(torch_release()), "readers": [], "differentiated": []}
    path.write_text(sections(empty), encoding="utf-8")
    try:
        yield
    finally:
        path.unlink() if kept is None else path.write_bytes(kept)


def composites() -> list[str]:
    """The composites of ATen that Python can call."""
    operators = read_catalogue().operators.values()
    names = sorted(each.name for each in operators if each.composite is not Composite.NONE)
    return [name for name in names if _is_callable(name)]


def changed_composites() -> list[str]:
    """Those that may have become readers since the nearest other release, or ceased to be."""
    ours = torch_release()
    base = nearest_other("host_readers", ours)
    changed = set[str]()
    for name, section in (("operators", "operators"), ("parts", "parts")):
        changed |= (
            differences(read_facts(name, base), read_facts(name, ours)).get(section, {}).keys()
        )
    for release in {base, ours} & {*recorded_releases("host_readers")}:
        changed |= set(read_facts("host_readers", release)["readers"])
    names = [name for name in composites() if name in changed]
    print(f"calling {len(names)} composites: readers, and what changed since torch {shown(base)}")
    return names


def _is_callable(name: str) -> bool:
    try:
        overload(name)
    except (AttributeError, RuntimeError):
        return False
    return True


def described_device() -> Path:
    """The description of a device without kernels, built."""
    folder = Path(tempfile.mkdtemp(prefix="find-host-readers-"))
    backend = folder / "backend.yaml"
    backend.write_text(f"backend: {DEVICE}\ndriver: sim\nlibraries: []\n", encoding="utf-8")
    build_backend(backend)
    return backend


def find_readers(names: Sequence[str], backend: Path) -> tuple[list[str], set[str]]:
    """The operators among ``names`` of which a call that the CPU takes ends the process on the device.

    Returns also those of which the CPU took a call.
    """
    readers: list[str] = []
    called: set[str] = set()
    waiting = list(names)
    first = deaths = 0
    while waiting:
        last, cause, more = _run(waiting, first, backend)
        called |= more
        if cause is None:
            break
        deaths = deaths if last.operator == waiting[0] and first else 0
        deaths += _ENDLESS if cause is signal.SIGALRM else 1
        waiting = waiting[waiting.index(last.operator) :]
        first = last.call + 1
        is_reader = last.stage is Stage.ON_DEVICE and _dies_alone(last, backend)
        if is_reader:
            readers.append(last.operator)
        if is_reader or last.stage is Stage.BEGUN or deaths >= _DEATHS:
            waiting, first, deaths = waiting[1:], 0, 0
        print(f"{last.operator} died {last.stage.value}; {len(waiting)} operators left", flush=True)
    return readers, called


def _dies_alone(step: Step, backend: Path) -> bool:
    """Whether the call of ``step`` ends a process that has called nothing before.

    Some kernels of the CPU's write beyond operands that they do not check, and what comes later dies of that.
    """

    def returned() -> Iterator[bool]:
        os.chdir(tempfile.mkdtemp())
        opsmith.load(str(backend))
        call = next(itertools.islice(calls_of(step.operator), step.call, None))
        signal.alarm(_SECONDS)
        _returns(overload(step.operator), call.map(_on_device), dies_if_refused=True)
        yield True

    lines, _ = lines_of(returned())
    return not lines


def is_differentiated(name: str) -> bool:
    """Whether the CPU's result of the composite ``name`` can have a gradient by what it calls."""
    if read_catalogue().operators[name].composite is not Composite.IMPLICIT:
        return False

    def gradients() -> Iterator[bool]:
        operator = overload(name)
        taken = 0
        signal.alarm(_SECONDS)
        for call in calls_of(name):
            wanting = call.map(_wanting_gradient)
            try:
                results = tree_leaves(operator(*wanting.args, **wanting.kwargs))
            except Exception:
                continue
            yield any(
                isinstance(each, torch.Tensor) and each.grad_fn is not None for each in results
            )
            if (taken := taken + 1) == _CALLS:
                return

    return any(lines_of(gradients())[0])


def _wanting_gradient(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
        return leaf.detach().clone().requires_grad_()
    return leaf


def _run(
    names: Sequence[str], first: int, backend: Path
) -> tuple[Step, signal.Signals | None, set[str]]:
    """Calls ``names`` in a process of their own, the first one from its call ``first`` on.

    Returns its last step, the signal that it died of, and the operators of which the CPU took a call.
    """

    def steps() -> Iterator[list[object]]:
        os.chdir(tempfile.mkdtemp())  # some operators write files
        opsmith.load(str(backend))
        for name in names:
            signal.alarm(_SECONDS)
            for step in _steps(name, first if name == names[0] else 0):
                yield [step.operator, step.stage.value, step.call]

    lines, status = lines_of(steps())
    if not lines:
        raise RuntimeError("the device cannot be loaded in a forked process")
    name, stage, call = lines[-1]
    cause = signal.Signals(os.WTERMSIG(status)) if os.WIFSIGNALED(status) else None
    called = {each for each, stage_of, _ in lines if Stage(stage_of) is Stage.ON_DEVICE}
    return Step(name, Stage(stage), call), cause, called


def _steps(name: str, first: int) -> Iterator[Step]:
    """Calls the operator, and tells before each call what comes."""
    yield Step(name, Stage.BEGUN, first)
    operator = overload(name)
    taken = 0
    for number, call in enumerate(calls_of(name)):
        if number < first or taken == _CALLS:
            continue
        yield Step(name, Stage.ON_CPU, number)
        if not _returns(operator, call.map(_copied)):
            continue
        taken += 1
        yield Step(name, Stage.ON_DEVICE, number)
        _returns(operator, call.map(_on_device), dies_if_refused=True)


def _copied(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return leaf.detach().clone().requires_grad_(leaf.requires_grad)


def _on_device(leaf: Any) -> Any:
    if isinstance(leaf, torch.device):
        return torch.device(DEVICE)
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return leaf.detach().to(DEVICE).requires_grad_(leaf.requires_grad)


def _returns(operator: Any, call: Any, *, dies_if_refused: bool = False) -> bool:
    """Whether the call raises nothing.

    A kernel of the CPU's that a composite calls may look at its arguments before it reads them; with
    ``dies_if_refused`` that counts as if it had not.
    """
    torch.manual_seed(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            operator(*call.args, **call.kwargs)
    except Exception as error:
        if dies_if_refused and "to have CPU Backend" in str(error):
            os.abort()
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
