"""``opsmith package --runtime``: the wheel ``opsmith-runtime``, with objects that every backend may need.

Where it is installed a first build compiles a backend's registrations and its own kernels only: see
:mod:`opsmith.build.ready_built`.  Run as a program it makes the objects for the environment whose Python runs
it: ``python -m opsmith.vendor.package.runtime_wheel REQUEST``.
"""

from __future__ import annotations

import platform
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import msgspec

from opsmith.base.cache_folder import cache_root
from opsmith.build.own_options import is_quick_build, own_sanitizers
from opsmith.build.progress import OnProgress, Progress
from opsmith.build.ready_built import DISTRIBUTION, FOLDER, MODULE
from opsmith.build.runtime_objects import collect_runtime_objects
from opsmith.errors import PackagingError
from opsmith.schema import compiled_for, torch_version
from opsmith.vendor.package.environments import asked
from opsmith.vendor.package.fetched_torch import fetched_torch
from opsmith.vendor.package.libraries import answer
from opsmith.vendor.package.project import check_hatchling
from opsmith.vendor.package.wheel import make_output_folder, write_files_as_wheel


class Request(msgspec.Struct, frozen=True):
    """Where the objects are to be put."""

    folder: str


def package_runtime(
    output: Path, torch: Sequence[str], progress: OnProgress | None = None
) -> tuple[Path, tuple[str, ...]]:
    """The wheel in the folder ``output``, and the releases of torch that it is for.

    These are those of ``torch``, or the environment's own where that is empty; pip fetches what is not
    installed.  Raises :class:`~opsmith.errors.PackagingError` or a :class:`~opsmith.errors.BuildError`.
    """
    report = progress or (lambda step: None)
    check_hatchling()
    make_output_folder(output)
    if is_quick_build() or own_sanitizers():
        raise PackagingError(
            "OPSMITH_OPTIMIZE or OPSMITH_SANITIZE is set, and objects that are made so serve no other build",
            remedy="unset it",
        )
    mine = compiled_for(torch_version())
    releases = tuple(dict.fromkeys(map(compiled_for, torch))) or (mine,)
    with tempfile.TemporaryDirectory(prefix="opsmith-package-") as made:
        folder = Path(made) / FOLDER
        for release in releases:
            report(Progress(f"torch {release}"))
            if release == mine:
                collect_runtime_objects(folder, report)
            else:
                fetched = fetched_torch(release, cache_root(), report)
                request, module = Request(str(folder)), "opsmith.vendor.package.runtime_wheel"
                asked(sys.executable, module, request, version("opsmith"), report, fetched)
        report(Progress("writing the wheel"))
        (initial := Path(made) / "__init__.py").write_text(f'"""{_SUMMARY}"""\n')
        files = {f"{MODULE}/{FOLDER}/{path.name}": path for path in sorted(folder.iterdir())}
        wheel = write_files_as_wheel(
            {
                "name": DISTRIBUTION,
                "version": version("opsmith"),
                "description": _SUMMARY,
                "license": "BSD-3-Clause",
                "requires-python": ">=3.10",
                "dependencies": [f"opsmith=={version('opsmith')}"],
            },
            {f"{MODULE}/__init__.py": initial, **files},
            output,
            tag=f"py3-none-{_tag()}",
        )
    return wheel, releases


_SUMMARY = "Objects of opsmith's runtime and kernels, ready built for releases of torch."


def _tag() -> str:
    """Objects name no versions of symbols: they are for the glibc that they were compiled with, and later."""
    library, number = platform.libc_ver()
    if library != "glibc":
        return f"linux_{platform.machine()}"
    return f"manylinux_{number.replace('.', '_')}_{platform.machine()}"


if __name__ == "__main__":
    request = msgspec.json.decode(sys.argv[1], type=Request)
    sys.exit(answer(lambda progress: collect_runtime_objects(Path(request.folder), progress)))
