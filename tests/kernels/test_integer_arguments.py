"""Integers around the ends of 32 and 64 bits, for each integer argument of each operator, beside the CPU.

A process of its own makes the calls, since what goes wrong with sizes that wrap ends one.  It may take
little memory, so that a result of 2^31 elements is refused at once, as one of 2^62 is.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import resource
import signal
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

import opsmith

pytestmark = pytest.mark.isolated(opinfo=True)

VALUES = (0, 1, -1, 2**31, 2**32, 2**33, 2**61, 2**62, 2**63 - 1, -(2**63))
_MEMORY = 1 << 30
_SECONDS = 60  # of processor time, for a call
_MOST_SAMPLES = (
    60  # of an entry, of which those with other arguments than the ones before are taken
)
_MOST_TAKEN = 3
_MOST_ELEMENTS = 20_000

# Those whose kernels calculate with what they are given.
REPRESENTATIVES = (
    *(
        "arange",
        "as_strided_copy",
        "constant_pad_nd",
        "diagonal_copy",
        "diagonal_scatter",
        "expand",
    ),
    *("full", "max_pool2d_with_indices_backward", "narrow_copy", "native_group_norm"),
    *("nn.functional.avg_pool2d", "nn.functional.conv2d", "nn.functional.conv_transpose2d"),
    *("nn.functional.max_pool3d", "nn.functional.pad", "nn.functional.pixel_shuffle"),
    *("nn.functional.pixel_unshuffle", "nn.functional.unfold", "repeat", "resize_", "roll"),
    *("slice_scatter", "split_with_sizes_copy", "topk", "tril", "unfold_copy", "view_copy"),
)

# Entries whose values no two calls have in common.
RANDOM = ("empty", "new_empty", "normal", "rand", "pca_lowrank", "svd_lowrank", "resize_")
RANDOM_METHODS = ("bernoulli", "cauchy", "exponential", "log_normal", "multinomial", "uniform")

# Where ATen does not end, or reads a Tensor of the CPU whatever the device; and entries that are made of
# others' operators, or that the fallback runs.
LEFT_OUT = (
    *("nn.functional.fractional_max_pool", "tensor_split"),
    *("linalg.", "masked.", "sparse.", "torch.ops."),
)

# Where a call ends otherwise than on the CPU, and why.
_WRAPS = "ATen's sums and products wrap, and it computes on what they become"
DIFFERS = {
    "grid_sampler_2d": "ATen takes an unknown mode for one that it knows",
    "nn.functional.conv1d": _WRAPS,
    "nn.functional.conv2d": _WRAPS,
    "nn.functional.conv3d": _WRAPS,
    "nn.functional.unfold": _WRAPS,
    "sub": "ATen negates alpha, and the least integer stays negative",
}


class Call(NamedTuple):
    """An entry's operator with one of its arguments replaced."""

    entry: Any
    arguments: Sequence[Any]
    keywords: dict[str, Any]

    def __str__(self) -> str:
        shown = tree_map_only(
            Tensor, lambda each: tuple(each.shape), (self.arguments, self.keywords)
        )
        return f"{self.entry.name} of {shown[0]} and {shown[1]}"


Place = tuple[Any, ...]


def places_of(value: Any, place: Place) -> Iterator[Place]:
    """Where integers stand in an argument: in a list the first two, and all of it at once."""
    if isinstance(value, bool):
        return
    if isinstance(value, int):
        yield place
    elif isinstance(value, list | tuple) and value and all(type(each) is int for each in value):
        yield from ((*place, index) for index in range(min(2, len(value))))
        if len(value) > 1:
            yield (*place, None)


def calls_of(entry: Any) -> Iterator[Call]:
    """The entry's samples that differ in the arguments they have, with each integer in turn replaced."""
    if torch.float32 not in entry.supported_dtypes("cpu"):
        return
    taken: set[tuple[Place, ...]] = set()
    for sample in itertools.islice(entry.sample_inputs("cpu", torch.float32), _MOST_SAMPLES):
        given = ([sample.input, *sample.args], dict(sample.kwargs))
        sizes = [leaf.numel() for leaf in tree_leaves(given) if isinstance(leaf, Tensor)]
        places = (
            *itertools.chain(*(places_of(each, (0, i)) for i, each in enumerate(given[0]))),
            *itertools.chain(*(places_of(each, (1, name)) for name, each in given[1].items())),
        )
        if places in taken or len(taken) == _MOST_TAKEN or sum(sizes) > _MOST_ELEMENTS:
            continue
        taken.add(places)
        for place, value in itertools.product(places, VALUES):
            arguments, keywords = replaced(given, place, value)
            yield Call(entry, arguments, keywords)


