"""Kernels that are built for another processor, and called in an emulator.

ExecuTorch's libraries are for this machine, so that ``foreign_runner.cpp`` stands in for them, with the part
of the runtime that a device's kernels have instead (``csrc/lean``).  The program is linked statically: the
emulator needs no libraries of the other machine.
"""

from __future__ import annotations

import shlex
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from direct_calls import Answer, DirectCall, contents_of, text_of

from opsmith.build.cache import usable_cache
from opsmith.build.compile import Compilation
from opsmith.build.csrc import CSRC, INCLUDE_DIRS
from opsmith.build.executorch import find_executorch
from opsmith.build.generated import write_generated
from opsmith.build.lean import lean_sources
from opsmith.build.shared_library import LeanSources, SharedLibrary
from opsmith.build.toolchain import find_any_compiler
from opsmith.emit.executorch import emit_executorch
from opsmith.plan import OpenedBackend
from opsmith.plan.executorch.library_facts import BuiltFor
from opsmith.plan.executorch.resolver import LibraryKernel, Runtime, plan_executorch

_RUNNER = Path(__file__).with_name("foreign_runner.cpp")


@dataclass(frozen=True)
class ForeignRunner:
    """A program of :func:`built_runner`: ``command`` runs it, and ``kernels`` are those that it has."""

    command: tuple[str, ...]
    kernels: tuple[LibraryKernel, ...]

    def on(self, *emulator: str) -> ForeignRunner:
        """The same in an emulator."""
        return replace(self, command=(*emulator, self.command[-1]))

    def answers(self, calls: Sequence[tuple[int, DirectCall]]) -> list[Answer]:
        """The answer to each of the calls, each with its kernel's place."""
        asked = b"".join(_asked(place, call) for place, call in calls)
        done = subprocess.run(self.command, input=asked, capture_output=True, check=False)
        assert done.returncode == 0, f"{shlex.join(self.command)}: {done.stderr.decode()}"
        told, at = done.stdout, 0
        answers = []
        for _, call in calls:
            status, size = struct.unpack_from("<ii", told, at)
            answers.append(contents_of(call, status, told[at + 8 : at + 8 + size]))
            at += 8 + size
        return answers


def _asked(place: int, call: DirectCall) -> bytes:
    text = text_of(call)
    return struct.pack("<3i", place, len(call.arguments) + len(call.outs), len(text)) + text


def built_runner(
    description: Path, compiler_name: str, folder: Path, machine: str = ""
) -> ForeignRunner:
    """The runner with the libraries of a backend, compiled by a compiler into ``folder``.

    ``machine`` is the one whose instruction sets it has, where that is not the compiler's.
    """
    cache = usable_cache()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CXX", compiler_name)
        compiler = find_any_compiler(cache)
    executorch = find_executorch()
    opened = OpenedBackend(description, cache)
    plan = plan_executorch(
        opened.description, opened.catalogue, Runtime(executorch.version, frozenset())
    )
    files = emit_executorch(plan, BuiltFor(executorch.version, "", compiler.machine))
    generated = write_generated(
        f"foreign-{plan.backend}", {file.name: file.text for file in files}, cache
    )
    registrations = tuple(generated / file.name for file in files if file.name.endswith(".cpp"))
    runtime = tuple(CSRC / "lean" / name for name in ("tensor.cpp", "failure.cpp"))
    library = SharedLibrary(
        name="foreign",
        sources=(),
        lean=(
            *(
                sources
                for each in opened.description.executorch_libraries
                for sources in lean_sources(
                    each, executorch.headers, machine=machine or compiler.machine
                )
            ),
            LeanSources(
                (
                    *registrations,
                    *runtime,
                    CSRC / "executorch_library" / "random_numbers.cpp",
                    _RUNNER,
                ),
                executorch.headers,
                (CSRC, *INCLUDE_DIRS),
            ),
        ),
    )
    compilation = Compilation([library], compiler, cache)
    compilation.run(cache / "logs" / "foreign.log", lambda step: None)
    objects = (path for _, path in compilation.objects()[0])
    program = folder / "runner"
    subprocess.run(
        [*compiler.command, "-static", "-Wl,--gc-sections", *objects, "-o", program], check=True
    )
    return ForeignRunner((str(program),), plan.kernels)
