"""Every variant of many groups against PyTorch's, where one variant has a kernel and opsmith made the rest.

By default of representatives; every group that OpInfo reaches takes a long build.
For each group: the calls that OpInfo's samples make, through each variant, on the device and on the
CPU; value, dtype, shape, strides, warnings and exceptions must be the same.  A difference that is meant
is declared in ``expected_failures.yaml`` with its reason; one that has gone must be removed there.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from given_kernels import given, write
from recorded import Call, copied, recorded, tensors_in
from torch import Tensor

import opsmith
from opsmith.description import read_backend
from opsmith.plan import Route, resolve
from opsmith.plan.derivation import is_pointwise
from opsmith.schema import Group, Variant, read_catalogue, torch_release
from representatives import Feature, features, representatives

pytestmark = pytest.mark.isolated(
    OPSMITH_VARIANTS_GROUPS=("representatives", "all"), nightly=("all",), opinfo=True, timeout=3600
)

CATALOGUE = read_catalogue()
GROUPS_CHECKED = os.environ["OPSMITH_VARIANTS_GROUPS"]
"""``representatives``, or ``all`` that OpInfo reaches."""

# Operators of the comparison itself, and those that must stay the runtime's own.
NOT_CHECKED = re.compile(
    r"copy|_to_copy|empty\.memory_format|empty_strided|as_strided|set\..*|resize.*|view|_to_sparse.*|"
    r"detach|t|squeeze.*|unsqueeze|transpose\.int|_unsafe_view|"
    # The kernel on the CPU writes beyond an `out` that is too small.
    r"rrelu_with_noise_functional"
)
# Results whose elements nobody promised.
UNDEFINED_VALUES = re.compile(r"(new_)?empty")

EXPECTED_FAILURES = {
    (group, where): failure["reason"]
    for failure in yaml.safe_load(
        Path(__file__).with_name("expected_failures.yaml").read_text(encoding="utf-8")
    )
    if torch_release() <= tuple(failure.get("until", torch_release()))
    for where, groups in failure["where"].items()
    for group in groups
}
"""The reasons of the differences that are meant, by group and kind of call."""


def chosen(groups: list[Group]) -> list[Group]:
    """Representatives: of signatures, of what the plan derives and how, and of each declared difference."""
    everything = write(FOLDER / "all", list(GIVEN.values()))
    plan = resolve(read_backend(everything, CATALOGUE), CATALOGUE)
    entries = {entry.name: entry for entry in plan.entries}

    def features_of(group: Group) -> set[Feature]:
        found = features(group, CATALOGUE)
        name = group.functional or ""
        found |= {
            ("expected", where, why)
            for (named, where), why in EXPECTED_FAILURES.items()
            if named == name
        }
        for variant, member in group.members():
            if GIVEN.get(name) == member:
                found.add(("given", variant))
            if entry := entries.get(member):
                call, rule = entry.call, entry.meta and entry.meta.rule
                made = call and (
                    call.derivation,
                    call.shape,
                    call.elementwise,
                    call.operands,
                    call.meta_fills,
                )
                found.add((variant, entry.route, rule, made))
        return found

    return representatives(groups, features_of)


torch.set_num_threads(1)
torch.set_warn_always(True)  # else the first of two calls gets the warning
FOLDER = Path(os.environ["OPSMITH_TEST_FOLDER"])
CALLS = recorded(FOLDER / "calls.pt")
GROUPS = [
    group
    for group in CATALOGUE.groups
    if group.functional in CALLS and not NOT_CHECKED.fullmatch(group.functional)
]
# Each group's given variant is the same whatever part of them is checked, and so are its expected failures.
GIVEN = given(GROUPS, CATALOGUE)
if GROUPS_CHECKED == "representatives":
    GROUPS = chosen(GROUPS)
GIVEN = {group.functional: GIVEN[group.functional] for group in GROUPS if group.functional in GIVEN}
LOADED = opsmith.load(str(write(FOLDER, list(GIVEN.values()))))
DEVICE = "chip"


@dataclass
class Outcome:
    """The outcome of a call: the exception's type, or the results and the arguments after it."""

    error: str = ""
    warned: list[str] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)


def run(overload: Any, arguments: dict[str, Any]) -> Outcome:
    """Calls the operator; arguments that it changes count among its results."""
    torch.manual_seed(3)
    outcome = Outcome()
    said: set[str] = set()
    with warnings.catch_warnings(record=True) as caught, _stderr(said):
        warnings.simplefilter("always")
        try:
            results = overload(**arguments)
        except Exception as error:
            outcome.error = type(error).__name__
        else:
            outcome.tensors = [*tensors_in(results), *tensors_in(arguments)]
    outcome.warned = sorted(said | {str(w.message)[:60] for w in caught})
    return outcome


