"""Every operator of a backend with its path through the dispatcher, kept in the cache.

The dispatch tables are the process's own, so the first report of a backend loads it, which takes seconds;
the next ones read what was found.  The record's name is a digest of all that it depends on: the files of
the description and the kernels' sources, the built library, torch and the code that looks.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from opsmith.base.cache_folder import cache_root, mark_used
from opsmith.base.trusted_files import read_trusted
from opsmith.build.backend import build_backend
from opsmith.build.cache import write_whole
from opsmith.build.progress import OnProgress
from opsmith.description import Backend, Kernel
from opsmith.description.built import BuiltBackend
from opsmith.errors import CacheUnusable, Location
from opsmith.observe.explain.explanation import RELEVANT_KEYS, dispatch_table
from opsmith.observe.explain.operators import DispatchStop, OperatorFacts, dispatch_path, gather
from opsmith.observe.programs.coverage import Coverage, backend_coverage, reached_routes
from opsmith.observe.report.interning import Interned
from opsmith.observe.report.report_data import OperatorColumns
from opsmith.observe.report.sources import definitions, sources_of
from opsmith.plan import OpenedBackend, Plan, Route
from opsmith.plan.kept_plans import planning_code_digest
from opsmith.runtime.as_package import how_loaded, load_as_package, open_as_loaded
from opsmith.schema import qualified, torch_version

_OBSERVE = Path(__file__).resolve().parents[1]
_CODE = (
    "programs/coverage.py",
    "explain/explanation.py",
    "explain/operators.py",
    *(f"report/{name}.py" for name in ("report_data", "operator_columns", "sources")),
)


@dataclass(frozen=True)
class Inspected:
    """Facts about a backend before anything runs on it; ``sizes`` are bytes by name.

    ``loaded`` says how it was loaded, where kernels in Python made that necessary.
    """

    plan: Plan
    operators: OperatorColumns
    coverage: tuple[Coverage, ...]
    sizes: dict[str, int]
    loaded: str = ""


def inspect_backend(name: str, *, tables: bool, progress: OnProgress | None = None) -> Inspected:
    """The operators of the backend ``name``; with ``tables``, it is built and loaded where that is needed.

    Raises what planning, building and loading it raise.
    """
    opened, loaded = open_as_loaded(name, progress=progress)
    plan = opened.plan
    built = build_backend(opened.path, progress=progress) if tables else None
    key = _key(plan, opened.outline, built)
    record = cache_root() / "inspected" / f"{plan.backend}-{key}.json"
    # Kernels that a package registers in Python stand in no file: they are looked at anew.
    found = None if loaded else _read(record)
    if found is None:
        # Who imported torch before may have changed its tables, with a Python kernel for example.
        untouched = loaded is None and (not tables or "torch" not in sys.modules)
        found = _look(opened, tables, progress)
        if untouched:
            _write(record, found)
    sizes = {"library": built.library.stat().st_size} if built else {}
    how = how_loaded(loaded) if loaded else ""
    return Inspected(plan, found.operators, found.coverage, sizes, how)


@dataclass(frozen=True)
class _Record:
    operators: OperatorColumns
    coverage: tuple[Coverage, ...]


def _look(opened: OpenedBackend, tables: bool, progress: OnProgress | None) -> _Record:
    plan, catalogue = opened.plan, opened.catalogue
    facts = gather(opened)
    dispatch_paths: dict[str, tuple[DispatchStop, ...]] = {}
    if tables:
        load_as_package(str(opened.path), progress=progress)
        dispatch_paths = {
            each.name: dispatch_path(dispatch_table(qualified(each.name), keys=RELEVANT_KEYS))
            for each in facts
        }
    reached = reached_routes(plan, catalogue)
    operators = in_columns(
        facts, reached, dispatch_paths, _serving(plan), _defined(plan, opened.description)
    )
    return _Record(operators, backend_coverage(plan, catalogue))


def _serving(plan: Plan) -> dict[str, Kernel]:
    """The kernel of the description that runs, by operator."""
    return {entry.name: entry.kernel for entry in plan.entries if entry.kernel is not None}


def _defined(plan: Plan, backend: Backend) -> dict[str, Location]:
    """Where the libraries' sources define the kernels of the plan, by symbol."""
    symbols: dict[str, set[str]] = {}
    for kernel in _serving(plan).values():
        own = [stub.symbol for stub in kernel.through] or [kernel.symbol]
        symbols.setdefault(kernel.library, set()).update(own)
    return {
        symbol: location
        for library in backend.libraries
        for symbol, location in definitions(library, symbols.get(library.name, ())).items()
    }


