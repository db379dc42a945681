"""Which operators a backend's filled DispatchStubs serve, and which stubs others still want for.

An operator is served through stubs when all that its kernel in PyTorch calls are filled: the kernel that
comes of it is PyTorch's own, with the author's functions behind it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from opsmith.description import Kernel, Library, StubKernel
from opsmith.schema import Caller, StubMap


@dataclass(frozen=True)
class StubService:
    """``kernels`` by the operators that they serve; ``notes``, why others are not served, likewise.

    ``filled`` are the stubs that anything is made of, by name.
    """

    filled: dict[str, StubKernel] = field(default_factory=dict)
    kernels: dict[str, Kernel] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)


def serve_through_stubs(libraries: Iterable[Library], known: StubMap) -> StubService:
    """The operators served through the stubs that ``libraries`` fill, in order of preference."""
    service = StubService()
    for library in libraries:
        for stub in library.stubs:
            service.filled.setdefault(stub.stub, stub)
    for caller in known.callers.values():
        if not any(stub in service.filled for stub in caller.stubs):
            continue
        if obstacle := _obstacle(caller, service.filled):
            service.notes[caller.operator] = obstacle
        else:
            through = tuple(service.filled[stub] for stub in caller.stubs)
            service.kernels[caller.operator] = _kernel(caller, through)
    return service


def _kernel(caller: Caller, through: tuple[StubKernel, ...]) -> Kernel:
    dtypes = through[0].dtypes
    return Kernel(
        operator=caller.operator,
        symbol=caller.kernel,
        library=through[0].library,
        location=through[0].location,
        structured=caller.structured,
        dtypes=(("", dtypes),) if dtypes else (),
        through=through,
    )


def _obstacle(caller: Caller, filled: dict[str, StubKernel]) -> str:
    missing = [stub for stub in caller.stubs if stub not in filled]
    if missing:
        return f"; to be served through stubs it needs {' and '.join(f'`{s}`' for s in missing)} as well"
    # A stub that refuses a dtype after another has written would leave the work half done.
    if len({frozenset(filled[stub].dtypes) for stub in caller.stubs}) > 1:
        names = " and ".join(f"`{stub}`" for stub in caller.stubs)
        return f"; not served through stubs: the kernels of {names} take different dtypes"
    return ""