def replaced(given: tuple[list[Any], dict[str, Any]], place: Place, value: int) -> Any:
    side, key, *index = place
    changed = (list(given[0]), dict(given[1]))
    held = changed[side][key]
    if not index:
        changed[side][key] = value
    elif index[0] is None:
        changed[side][key] = [value] * len(held)
    else:
        changed[side][key] = [*held[: index[0]], value, *held[index[0] + 1 :]]
    return changed


def outcome(call: Call, device: str) -> Any:
    """The results of the call with its Tensors on the device; a text, where it raises."""

    def moved(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.detach().clone().to(device)
        is_the_cpu = isinstance(value, str | torch.device) and str(value) == "cpu"
        return torch.device(device) if is_the_cpu else value

    def fetched(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return value.cpu() if value.numel() <= _MOST_ELEMENTS else (value.shape, value.dtype)

    arguments, keywords = tree_map(moved, (call.arguments, call.keywords))
    try:
        return tree_leaves(tree_map(fetched, call.entry.op(*arguments, **keywords)))
    except Exception as error:
        return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def difference(call: Call) -> str:
    """How the call ends otherwise than on the CPU; empty, where it does not."""
    theirs, ours = outcome(call, "cpu"), outcome(call, "sim")
    if isinstance(theirs, str) or isinstance(ours, str):
        is_same = isinstance(theirs, str) and isinstance(ours, str)
        return "" if is_same else f"the CPU gives {theirs}, the device {ours}"
    name = call.entry.name
    is_random = name.startswith(RANDOM) or name in RANDOM_METHODS or "dropout" in name
    for mine, other in zip(ours, theirs, strict=True):
        if not isinstance(mine, Tensor) or is_random:
            if getattr(mine, "shape", mine) != getattr(other, "shape", other):
                return f"the CPU gives {other}, the device {mine}"
            continue
        try:
            torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-4, equal_nan=True)
        except AssertionError as error:
            return " ".join(str(error).split())
    return ""


def answer(pipe: Any, entries: Sequence[Any]) -> None:
    """Makes the calls of the entries, and tells of each that it begins and how it differs."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    os.environ["OPSMITH_SIM_MEMORY"] = "1GiB"
    opsmith.load("sim")
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + _MEMORY, held + _MEMORY))
    for entry in entries:
        torch.manual_seed(0)
        for call in calls_of(entry):
            pipe.send((entry.name, str(call)))
            signal.setitimer(signal.ITIMER_PROF, _SECONDS)
            pipe.send(difference(call))
    pipe.send(None)


def examine(entries: Sequence[Any]) -> None:
    """Raises :class:`AssertionError` where calls differ that may not, or do not although they may."""
    context = multiprocessing.get_context("fork")
    pipe, theirs = context.Pipe()
    process = context.Process(target=answer, args=(theirs, entries), daemon=True)
    process.start()
    theirs.close()
    count, shown, differences = 0, "before the first call", defaultdict[str, list[str]](list)
    with suppress(EOFError):
        while (begun := pipe.recv()) is not None:
            count, (name, shown) = count + 1, begun
            if found := pipe.recv():
                differences[name].append(f"{shown}: {found}")
    process.join()
    assert process.exitcode == 0, f"the process ended with {process.exitcode}: {shown}"
    wrong = [each for name, found in differences.items() if name not in DIFFERS for each in found]
    assert not wrong, f"{len(wrong)} of {count} calls:\n" + "\n".join(wrong[:20])
    declared = {entry.name for entry in entries} & DIFFERS.keys()
    assert declared <= differences.keys(), "no call of these differs: remove them from DIFFERS"
    assert count


ENTRIES = {entry.name: entry for entry in reversed(op_db) if not entry.name.startswith(LEFT_OUT)}
_PARTS = 12


def test_representatives() -> None:
    examine([ENTRIES[name] for name in REPRESENTATIVES])


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(_PARTS))
def test_every_operator(part: int) -> None:
    examine(list(ENTRIES.values())[part::_PARTS])