@contextmanager
def _stderr(said: set[str]) -> Iterator[None]:
    """Collects the warnings that C++ prints, since torch.ops does not make them Python's."""
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            lines = file.read().decode(errors="replace").splitlines()
            said.update(
                line.partition("Warning: ")[2][:60] for line in lines if "Warning: " in line
            )


def difference(ours: Outcome, theirs: Outcome, *, values: bool) -> str:
    """The first aspect in which two outcomes differ, or nothing."""
    if ours.error != theirs.error:
        return f"exception ({ours.error or 'none'}, PyTorch {theirs.error or 'none'})"
    if ours.error:
        return ""
    if ours.warned != theirs.warned:
        return f"warning ({ours.warned}, PyTorch {theirs.warned})"
    for mine, other in zip(ours.tensors, theirs.tensors, strict=True):
        if mine.dtype != other.dtype:
            return f"dtype ({mine.dtype}, PyTorch {other.dtype})"
        if mine.shape != other.shape:
            return f"shape ({tuple(mine.shape)}, PyTorch {tuple(other.shape)})"
        if mine.stride() != other.stride() and other.numel() > 1:
            return f"strides ({mine.stride()}, PyTorch {other.stride()})"
        if values:
            try:
                torch.testing.assert_close(mine.cpu(), other, equal_nan=True)
            except AssertionError:
                return "value"
    return ""


def overload_of(name: str) -> Any:
    base, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), overload or "default")


def accepted(overload: Any, call: Call) -> dict[str, Any] | None:
    """The call's arguments as this variant takes them, or None where it needs others."""
    arguments = {}
    for argument in overload._schema.arguments:
        if argument.is_out:
            continue
        if argument.name in call.arguments:
            arguments[argument.name] = call.arguments[argument.name]
        elif not argument.has_default_value():
            return None
    return arguments


def outs_like(name: str, results: list[Any], arguments: dict[str, Any]) -> Any:
    """The ``out`` arguments of one kind, for the results of the functional variant; None: no such."""
    single = len(results) == 1 and isinstance(results[0], Tensor)
    first = next((value for value in arguments.values() if isinstance(value, Tensor)), None)

    def each(make: Any) -> list[Any]:
        return [[make(t) for t in r] if isinstance(r, list | tuple) else make(r) for r in results]

    match name:
        case "fitting":
            return each(torch.zeros_like)
        case "empty":
            return each(lambda t: torch.empty(0, dtype=t.dtype))
        case "another size":
            return each(lambda t: torch.zeros(t.numel() + 2, dtype=t.dtype))
        case "wider":
            return each(
                lambda t: torch.zeros(t.shape, dtype=torch.promote_types(t.dtype, torch.float64))
            )
        case "int":
            return each(lambda t: torch.zeros(t.shape, dtype=torch.int32))
        case "transposed":
            return each(
                lambda t: torch.zeros(t.shape[::-1], dtype=t.dtype).permute(reversed_dims(t))
            )
        case "expanded" if single and results[0].numel() > 1:
            return [torch.zeros((), dtype=results[0].dtype).expand(results[0].shape)]
        case "input" if single and first is not None:
            same = first.shape == results[0].shape and first.dtype == results[0].dtype
            return [first] if same else None
        case "overlapping" if single and first is not None and first.dim() and first.numel() > 1:
            if first.shape != results[0].shape or first.dtype != results[0].dtype:
                return None
            memory = torch.zeros(first.numel() + 1, dtype=first.dtype)
            moved = memory[1:].view(first.shape)
            moved.copy_(first)
            for key, value in arguments.items():
                if value is first:
                    arguments[key] = moved
            return [memory[:-1].view(first.shape)]
    return None


def reversed_dims(tensor: Tensor) -> tuple[int, ...]:
    return tuple(reversed(range(tensor.dim())))


# Of one size and dtype: PyTorch's CPU kernels of these write to whatever they are given.
SAFE_OUTS = ("fitting", "empty", "another size", "transposed")
UNCHECKED_OUT = re.compile(
    r"_fft_.*|linalg_.*|_linalg_.*|geqrf|ormqr|cholesky.*|triangular_solve|lu_.*"
)
OUTS = (
    "fitting", "empty", "another size", "wider", "int", "transposed", "expanded", "input", "overlapping",
)  # fmt: skip


