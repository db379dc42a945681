"""The digest of what a run checks: the built libraries, and the Python that the device's package brings.

Verdicts are kept with it, and say nothing of a build that has another one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from opsmith.build.backend import find_built
from opsmith.conformance.results import Results
from opsmith.description import entry_point, package_of_description
from opsmith.description.built import BuiltBackend
from opsmith.errors import OpsmithError


def build_digest(description: Path, built: BuiltBackend, kernels: Path | None = None) -> str:
    """The digest of ``built``, of the package that brings ``description``, and of a file of ``kernels``."""
    # Both libraries are named for their contents.
    parts = [built.library.name, built.driver.name, package_of_description(description)]
    digest = hashlib.sha256("\n".join(parts).encode())
    for path in _python_of(description, built, kernels):
        content = path.read_bytes()
        digest.update(f"\n{path.name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def digest_at_hand(description: Path) -> str:
    """The digest of the backend as it would be loaded now; empty where it is not built."""
    try:
        built = find_built(description)
    except OpsmithError:  # whoever needs the libraries says what is wrong with them
        return ""
    return build_digest(description, built) if built else ""


def staleness(results: Results, digest: str) -> str:
    """Why ``results`` say nothing of the build ``digest``; empty where they do, or where nothing is built."""
    if not digest or results.build == digest:
        return ""
    theirs = f"the build {results.build}" if results.build else "a build that they do not name"
    return f"they are of {theirs}, made {results.updated}, and what is loaded now is the build {digest}"


def _python_of(description: Path, built: BuiltBackend, kernels: Path | None) -> Iterator[Path]:
    if entry_point(description) is not None:
        yield from sorted(description.parent.rglob("*.py"))
    elif built.python_driver and isinstance(built.python_driver.source, Path):
        yield built.python_driver.source
    if kernels is not None:
        yield kernels
