"""The libraries that a user names for a program: opened, and refused where they cannot be loaded together.

All of it is asked of the files, or of a process of its own, before a library comes into one with a program:
the runtime ends a process in which two of them register the same.  Called by ``run`` and ``check``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from opsmith.description import DimOrder
from opsmith.errors import LibraryRejected, OperatorsUnserved, nearest
from opsmith.executorch.library_file import (
    check_fits,
    describes_itself,
    read_library_file,
    this_installation,
)
from opsmith.executorch.loading import library_path
from opsmith.executorch.tasks import Failed, ListOperators, RuntimeOperators
from opsmith.executorch.worker_process import ask
from opsmith.plan.executorch.built_libraries import BuiltForm, Clash, clashes
from opsmith.plan.executorch.kernel_keys import CallForm
from opsmith.plan.executorch.library_facts import FORMAT, DescribedKernel, LibraryDescription
from opsmith.plan.executorch.resolver import Runtime

SHOWN_LINES = 6
"""How many lines of the runtime's log an error has at most."""

# The runtime's message before it ends the process (runtime/kernel/operator_registry.cpp).
_TAKEN = re.compile(r"Re-registering ([\w:.]+)")


@dataclass(frozen=True)
class NamedLibrary:
    """A library's file, and what is known of it.

    Of one that registers its kernels itself that is their operators alone, for which it takes every call.
    """

    path: Path
    description: LibraryDescription
    registers_itself: bool


def named_libraries(paths: Sequence[Path], *, anywhere: bool = False) -> tuple[NamedLibrary, ...]:
    """The libraries in the files, or the folders with one, ``paths``; ``anywhere``: for any processor.

    Raises :class:`~opsmith.errors.FileMissing`, and :class:`~opsmith.errors.LibraryRejected` for one that is
    named twice, was built for something else, or cannot be loaded.
    """
    files = [library_path(path) for path in paths]
    _check_named_once(files)
    foreign = [path for path in files if not describes_itself(path, anywhere=anywhere)]
    operators = dict(zip(foreign, _operators_of(foreign), strict=True))
    return tuple(
        NamedLibrary(path, _plain_description(path, operators[path]), True)
        if path in operators
        else _described(path, anywhere)
        for path in files
    )


def check_together(
    libraries: Sequence[NamedLibrary], runtime: Runtime, forms: Iterable[CallForm]
) -> None:
    """Raises :class:`~opsmith.errors.LibraryRejected` where two register the same for ``forms``."""
    found = clashes([each.description for each in libraries], runtime, forms)
    if found:
        raise _clash(libraries, runtime, found[0])


def check_served(
    program: Path,
    served: Iterable[BuiltForm],
    libraries: Sequence[NamedLibrary],
    runtime: Runtime,
) -> None:
    """Raises :class:`~opsmith.errors.OperatorsUnserved` for all that has no kernel."""
    missing = [each for each in served if not each.is_served]
    if not missing:
        return
    kernels = {kernel.operator for each in libraries for kernel in each.description.kernels}
    known = sorted(runtime.operators | kernels)
    lines = "".join(
        f"\n  {each.form}"
        + (f": {each.nearest}" if each.nearest else nearest(each.form.operator, known))
        for each in missing
    )
    if runtime.left_out:
        who = "none of its libraries" if libraries else "nobody"
        has = f"{who} has a kernel, where ExecuTorch's own are left out"
    else:
        who = "neither its libraries nor ExecuTorch" if libraries else "not even ExecuTorch"
        has = f"{who} {runtime.version} has a kernel"
    raise OperatorsUnserved(
        f"`{program}` calls operators for which {has}:{lines}",
        remedy="build a library for it, and name that: opsmith executorch build backend.yaml --for "
        f"{program} -o DIR",
    )


def library_failure(failed: Failed, log: str) -> LibraryRejected:
    """The error for a library's ``failed`` loading, with the runtime's messages from its ``log``."""
    if taken := _TAKEN.search(log):
        return LibraryRejected(
            f"`{failed.subject}` registers {taken[1]}, for which there is a kernel already, and ExecuTorch's "
            "runtime ends the process that does so",
            remedy=f"leave out one of the two; a library of `opsmith executorch build` has kernels for "
            f"{taken[1]} beside others, since they have keys",
        )
    said = "".join(f"\n  {line}" for line in logged_reasons(log))
    return LibraryRejected(f"{failed.reason}{said}", remedy=failed.remedy)


def logged_reasons(log: str) -> list[str]:
    """The lines of the runtime's log that say what went wrong: ``[op_add.cpp:42] Check failed …``."""
    lines = [
        line for line in log.splitlines() if line.startswith("[") and "with type id" not in line
    ]
    return lines[-SHOWN_LINES:]


def _described(path: Path, anywhere: bool) -> NamedLibrary:
    file = read_library_file(path)
    check_fits(file, anywhere=anywhere)
    return NamedLibrary(path, file.description, False)


def _check_named_once(paths: Sequence[Path]) -> None:
    """Raises :class:`~opsmith.errors.LibraryRejected` for a file that is named twice."""
    seen: set[Path] = set()
    for path in paths:
        if path.resolve() in seen:
            raise LibraryRejected(
                f"`{path}` is named twice, and its kernels can be registered once",
                remedy="name each library once",
            )
        seen.add(path.resolve())


def _operators_of(paths: Sequence[Path]) -> list[list[str]]:
    """The operators that libraries bring which register their kernels themselves."""
    if not paths:
        return []
    task = ListOperators([str(path.resolve()) for path in paths])
    answer, log = ask(task, "loading " + ", ".join(f"`{path}`" for path in paths))
    if isinstance(answer, Failed):
        raise library_failure(answer, log)
    assert isinstance(answer, RuntimeOperators)
    return answer.brought


def _plain_description(path: Path, operators: Iterable[str]) -> LibraryDescription:
    name = path.stem.removeprefix("lib")
    kernels = tuple(
        DescribedKernel(operator, (), name, operator, (), True, (), DimOrder.ANY, ())
        for operator in operators
    )
    return LibraryDescription(FORMAT, name, this_installation(), False, kernels, "")


def _clash(libraries: Sequence[NamedLibrary], runtime: Runtime, clash: Clash) -> LibraryRejected:
    for_what = f"the key {clash.key}" if clash.key else "every call that no key takes"
    second = libraries[clash.second].path
    if clash.first is None:
        return LibraryRejected(
            f"`{second}` has a kernel of {clash.operator} for {for_what}, and so has ExecuTorch "
            f"{runtime.version}: the runtime holds one",
            remedy="build it anew here: opsmith executorch build backend.yaml -o DIR",
        )
    return LibraryRejected(
        f"`{libraries[clash.first].path}` and `{second}` both have a kernel of {clash.operator} for "
        f"{for_what}, and the runtime holds one",
        remedy="name one of them; or list the kernel libraries of both in one backend.yaml, in order of "
        "preference, and build that",
    )
