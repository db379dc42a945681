"""The files that a backend's libraries are made from: their digest, by which what is built has its name.

Called by :mod:`opsmith.build.backend` at each start that has to look at them, and by what packages them.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

from opsmith.build.csrc import CSRC, META_FUNCTIONS, PACKAGE
from opsmith.build.driver_library import is_package
from opsmith.build.own_options import own_settings
from opsmith.description import FLAG_GEMS, Backend

_INCLUDED = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
# From above, or no header, such as the text of a kernel in OpenCL C.
_ELSEWHERE = re.compile(r'^\s*#\s*include\s*"(\.\./[^"]+|[^"]+\.(?!h)\w+)"', re.MULTILINE)
_PYTHON_AND_YAML = frozenset({".py", ".yaml"})
# More of them would cost a start more than they save.
_MOST_WATCHED = 4000


def digest_of_inputs(backend: Backend, versions: str) -> str:
    """A digest of everything that the libraries are made from, wherever that lies."""
    settings = f"{versions} {own_settings()} {backend.driver.host_window}"
    options = [backend.driver.options, *(library.options for library in backend.libraries)]
    # The linker notes where they are.
    settings += "".join(f" {path}" for each in options for path in each.files)
    digest = hashlib.sha256(settings.encode())
    # Sorted by place: the folder of the description may come before or after the package's.
    for place, path in sorted((_place(path, backend), path) for path in _inputs(backend)):
        content = path.read_bytes()
        digest.update(os.fsencode(f"{place} {len(content)}\n"))
        digest.update(content)
    return digest.hexdigest()[:32]


def _place(path: Path, backend: Backend) -> str:
    """``path`` from the package or the description on, where it lies in the folder of one of them."""
    for name, folder in (("opsmith", PACKAGE), (".", backend.location.path.parent)):
        if path.is_relative_to(folder):
            return f"{name}/{path.relative_to(folder)}"
    return str(path)


def _inputs(backend: Backend) -> list[Path]:
    rooms = ("schema", "description", "plan", "emit", "build")
    inputs = [
        path
        for room in rooms
        for path in (PACKAGE / room).rglob("*")
        if path.suffix in _PYTHON_AND_YAML
    ]
    inputs += [path for path in CSRC.rglob("*") if path.is_file()]
    inputs += META_FUNCTIONS
    inputs += {path for source in META_FUNCTIONS for path in source.parent.glob("*.h")}
    return [*{*inputs, *_described(backend), *_included_from_elsewhere(inputs)}]


def own_files(backend: Backend) -> list[Path]:
    """The files that ``backend`` is made of, but for those that come with opsmith."""
    python = backend.driver.python
    classes = {python.source} if python and isinstance(python.source, Path) else set()
    modules = {path for library in backend.libraries for path in library.modules}
    installed = {each.location.path for each in backend.libraries if each.name == FLAG_GEMS}
    files = (_described(backend) - installed) | classes | modules
    return [path for path in files if not is_package(path)]


def _described(backend: Backend) -> set[Path]:
    """The files that the description names, the headers beside them, and what else they include."""
    inputs = [*backend.files, *backend.driver.sources, *backend.driver.options.files]
    folders = {*backend.driver.include_dirs}
    for library in backend.libraries:
        inputs += library.sources + library.vectorised + library.meta_sources
        inputs += library.options.files
        folders |= {*library.include_dirs}
    if backend.driver.library:
        inputs.append(backend.driver.library)
    # Headers lie beside the sources that include them, or in the include directories.
    folders |= {
        source.parent for source in inputs if source.suffix in {".c", ".cc", ".cpp", ".cxx"}
    }
    inputs += [path for folder in folders for path in folder.glob("**/*.h*") if path.is_file()]
    return {*inputs, *_included_from_elsewhere(inputs)}


def _included_from_elsewhere(sources: Iterable[Path]) -> set[Path]:
    """The files that ``sources`` include, no headers beside them: ``"../common/dims.h"``, ``"relu.cl"``."""
    return set(filter(Path.is_file, _looked_for(sources)))


def _looked_for(sources: Iterable[Path]) -> set[Path]:
    """The places in which such files would be, whether or not they are there."""
    waiting = [path for path in sources if path.suffix not in _PYTHON_AND_YAML]
    found: set[Path] = set()
    while waiting:
        path = waiting.pop()
        text = path.read_text(encoding="utf-8", errors="replace")
        for name in (_INCLUDED if path in found else _ELSEWHERE).findall(text):
            included = (path.parent / name).resolve()
            if included not in found:
                found.add(included)
                if included.is_file():
                    waiting.append(included)
    return found


def watched_paths(backend: Backend) -> frozenset[Path] | None:
    """The files and folders whose state tells whether :func:`digest_of_inputs` would be another.

    Those of opsmith, and those in the folders of the description's files: a file that comes to lie in one of
    the folders may match a pattern, or be included.  None where the description reaches beyond them, or
    where there are too many to ask for at each start.
    """
    inputs = {*_inputs(backend)}
    roots = {PACKAGE, *(path.parent for path in backend.files)}
    places = {*inputs, *backend.driver.include_dirs}
    places.update(folder for library in backend.libraries for folder in library.include_dirs)
    if not all(any(path.is_relative_to(root) for root in roots) for path in places):
        return None
    folders = _folders_in({root for root in roots if roots.isdisjoint(root.parents)})
    if folders is None or len(inputs) + len(folders) > _MOST_WATCHED:
        return None
    return frozenset({*inputs, *folders, *_looked_for(inputs)})


def _folders_in(roots: Iterable[Path]) -> set[Path] | None:
    """The folders in ``roots``, with these; None where one is a link, which may lead out of them."""
    found = set()
    for root in roots:
        for folder, names, _ in os.walk(root):
            names[:] = [name for name in names if name != "__pycache__"]
            found.add(Path(folder))
            if len(found) > _MOST_WATCHED or any(
                os.path.islink(os.path.join(folder, name)) for name in names
            ):
                return None
    return found
