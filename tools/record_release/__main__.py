"""Records the facts of the installed torch that no file of its wheel states, in ``schema/recorded``.

    python tools/record_release [--check] [--all]

Runs the tools that find them, one after the other, with this Python; each says what it does.  Takes some
minutes, and forty more with ``--all``, which calls every composite to find those that read host memory: see
``find_host_readers``.  ``--check`` writes nothing and fails where a file in the tree says something else.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

# The last one calls what the others' files say has changed.
_TOOLS = ("list_operators", "find_stubs", "find_parts", "find_host_readers")


def main() -> int:
    parser = argparse.ArgumentParser(prog="record_release", description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="compare with the files, write nothing"
    )
    parser.add_argument("--all", action="store_true", help="call every composite")
    options = parser.parse_args()

    tools = Path(__file__).resolve().parents[1]
    status = 0
    for tool in _TOOLS:
        command = [sys.executable, str(tools / tool)]
        command += ["--check"] if options.check else []
        command += ["--all"] if options.all and tool == "find_host_readers" else []
        print(" ".join(command), flush=True)
        status |= subprocess.run(command).returncode
        if status and not options.check:
            break  # the next tool reads what this one writes
    return status


if __name__ == "__main__":
    sys.exit(main())
