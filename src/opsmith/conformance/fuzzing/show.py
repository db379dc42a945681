"""The program at which a worker has crashed or hung, as a finding.

``python -m opsmith.conformance.fuzzing.show SEED INDEX STEP`` reads by which name the backend is loaded, the
device, how the worker ended and what it was at from its standard input.
"""

from __future__ import annotations

import sys

import msgspec

from opsmith.conformance.fuzzing.draw import draw_program
from opsmith.conformance.fuzzing.findings import Finding
from opsmith.conformance.fuzzing.program import Program


def main() -> None:
    """Prints the finding as JSON."""
    seed, index, step = map(int, sys.argv[1:])
    backend, device, how, message = msgspec.json.decode(
        sys.stdin.buffer.read(), type=tuple[str, str, str, str]
    )
    program = draw_program(seed, index)
    cut = Program(program.leaves, program.steps[: step + 1]).needed()
    comment = f"seed {seed}, program {index}: {message}"
    text = cut.text(backend, device, comment)
    finding = Finding(index, cut.steps[-1].operator, how, message, text)
    sys.stdout.buffer.write(msgspec.json.encode(finding))


if __name__ == "__main__":
    main()
