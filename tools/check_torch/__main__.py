"""Checks that a release of torch has the names and the headers that opsmith uses, without a build.

    python tools/check_torch [--record] [--compile] [WHEEL or FOLDER]
    python tools/check_torch --recorded

Reads the sources of the torch in FOLDER (site-packages, or a wheel that is unpacked) or in WHEEL, of any
platform, and imports nothing of it; by default those of the installed one.  Prints each name that is
missing, with the feature that it costs, and signatures that have changed since the release before.  Fails
where ``src/opsmith/schema/torch_names/table.py`` says otherwise, or a header is missing.  ``--record``
writes what was found to ``tests/torch_names/releases.json``, which the tests compare with the table.
``--recorded`` compares the records of all releases with the table, as the tests do.  ``--compile`` has the
compiler check what ``csrc/`` uses of the headers, too.  Some seconds; some minutes more with the compiler.
"""

from __future__ import annotations

import argparse
import sys
import zipfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from headers import failed_sources, included_headers
from records import (
    Record,
    problems,
    read_record,
    record_of,
    recorded_problems,
    release_of,
    signatures_changed,
    write_record,
)
from sources import Sources, Tree


def _tree(given: str) -> Tree:
    if given.endswith(".whl"):
        return zipfile.Path(given)
    if given:
        return Path(given)
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        sys.exit(
            "error: torch is not installed here\n  remedy: name a wheel, or a folder that has it"
        )
    return Path(spec.origin).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("where", nargs="?", default="", metavar="WHEEL or FOLDER")
    parser.add_argument("--record", action="store_true", help="write what was found to the records")
    parser.add_argument("--compile", action="store_true", help="have the compiler check csrc/")
    parser.add_argument("--recorded", action="store_true", help="check the records of all releases")
    options = parser.parse_args()
    if options.recorded:
        _fail_with(recorded_problems())
        return
    tree = _tree(options.where)
    record = record_of(Sources(tree), included_headers())
    print(f"torch {record.torch}: {len(record.names)} names, {len(record.headers)} headers")
    if options.record:
        print(f"written: {write_record(record)}")
    for change in _changes(record):
        print(f"note: {change}")
    found = problems(record)
    if options.compile:
        if not isinstance(tree, Path):
            parser.error("--compile needs a folder, not a wheel")
        found += failed_sources(tree / "torch")
    _fail_with(found)


def _fail_with(found: Sequence[str]) -> None:
    for each in found:
        print(f"error: {each}")
    if found:
        sys.exit(1)


def _changes(record: Record) -> list[str]:
    release = release_of(record.torch)
    before = read_record((release[0], release[1] - 1))
    return signatures_changed(before, record) if before is not None else []


if __name__ == "__main__":
    main()
