"""Every operator of a backend with what is known of it: facts of the schema, and what the plan says.

``opsmith ops`` lists, filters and shows what is gathered here.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from opsmith.description import Kernel
from opsmith.errors import FilterInvalid, nearest
from opsmith.observe.explain.explanation import RELEVANT_KEYS, TableRow
from opsmith.plan import Entry, OpenedBackend, Place, Route
from opsmith.schema import Catalogue, Operator, Variant, differentiable, read_stubs


@dataclass(frozen=True)
class OperatorFacts:
    """One operator, in plain values: a row of ``opsmith ops`` and of its JSON.

    ``place`` is where it is computed, empty where nothing or only its parts are.  ``variants`` are the other
    operators of its group.  ``structured``: PyTorch's meta function checks
    and shapes the group.  ``composite`` is the dispatch key of PyTorch's decomposition, if it has one;
    ``differentiable`` where the gradient comes from (:class:`~opsmith.schema.Differentiable`, or
    ``description``).  ``stubs`` are the DispatchStubs by which it is served.  ``dtypes`` are those
    that its kernel takes; empty: all.  ``kernels`` are those that the libraries have for this very
    operator, in order of preference; the first is the one that runs.
    """

    name: str
    schema: str
    route: str
    place: str
    why: str
    library: str
    variant: str
    variants: tuple[str, ...]
    structured: bool
    composite: str
    differentiable: str
    stubs: tuple[str, ...]
    dtypes: tuple[str, ...]
    tags: tuple[str, ...]
    kernels: tuple[str, ...]


def gather(opened: OpenedBackend) -> tuple[OperatorFacts, ...]:
    """All operators of the backend's plan, by name."""
    plan, catalogue = opened.plan, opened.catalogue
    kernels: dict[str, list[str]] = {}
    for library in opened.description.libraries:
        for kernel in library.kernels:
            if kernel.symbol:
                kernels.setdefault(kernel.operator, []).append(_in_words(kernel))
    return tuple(
        _facts(
            entry,
            plan.operator(entry.name) or catalogue.operators[entry.name],
            catalogue,
            tuple(kernels.get(entry.name, ())),
        )
        for entry in plan.entries
    )


def _facts(
    entry: Entry, operator: Operator, catalogue: Catalogue, kernels: tuple[str, ...]
) -> OperatorFacts:
    group = entry.group
    variants = () if group is None else tuple(name for _, name in group.members())
    kernel = entry.kernel
    gradient = "description" if entry.autograd else differentiable(operator, catalogue).value
    return OperatorFacts(
        name=entry.name,
        schema=f"{operator.namespace}::{operator.schema}",
        route=entry.route.value,
        place=entry.where,
        why=entry.why,
        library=entry.library,
        variant=operator.variant.value,
        variants=tuple(name for name in variants if name != entry.name),
        structured=group is not None and group.structured,
        composite=operator.composite.value,
        differentiable=gradient,
        stubs=() if kernel is None else tuple(stub.stub for stub in kernel.through),
        dtypes=() if kernel is None else tuple(sorted({d for _, ds in kernel.dtypes for d in ds})),
        tags=operator.tags if not operator.view else tuple(sorted({*operator.tags, "view"})),
        kernels=kernels,
    )


def _in_words(kernel: Kernel) -> str:
    return f"{kernel.library}: {kernel.symbol} ({kernel.location})"


# ---- choosing


