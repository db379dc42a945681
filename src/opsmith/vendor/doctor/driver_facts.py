"""The facts that a driver library tells: its ABI version and name.

Runs as a program of its own (``python -m opsmith.vendor.doctor.driver_facts LIBRARY``), because opening a
vendor's library runs the vendor's code, which may crash; :func:`read_driver_facts` does that.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from pathlib import Path

import msgspec

from opsmith.base.trusted_files import open_library
from opsmith.build.csrc import PUBLIC_HEADERS
from opsmith.description import PythonDriver
from opsmith.driver.named import driver_class
from opsmith.driver.served import serve
from opsmith.driver.table import Table
from opsmith.errors import DriverInvalid, LoadError

_HEADER = PUBLIC_HEADERS / "opsmith_driver.h"
_SECONDS = 60


class DriverFacts(msgspec.Struct, frozen=True):
    """The facts in a driver's table; ``host_window``: whether it has that entry, by this version's header."""

    abi_version: int
    name: str
    host_window: bool


class _TableHead(ctypes.Structure):
    """The fields of ``opsmith_driver`` that no version of the header moves."""

    _fields_ = (
        ("abi_version", ctypes.c_uint32),
        ("struct_size", ctypes.c_uint32),
        ("name", ctypes.c_char_p),
    )


def expected_abi_version() -> int:
    """The ABI version that this opsmith's ``opsmith_driver.h`` defines."""
    defined = re.search(r"define OPSMITH_DRIVER_ABI_VERSION (\d+)", _HEADER.read_text())
    assert defined is not None, _HEADER
    return int(defined[1])


def read_driver_facts(library: Path, python: PythonDriver | None = None) -> DriverFacts:
    """The facts of the driver ``library``, with ``python`` behind it, read in a process of its own.

    Raises :class:`DriverInvalid` when it cannot be opened, crashes, or is no driver.
    """
    command = [sys.executable, "-m", __name__, str(library)]
    command += [str(python.source), python.name] if python else []
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        raise DriverInvalid(
            f"the driver {library} did not open within {_SECONDS} s",
            remedy="see what opsmith_get_driver() waits for",
        ) from None
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        why = said[-1] if said else f"the process that tried ended with status {done.returncode}"
        raise DriverInvalid(
            f"the driver {python or library} cannot be opened: {why}",
            remedy=f"see what is wrong with it: opsmith driver check {python}"
            if python
            else f"build it again, and see that the libraries it needs are found: ldd {library}",
        )
    return msgspec.json.decode(done.stdout, type=DriverFacts)


def main() -> None:
    """Prints the facts of the driver named on the command line, as one line of JSON."""
    path, *python = sys.argv[1:]
    try:
        if python:
            source, name = python
            serve(
                driver_class(Path(source) if source.endswith(".py") else source, name), Path(path)
            )
        library = open_library(path)
        get_driver = library.opsmith_get_driver
    except (OSError, AttributeError) as error:
        sys.exit(str(error))
    except LoadError as error:
        sys.exit(f"{error.location}: {error.message}" if error.location else error.message)
    get_driver.restype = ctypes.POINTER(_TableHead)
    table = get_driver()
    if not table:
        sys.exit("opsmith_get_driver() returned NULL")
    head = table.contents
    name = (head.name or b"").decode(errors="replace")
    entry = Table.host_window
    has_entry = head.struct_size >= entry.offset + entry.size
    place = ctypes.addressof(head) + entry.offset
    host_window = has_entry and bool(ctypes.c_void_p.from_address(place).value)
    facts = DriverFacts(head.abi_version, name, host_window)
    sys.stdout.write(msgspec.json.encode(facts).decode())


if __name__ == "__main__":
    main()
