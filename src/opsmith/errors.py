"""The errors that opsmith shows to people.

Every error says what happened, where (``file:line:column`` of the user's own file, where there is
one), why, and what to do about it.  One class per cause, all under :class:`OpsmithError`; the rooms
raise them, only ``cli`` prints them.
"""

from __future__ import annotations

import difflib
import functools
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class Location:
    """A place in a user's file; ``line`` and ``column`` count from 1."""

    path: Path
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        position = f":{self.line}" if self.line else ""
        column = f":{self.column}" if self.line and self.column else ""
        return f"{self.shown_path}{position}{column}"

    @property
    def shown_path(self) -> str:
        """The path as messages show it: files that come with opsmith from ``opsmith/`` on."""
        return _shown_path(self.path)


@functools.cache
def _shown_path(path: Path) -> str:
    try:
        return str(Path("opsmith") / path.relative_to(_PACKAGE))
    except ValueError:
        return str(path)


class OpsmithError(Exception):
    """The base of all errors that are meant for people.

    ``message`` says what is wrong and why, ``location`` where, ``remedy`` what to write or run
    instead.
    """

    def __init__(self, message: str, *, location: Location | None = None, remedy: str = "") -> None:
        # A name from a file may hold what a terminal would obey.
        message = _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", message)
        self.message = message
        self.location = location
        self.remedy = remedy
        where = f"{location}: " if location else ""
        advice = f"\n  remedy: {remedy}" if remedy else ""
        super().__init__(f"{where}{message}{advice}")


def nearest(name: str, known: Iterable[str], count: int = 3) -> str:
    """`` (did you mean a, b?)``: the known names most like ``name``, or an empty string."""
    candidates = list(known)
    # An overload left out or misspelt is the likeliest mistake: "add" should find "add.Tensor".
    overloads = [other for other in candidates if other.split(".")[0] == name.split(".")[0]]
    close = difflib.get_close_matches(name, overloads, n=count, cutoff=0.0)
    close = close or difflib.get_close_matches(name, candidates, n=count, cutoff=0.6)
    return f" (did you mean {', '.join(close)}?)" if close else ""


# ---- names of the version before ---------------------------------------------------------------

_OLD_NAMES = {
    "GapInvalid": "ExpectedFailureInvalid",
    "InputsRefused": "InputsRejected",
    "KernelRefused": "KernelRejected",
    "LibraryRefused": "LibraryRejected",
    "OutputRefused": "OutputRejected",
    "TraceRefused": "TraceRejected",
    "WholeRefused": "InterceptionRejected",
}


def __getattr__(name: str) -> type[OpsmithError]:
    """The class that was called ``name`` in the version before this one, with a warning."""
    if name not in _OLD_NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(
        f"opsmith.errors.{name} is called {_OLD_NAMES[name]} now; the next version of opsmith has the new "
        "name only",
        FutureWarning,
        stacklevel=2,
    )
    found: type[OpsmithError] = globals()[_OLD_NAMES[name]]
    return found


# ---- the description ---------------------------------------------------------------------------


class DescriptionError(OpsmithError):
    """A backend or a manifest that cannot be read as what it claims to be."""


class FileMissing(DescriptionError):
    """A file that the description or the command line names does not exist."""


class SyntaxInvalid(DescriptionError):
    """A file that is not YAML, or a value of the wrong type or shape."""


class FormatUnknown(DescriptionError):
    """A YAML file in none of the formats that opsmith reads, or in one that does not belong here."""


class KeyUnknown(DescriptionError):
    """A key that opsmith does not know."""


class OperatorUnknown(DescriptionError):
    """An operator that the installed torch does not have."""


class StubUnknown(DescriptionError):
    """A ``DispatchStub`` that the installed torch does not declare."""


class SchemaInvalid(DescriptionError):
    """An operator schema that does not parse."""


class KernelDuplicate(DescriptionError):
    """Two kernels for the same operator and dtypes in one library."""


class KernelRejected(DescriptionError):
    """A kernel that cannot serve its operator as declared."""


class RegistryFull(DescriptionError):
    """More kernels for ExecuTorch than its runtime's registry has room for."""


class OperatorsUnserved(DescriptionError):
    """Programs of ExecuTorch call operators that neither a library nor the runtime has a kernel for."""


class InterceptionRejected(DescriptionError):
    """An operator that the fallback policy wants intercepted, and that cannot be."""


class AutocastRejected(DescriptionError):
    """The description has autocast cast for an operator for which that cannot be."""


class InductorRejected(DescriptionError):
    """The description has ``torch.compile`` generate what the driver cannot run."""


class BackendUnknown(DescriptionError):
    """A backend name that is neither shipped nor a file."""


class OutputRejected(OpsmithError):
    """A file that a command was to write exists already, or cannot be written."""


# ---- generated code ----------------------------------------------------------------------------


class FolderUnusable(OpsmithError):
    """A folder that cannot hold generated files."""


class FolderOutOfDate(OpsmithError):
    """A folder whose generated files are not those of the description."""


# ---- the build ---------------------------------------------------------------------------------


class BuildError(OpsmithError):
    """Compiling or linking the backend failed."""


class CompilerMissing(BuildError):
    """No usable C++20 compiler was found."""


class SettingInvalid(BuildError):
    """An environment variable that says how to plan, to build or to load has a value that means nothing."""


class PythonHeadersMissing(BuildError):
    """Python kernels are asked for, and the running Python has no ``Python.h``."""


class CompilationFailed(BuildError):
    """The compiler rejected a source file."""