@dataclass(frozen=True)
class OperatorFilter:
    """Which operators to list; what is empty, or None, lets all pass.

    ``dtype`` is a name of c10, ``Float``: kernels that take it, those without a list included.
    """

    search: str = ""
    route: str = ""
    place: str = ""
    tag: str = ""
    variant: str = ""
    library: str = ""
    dtype: str = ""
    composite: str = ""
    differentiable: str = ""
    stub: str = ""
    structured: bool | None = None

    def choose(self, operators: Sequence[OperatorFacts]) -> tuple[OperatorFacts, ...]:
        """The operators that pass; where none has ``search`` in its name, those with a similar one.

        Raises :class:`~opsmith.errors.FilterInvalid` for a value that no operator has.
        """
        exact: dict[str, Callable[[OperatorFacts], Iterable[str]]] = {
            "route": lambda facts: [facts.route],
            "place": lambda facts: [facts.place],
            "tag": lambda facts: facts.tags,
            "variant": lambda facts: [facts.variant],
            "library": lambda facts: [facts.library],
            "composite": lambda facts: [facts.composite],
            "differentiable": lambda facts: [facts.differentiable],
            "stub": lambda facts: facts.stubs,
        }
        chosen = list(operators)
        for key, values in exact.items():
            if wanted := getattr(self, key):
                self._check_known(key, wanted, operators, values)
                chosen = [facts for facts in chosen if wanted in values(facts)]
        if self.dtype:
            chosen = [facts for facts in chosen if self._takes(facts)]
        if self.structured is not None:
            chosen = [facts for facts in chosen if facts.structured is self.structured]
        return self._similar(chosen) if self.search else tuple(chosen)

    @staticmethod
    def _check_known(
        key: str,
        wanted: str,
        operators: Sequence[OperatorFacts],
        values: Callable[[OperatorFacts], Iterable[str]],
    ) -> None:
        known = {value for facts in operators for value in values(facts)} - {""}
        if key == "route":
            known |= {route.value for route in Route}
        if key == "place":
            known |= {place.value for place in Place}
        if key == "variant":
            known |= {variant.value for variant in Variant}
        if key == "stub":
            known |= read_stubs().stubs.keys()
        if wanted not in known:
            raise FilterInvalid(
                f"no operator has the {key} `{wanted}`{nearest(wanted, known)}",
                remedy="`opsmith stubs` lists every stub"
                if key == "stub"
                else f"name one of: {', '.join(sorted(known))}",
            )

    def _takes(self, facts: OperatorFacts) -> bool:
        return bool(facts.library) and (not facts.dtypes or self.dtype in facts.dtypes)

    def _similar(self, operators: Sequence[OperatorFacts]) -> tuple[OperatorFacts, ...]:
        search = self.search.removeprefix("aten::").lower()
        found = [facts for facts in operators if search in facts.name.lower()]
        if not found:
            names = {facts.name.lower(): facts for facts in operators}
            close = difflib.get_close_matches(search, names, n=10, cutoff=0.6)
            return tuple(names[name] for name in close)
        # The operator itself, then those whose name begins so, then the others.
        return tuple(
            sorted(
                found,
                key=lambda facts: (
                    facts.name.lower() != search,
                    not facts.name.lower().startswith(search),
                    facts.name,
                ),
            )
        )


# ---- the path of a call through the dispatcher


@dataclass(frozen=True)
class DispatchStop:
    """A dispatch key that a call on a device's tensor passes or is served at, and what happens there."""

    key: str
    what: str
    location: str


_ONLY_UNDER = {
    "FuncTorchBatched": "only under vmap",
    "AutocastPrivateUse1": "only under torch.autocast for the device",
    "ZeroTensor": "only for a Tensor that is known to be all zeros",
    "Negative": "only for a lazily negated Tensor",
    "Conjugate": "only for a lazily conjugated Tensor",
    "Functionalize": "only while torch.compile or export functionalizes",
}
# How PyTorch has filled a key's place in the table, by the words of its dump.
_FILLED_BY = {
    "kernel": "a kernel for this very key",
    "autograd kernel": "the alias Autograd",
    "batched kernel": "the alias FuncTorchBatchedDecomposition",
    "math kernel": "the alias CompositeImplicitAutograd, which decomposes it",
    "default backend kernel": "the alias CompositeExplicitAutograd, which decomposes it",
    "backend fallback": "the key's fallback for all operators",
}
_DECOMPOSES_ABOVE = "math kernel"


def dispatch_path(table: Sequence[TableRow]) -> tuple[DispatchStop, ...]:
    """The keys that a call meets, in the dispatcher's order of priority, with what each does and why.

    ``table`` is the operator's computed dispatch table.
    """
    rows = {row.key: row for row in table}
    autograd = rows.get("AutogradPrivateUse1")
    decomposed = autograd is not None and autograd.kind == _DECOMPOSES_ABOVE
    stops = []
    for key in RELEVANT_KEYS:
        row = rows.get(key)
        if row is None or key in {"Meta", "CPU"}:
            continue
        what = _what_happens(key, row, decomposed)
        how = _FILLED_BY.get(row.kind, row.kind)
        stops.append(DispatchStop(key, f"{what}: {how}" if how else what, row.location))
    return tuple(stops)


def _what_happens(key: str, row: TableRow, decomposed: bool) -> str:
    if "fallthrough" in f"{row.kernel} {row.kind}":
        return "passes through"
    if key in _ONLY_UNDER:
        return f"stops here {_ONLY_UNDER[key]}"
    if key == "AutogradPrivateUse1" and decomposed:
        return "wins, unless under torch.inference_mode()"
    if key == "AutogradPrivateUse1":
        return "runs first, unless under torch.inference_mode(), and passes on"
    if key == "ADInplaceOrView":
        return "runs next, for version counters and views, and passes on"
    return "wins under torch.inference_mode()" if decomposed else "wins"
