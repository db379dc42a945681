"""Few operator groups that stand for many: together they have whatever generated code is made from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from opsmith.schema import Catalogue, Group

Feature = tuple[object, ...]

# The generated code declares variables of these names, which an argument of ATen may have too.
OWN_NAMES = frozenset(["iter", "op", "out", "result", "results", "shape", "shapes"])

_NAME = re.compile(r"(?<=[^*,(]) (?P<name>\w+)(?=[,=]|$)")


def features(group: Group, catalogue: Catalogue) -> set[Feature]:
    """Features that generated code depends on: for each variant, its arguments, results and properties."""
    members = [(variant, catalogue.operators[name]) for variant, name in group.members()]
    kinds = tuple((variant, operator.composite) for variant, operator in members)
    found: set[Feature] = {("group", group.structured, group.iterator, kinds)}
    for variant, operator in members:
        given, _, returned = operator.schema.partition("(")[2].rpartition(" -> ")
        found.add((variant, "returns", re.sub(r" \w+(?=[,)])", "", returned)))
        found.add((variant, operator.view, operator.factory, operator.one_device, operator.meta))
        for argument in given.removesuffix(")").split(", "):
            name = argument.partition("=")[0].rpartition(" ")[2]
            found.add((variant, re.sub(r"-?\d[\d.e-]*", "0", _NAME.sub("", argument))))
            if name in OWN_NAMES:
                found.add((variant, "named", name))
    return found


def representatives(
    groups: Iterable[Group], features_of: Callable[[Group], set[Feature]]
) -> list[Group]:
    """Few of ``groups`` that together have every feature that one of them has."""
    candidates = [(group, features_of(group)) for group in groups]
    missing = set().union(*(found for _, found in candidates))
    chosen = []
    while missing:
        best, found = max(candidates, key=lambda candidate: len(candidate[1] & missing))
        chosen.append(best)
        missing -= found
    return chosen