class SymbolUndefined(BuildError):
    """The description names a kernel that the sources do not define.

    ``symbols`` holds what the linker misses, demangled.
    """

    def __init__(
        self,
        message: str,
        *,
        symbols: Sequence[str],
        location: Location | None = None,
        remedy: str = "",
    ) -> None:
        self.symbols = tuple(symbols)
        super().__init__(message, location=location, remedy=remedy)


class CacheUnusable(BuildError):
    """The cache directory cannot be written: no space, or no permission."""


# ---- packages ----------------------------------------------------------------------------------


class PackagingError(OpsmithError):
    """A wheel that cannot be made of a backend as it is described."""


class MetadataInvalid(PackagingError):
    """A package's metadata in ``pyproject.toml`` or on the command line that cannot be a wheel's."""


class SourceOutside(PackagingError):
    """A file that a description names lies outside the folder that becomes the package."""


class EnvironmentUnusable(PackagingError):
    """Another environment whose torch a wheel is to be built for, and that cannot build it."""


# ---- kernels that run --------------------------------------------------------------------------


class Unsupported(OpsmithError, NotImplementedError):
    """A Python kernel raises it to refuse a call: ``raise opsmith.Unsupported("k is above 1024")``.

    With ``on_error="fallback"`` the operator then runs on the CPU, and is counted with the reason.
    """


# ---- the device --------------------------------------------------------------------------------


class NotShareable(OpsmithError, RuntimeError):
    """A device's tensor cannot be handed to another process."""


class SharedMemoryGone(NotShareable):
    """A device's tensor that another process has sent is there no more."""


class NotOffered(OpsmithError, NotImplementedError):
    """A function of ``torch.<name>`` asks for what the contract with drivers does not have."""


class NameLeftOut(OpsmithError, AttributeError):
    """A name of ``torch.cuda`` that ``torch.<name>`` leaves out, with the reason."""


class NoHostWindow(OpsmithError, RuntimeError):
    """The host is to address a device's memory, and the device has no host window."""


class LoadError(OpsmithError):
    """A built backend cannot be loaded into this process."""


class FileUntrusted(LoadError):
    """A file that another user could have written, or replaced, and that is not loaded for that."""


class DriverInvalid(LoadError):
    """A driver library that cannot be opened, or that has another ABI version."""


class LibraryRejected(LoadError):
    """A kernel library for ExecuTorch that was built for another one, or whose kernels are taken."""


class PackageInvalid(LoadError):
    """A backend in an installed package that is damaged, or in a format of another opsmith."""


class PackageUnfit(LoadError):
    """A backend in an installed package that is for another torch or another machine.

    ``has_sources``: the package carries what is needed to build it here.
    """

    def __init__(self, message: str, *, has_sources: bool, remedy: str = "") -> None:
        self.has_sources = has_sources
        super().__init__(message, remedy=remedy)


class TorchNameMissing(LoadError):
    """A name of PyTorch's own, which the installed release does not have."""


class NotBuilt(LoadError):
    """``import torch`` would have to compile the device that a package brings, which nobody has asked for."""


class SlotTaken(LoadError):
    """PyTorch has one slot for an out-of-tree device, and it is taken."""


class IntegrationError(OpsmithError):
    """A library that chooses devices by name cannot be told of the loaded one."""


class DeviceMissing(IntegrationError):
    """There is no device yet that a library could be told of."""


class LibraryMissing(IntegrationError):
    """The library that is to be told of the device is not installed."""


class LibraryChanged(IntegrationError):
    """The library is not the one that opsmith knows: a part is missing that it would change."""


class DevicesInvalid(IntegrationError, ValueError):
    """A library is asked for devices that there are not, or for more at once than it can use."""


class PolicyInvalid(OpsmithError):
    """An invalid policy for the fallback, in the environment or in a program."""


class BudgetInvalid(OpsmithError):
    """Limits on the fallback that a command cannot apply."""


class TraceRejected(OpsmithError):
    """A trace that cannot start: another one runs, or nothing can be recorded."""


# ---- what commands are asked for ---------------------------------------------------------------


class NameRejected(OpsmithError):
    """A new device whose name is something else already: a module, a package, a function of C."""


class ChoicesRejected(OpsmithError):
    """Choices for a new project that do not go together."""


class ProjectInvalid(OpsmithError):
    """A project that `opsmith new` cannot bring up to date: a newer opsmith wrote it, or it was altered."""


class FilterInvalid(OpsmithError):
    """A filter names something that no operator has."""


class ResultsInvalid(OpsmithError):
    """A file of results that holds none, or that a newer opsmith wrote."""


class ExecutorchMissing(OpsmithError):
    """A command for ExecuTorch's programs, and ExecuTorch is not installed."""


class BenchmarkUnknown(OpsmithError):
    """A benchmark that the folder does not have."""


class ProgramInvalid(OpsmithError):
    """A program that a command cannot run: a factory that gives no module, a broken graph."""


class InputsRejected(OpsmithError):
    """Inputs that a program of ExecuTorch was not exported for."""


class ProgramFailed(OpsmithError):
    """ExecuTorch's runtime refused to load or to run a program, or ended with it."""


class ExpressionInvalid(OpsmithError):
    """A Python expression on the command line raises, or gives no Tensor."""


# ---- conformance -------------------------------------------------------------------------------


class ConformanceError(OpsmithError):
    """A conformance run that cannot be made: something that it is asked for, or that it needs, is missing."""


class ExpectedFailureInvalid(OpsmithError):
    """An expected failure that names nothing that can be run."""
