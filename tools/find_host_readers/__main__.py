"""Finds the composites that read their arguments as host memory, and writes ``schema/host_readers.yaml``.

    python tools/find_host_readers [--check] [OPERATOR …]

PyTorch registers them for every device, and on one whose memory is not the host's they end the process.
Nobody publishes which they are, so all are called on a simulated device without kernels, in processes that
may die.  ``--check`` writes nothing and fails where the file in the tree says something else; with
OPERATORs only those are called, and the readers among them shown.  Takes about forty minutes.
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
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import torch
import yaml
from torch.utils._pytree import tree_leaves

import opsmith

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # what the tools share
from arguments import calls_of
from forked import lines_of
from operator_calls import overload
from opsmith.build.backend import build_backend
from opsmith.schema import Composite, read_catalogue

READERS = Path(__file__).resolve().parents[2] / "src" / "opsmith" / "schema" / "host_readers.yaml"
DEVICE = "host_readers"
_HEADER = """\
# PyTorch's composite kernels that read their arguments' elements as host memory, and so end the process on
# a device whose memory is not the host's. Written by tools/find_host_readers, which calls every composite;
# do not edit.
#   differentiated  those that PyTorch differentiates through other operators, which they call too
"""
# Calls that the CPU takes, of one operator; deaths on the CPU itself after which no more are tried.
_CALLS = 60
_DEATHS = 40
_SECONDS = 60


class Stage(Enum):
    """What a process was about when it wrote a line."""

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
    parser.add_argument("--check", action="store_true", help="compare with the file, write nothing")
    options = parser.parse_args()

    found = find_readers(options.operators or composites(), described_device())
    differentiated = [name for name in found if is_differentiated(name)]
    version = ".".join(torch.__version__.split(".")[:2])
    record = {"torch": version, "readers": found, "differentiated": differentiated}
    text = _HEADER + yaml.safe_dump(record, sort_keys=False)
    if options.operators:
        print(text)
        return 0
    if options.check:
        same = text == READERS.read_text(encoding="utf-8")
        print("up to date" if same else "out of date: python tools/find_host_readers")
        return 0 if same else 1
    READERS.write_text(text, encoding="utf-8")
    return 0


def composites() -> list[str]:
    """The composites of ATen that Python can call."""
    operators = read_catalogue().operators.values()
    names = sorted(each.name for each in operators if each.composite is not Composite.NONE)
    return [name for name in names if _is_callable(name)]


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


def find_readers(names: Sequence[str], backend: Path) -> list[str]:
    """The operators among ``names`` of which a call that the CPU takes ends the process on the device."""
    readers: list[str] = []
    waiting = list(names)
    first = deaths = 0
    while waiting:
        last, died = _run(waiting, first, backend)
        if not died:
            break
        deaths = deaths + 1 if last.operator == waiting[0] and first else 1
        waiting = waiting[waiting.index(last.operator) :]
        first = last.call + 1
        is_reader = last.stage is Stage.ON_DEVICE and _dies_alone(last, backend)
        if is_reader:
            readers.append(last.operator)
        if is_reader or last.stage is Stage.BEGUN or deaths == _DEATHS:
            waiting, first, deaths = waiting[1:], 0, 0
        print(f"{last.operator} died {last.stage.value}; {len(waiting)} operators left", flush=True)
    return readers


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
        for call in itertools.islice(calls_of(name), _CALLS):
            wanting = call.map(_wanting_gradient)
            try:
                results = tree_leaves(operator(*wanting.args, **wanting.kwargs))
            except Exception:
                continue
            yield any(
                isinstance(each, torch.Tensor) and each.grad_fn is not None for each in results
            )

    return any(lines_of(gradients())[0])


def _wanting_gradient(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
        return leaf.detach().clone().requires_grad_()
    return leaf


def _run(names: Sequence[str], first: int, backend: Path) -> tuple[Step, bool]:
    """Calls ``names`` in a process of their own, the first one from its call ``first`` on.

    Returns its last step, and whether it died.
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
    return Step(name, Stage(stage), call), os.WIFSIGNALED(status)


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