def in_columns(
    operators: Iterable[OperatorFacts],
    reached: Mapping[str, frozenset[Route]],
    dispatch_paths: dict[str, tuple[DispatchStop, ...]],
    serving: dict[str, Kernel],
    defined: dict[str, Location],
) -> OperatorColumns:
    """The operators as a report keeps them."""
    facts = tuple(operators)
    strings: Interned[str] = Interned()
    lists: Interned[tuple[int, ...]] = Interned()
    ways: Interned[tuple[tuple[int, int], ...]] = Interned()
    sources: Interned[tuple[str, str, int]] = Interned()

    def listed(values: Iterable[str]) -> int:
        return lists(tuple(strings(value) for value in values))

    def source(name: str) -> int:
        kernel = serving.get(name)
        if kernel is None:
            return -1
        symbol = kernel.through[0].symbol if kernel.through else kernel.symbol
        location = defined.get(symbol, kernel.location)
        return sources((symbol, str(location), strings(f"{location.path}:{location.line}")))

    stops = [dispatch_paths.get(each.name, ()) for each in facts]
    return OperatorColumns(
        name=tuple(each.name for each in facts),
        schema=tuple(each.schema for each in facts),
        route=tuple(strings(each.route) for each in facts),
        place=tuple(strings(each.place) for each in facts),
        why=tuple(strings(each.why) for each in facts),
        library=tuple(strings(each.library) for each in facts),
        variant=tuple(strings(each.variant) for each in facts),
        composite=tuple(strings(each.composite) for each in facts),
        differentiable=tuple(strings(each.differentiable) for each in facts),
        structured=tuple(each.structured for each in facts),
        tags=tuple(listed(each.tags) for each in facts),
        dtypes=tuple(listed(each.dtypes) for each in facts),
        stubs=tuple(listed(each.stubs) for each in facts),
        variants=tuple(listed(each.variants) for each in facts),
        kernels=tuple(listed(each.kernels) for each in facts),
        reached=tuple(
            listed(route.value for route in Route if route in reached[each.name]) for each in facts
        ),
        dispatch_path=tuple(
            ways(tuple((strings(stop.key), strings(stop.what)) for stop in each)) for each in stops
        ),
        locations=tuple(tuple(strings(stop.location) for stop in each) for each in stops),
        source=tuple(source(each.name) for each in facts),
        # Last: by now the tables hold all that the columns mention.
        strings=strings.table,
        lists=lists.table,
        dispatch_paths=ways.table,
        sources=sources.table,
    )


def _key(plan: Plan, backend: Backend, built: BuiltBackend | None) -> str:
    digest = hashlib.sha256()
    parts = [torch_version(), planning_code_digest(), plan.backend]
    if built is not None:
        # Both are named by their content.
        parts += [str(built.library), str(built.generated)]
    digest.update("\n".join(parts).encode())
    files = [*backend.files, *(source for each in backend.libraries for source in sources_of(each))]
    for path in (*files, *(_OBSERVE / name for name in _CODE)):
        content = path.read_bytes()
        digest.update(f"{path} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:32]


def _read(record: Path) -> _Record | None:
    try:
        found = msgspec.json.decode(read_trusted(record), type=_Record)
    except (OSError, UnicodeDecodeError, msgspec.DecodeError):
        return None
    mark_used(record)
    return found


def _write(record: Path, found: _Record) -> None:
    with suppress(CacheUnusable):  # what was found is as good without
        write_whole(record, msgspec.json.encode(found))
