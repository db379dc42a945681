"""Tries operators on a device whose every DispatchStub is filled with a probe.

An operator's own CPU kernel is run on the device's Tensors.  If it leaves all work on their elements to stubs
and to other operators, the result is the CPU's, and the probes tell which stubs those are.  If it touches the
elements itself the process dies, because the simulated device's memory is out of the host's reach; so
operators are tried in forked processes, each of which goes on until one dies.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import signal
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import opsmith
from declarations import Declaration, probe_sources
from forked import lines_of
from operator_calls import Call, overload
from opsmith.build.backend import build_backend
from opsmith.build.progress import Progress

_HERE = Path(__file__).resolve().parent
_SIM = Path(opsmith.__file__).parent / "drivers" / "sim"
_SECONDS = 60
DEVICE = "probe"


class Probes:
    """A device ``probe``, on which every exported stub is filled; each forked process loads it for itself."""

    def __init__(self, declarations: Sequence[Declaration], torch_root: Path) -> None:
        folder = Path(tempfile.mkdtemp(prefix="find-stubs-"))
        names = [str(_HERE / "probe.cpp")]
        for name, text in probe_sources(declarations, torch_root).items():
            (folder / name).write_text(text)
            names.append(name)
        (folder / "kernels.yaml").write_text(
            f"library: probes\nsources: {json.dumps(names)}\ninclude_dirs: [{_HERE}]\nkernels: []\n"
        )
        driver = [str(path) for path in sorted(_SIM.glob("*.cpp"))]
        (folder / "backend.yaml").write_text(
            f"backend: {DEVICE}\ndriver: {{sources: {json.dumps(driver)}}}\nlibraries: [kernels.yaml]\n"
        )
        self._backend = folder / "backend.yaml"
        built = build_backend(self._backend, progress=_shown)
        self._library = ctypes.CDLL(str(built.library))
        self._library.probe_declared.restype = ctypes.c_char_p
        self._library.probe_called.restype = ctypes.c_char_p

    def signatures(self) -> dict[str, str]:
        """The function type of every declared stub, e.g. ``void (*)(at::TensorIteratorBase&)``."""
        text = self._library.probe_declared().decode()
        return dict(line.split("\t") for line in text.splitlines())

    def called(self) -> set[str]:
        """The stubs that were called since the last time, and ``operator aten::…`` of tried operators."""
        return set(self._library.probe_called().decode().splitlines())

    def load(self) -> None:
        """Makes the device work in this process, which from then on cannot be forked."""
        opsmith.load(str(self._backend))

    def try_cpu_kernel(self, name: str, *, casts: bool) -> None:
        """From now on the CPU kernel of this operator, and of no other, runs on the device's Tensors.

        ``casts``: the operands of a stub's TensorIterator are cast to its common dtype.
        """
        self._library.probe_try(name.encode(), ctypes.c_bool(casts))


def _shown(step: Progress) -> None:
    print(step, flush=True)


@dataclass(frozen=True)
class Trial:
    """The outcome of trying an operator.

    ``stubs`` it reached; ``calls`` that reached one; ``flaw`` why its CPU kernel is not one to register
    for a device, empty when every call gave the CPU's result.  ``casts``: the operands of the stubs'
    iterators were cast to the common dtype.
    """

    stubs: tuple[str, ...] = ()
    calls: int = 0
    flaw: str = ""
    casts: bool = True


def try_operators(calls: Mapping[str, Sequence[Call]], probes: Probes) -> dict[str, Trial]:
    """Tries the CPU kernel of each operator with its ``calls``.

    Most iterators that reach stubs were made to cast their operands.  Some were not, and nothing in an
    iterator says so: where an operator fails with the cast and does well without, its stubs want none.
    """
    trials = _try_operators(calls, probes, casts=True)
    flawed = [name for name, trial in trials.items() if trial.stubs and trial.flaw]
    again = _try_operators({name: calls[name] for name in flawed}, probes, casts=False)
    uncast = {name: trial for name, trial in again.items() if not trial.flaw}
    # A stub has one sort of iterator. An operator that did well only with the other sort cannot be served.
    stubs = {stub for trial in uncast.values() for stub in trial.stubs}
    casting = [name for name, trial in trials.items() if not trial.flaw and stubs & {*trial.stubs}]
    for name, trial in _try_operators(
        {name: calls[name] for name in casting}, probes, casts=False
    ).items():
        uncast[name] = trial
    return {**trials, **uncast}


def _try_operators(
    calls: Mapping[str, Sequence[Call]], probes: Probes, *, casts: bool
) -> dict[str, Trial]:
    trials: dict[str, Trial] = {}
    while len(trials) < len(calls):
        waiting = {name: some for name, some in calls.items() if name not in trials}
        answers, status = lines_of(_answers(waiting, probes, casts))
        reached = {line["name"]: line for line in answers}
        if not answers:
            raise RuntimeError("the device cannot be loaded in a forked process")
        last = answers[-1]["name"]
        for name in reached:
            lines = [line for line in answers if line["name"] == name]
            stubs = sorted({stub for line in lines for stub in line["stubs"]})
            flaw = next((line["flaw"] for line in lines if line["flaw"]), "")
            if name == last and os.WIFSIGNALED(status):
                flaw = _fate(signal.Signals(os.WTERMSIG(status)))
            reaching = sum(bool(line["stubs"]) for line in lines)
            trials[name] = Trial(tuple(stubs), reaching, flaw, casts)
        print(f"tried {len(trials)} of {len(calls)} operators", flush=True)
    return trials


def _fate(end: signal.Signals) -> str:
    if end is signal.SIGALRM:
        return f"its CPU kernel takes more than {_SECONDS} s"
    return "its CPU kernel touches elements itself"


def _answers(
    calls: Mapping[str, Sequence[Call]], probes: Probes, casts: bool
) -> Iterator[dict[str, Any]]:
    """Yields the answers for all ``calls``, in a process that may die of one."""
    probes.load()
    for name, some in calls.items():
        signal.alarm(_SECONDS)
        # First of all its name, so that it is known who was at work when the process died.
        for answer in itertools.chain([{}], _tried(name, some, probes, casts)):
            yield {"stubs": [], "flaw": "", **answer, "name": name}


def _tried(
    name: str, calls: Sequence[Call], probes: Probes, casts: bool
) -> Iterator[dict[str, Any]]:
    """For each call that reaches the operator's kernel: the stubs that it reaches, and its flaw."""
    probes.try_cpu_kernel(name, casts=casts)
    for call in calls:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            host = call.map(_copied)
            torch.manual_seed(0)
            try:
                expected = overload(name)(*host.args, **host.kwargs)
            except Exception:
                continue  # what the CPU refuses is no sample
            device = call.map(_on_device)
            torch.manual_seed(0)
            probes.called()
            flaw, result = "", None
            try:
                result = overload(name)(*device.args, **device.kwargs)
            except Exception as error:
                flaw = f"its CPU kernel raises {type(error).__name__}: {str(error).splitlines()[0]}"
            reached = probes.called()
            if f"operator aten::{name}" not in reached:
                continue
            if not flaw:
                flaw = _difference(result, expected) or _difference(
                    (device.args, dict(device.kwargs)), (host.args, dict(host.kwargs))
                )
        yield {"stubs": sorted(s for s in reached if not s.startswith("operator ")), "flaw": flaw}


def _difference(ours: Any, theirs: Any) -> str:
    left, right = torch.utils._pytree.tree_leaves(ours), torch.utils._pytree.tree_leaves(theirs)
    for mine, other in zip(left, right, strict=True):
        if isinstance(other, torch.Tensor):
            if mine.device.type != DEVICE and mine.dim() and mine.numel():
                return f"a result of its CPU kernel is on {mine.device}"
            try:
                torch.testing.assert_close(mine.cpu(), other, equal_nan=True, check_stride=False)
            except AssertionError as error:
                return f"its CPU kernel gives another result: {str(error).splitlines()[0]}"
        elif isinstance(other, (int, float, complex)) and mine != other and other == other:
            return f"its CPU kernel gives {mine}, not {other}"
    return ""


def _copied(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, torch.Tensor) else leaf


def _on_device(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return leaf.clone().to(DEVICE)
    if isinstance(leaf, torch.device):
        return torch.device(DEVICE)
    return leaf