def together(values: dict[str, Any], device: str) -> dict[str, Any]:
    """The arguments on a device; Tensors that share memory or are one Tensor still do there."""
    memory: dict[int, Tensor] = {}
    known: dict[int, Tensor] = {}

    def moved(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return type(value)(moved(item) for item in value)
        if not isinstance(value, Tensor):
            return copied(value, device)
        if id(value) not in known:
            storage = value.untyped_storage()
            key = storage.data_ptr()
            if key not in memory or key == 0:
                whole = torch.empty(0, dtype=value.dtype).set_(storage)
                memory[key] = whole.clone().to(device)
            known[id(value)] = memory[key].as_strided(
                value.shape, value.stride(), value.storage_offset()
            )
        return known[id(value)]

    return {name: moved(value) for name, value in values.items()}


def cases(group: Group, call: Call) -> Iterator[tuple[Variant, str, dict[str, Any]]]:
    """The ways to make one call: each variant, and each kind of ``out`` and of ``self``."""
    for variant, name in group.members():
        overload = overload_of(name)
        arguments = accepted(overload, call)
        if arguments is None:
            continue
        if variant is Variant.FUNCTIONAL:
            yield variant, "", arguments
        elif variant is Variant.INPLACE:
            yield variant, "", arguments
            own = arguments.get("self")
            if isinstance(own, Tensor) and own.dim() and own.numel() > 1:
                expanded = own.flatten()[:1].expand(own.shape)
                yield variant, "expanded", arguments | {"self": expanded}
        else:
            functional = overload_of(group.functional or "")
            torch.manual_seed(3)
            try:
                results = functional(**copied_all(call.arguments))
            except Exception:
                results = None
            if results is None or not all(t.layout is torch.strided for t in tensors_in(results)):
                continue
            if isinstance(results, Tensor) or _is_list(functional):
                results = [results]
            names = [a.name for a in overload._schema.arguments if a.is_out]
            for kind in SAFE_OUTS if UNCHECKED_OUT.fullmatch(group.functional or "") else OUTS:
                if kind in ("expanded", "input", "overlapping") and not is_pointwise(
                    group, CATALOGUE
                ):
                    continue  # many CPU kernels of other operators do not look
                changed = dict(arguments)
                outs = outs_like(kind, list(results)[: len(names)], changed)
                if outs is not None:
                    yield variant, kind, changed | dict(zip(names, outs, strict=True))


def _is_list(overload: Any) -> bool:
    returns = overload._schema.returns
    return len(returns) == 1 and str(returns[0].type) == "List[Tensor]"


def copied_all(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: copied(value) for name, value in arguments.items()}


def disagreements(group: Group) -> dict[str, str]:
    """Where the device differs from the CPU, by variant and kind of call."""
    found: dict[str, str] = {}
    assert group.functional is not None
    values = not UNDEFINED_VALUES.match(group.functional)
    for call in CALLS[group.functional]:
        for variant, kind, arguments in cases(group, call):
            name = dict(group.members())[variant]
            if LOADED.plan.entry(name).route is Route.COMPOSITE:
                continue  # made of other groups' operators
            overload = overload_of(name)
            theirs = run(overload, together(arguments, "cpu"))
            ours = run(overload, together(arguments, DEVICE))
            where = f"{variant.value}{', ' + kind if kind else ''}"
            if said := difference(ours, theirs, values=values):
                found.setdefault(where, said)
    return found


@pytest.mark.parametrize("group", GROUPS, ids=[group.functional for group in GROUPS])
def test_variants_agree_with_pytorch(group: Group) -> None:
    assert group.functional is not None
    found = disagreements(group)
    declared = {where for name, where in EXPECTED_FAILURES if name == group.functional}
    assert set(found) == declared, (GIVEN.get(group.functional), found)


def test_expected_failures_name_groups_that_exist() -> None:
    assert {name for name, _ in EXPECTED_FAILURES if name not in CATALOGUE.operators} == set()


def test_how_much_is_covered() -> None:
    routes: dict[Route, int] = defaultdict(int)
    for group in GROUPS:
        for _, name in group.members():
            routes[LOADED.plan.entry(name).route] += 1
    print(f"{len(GROUPS)} groups", {route.value: count for route, count in routes.items()})
    assert len(GIVEN) > 0.95 * len(GROUPS)
    assert routes[Route.DERIVED] > len(GROUPS) / 2
