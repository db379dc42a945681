"""Work in a process that may die of it, and what it said until then."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any


def lines_of(work: Iterable[object]) -> tuple[list[Any], int]:
    """Iterates over ``work`` in a forked process, whose standard error goes nowhere.

    Returns the JSON values that it gave before it was done or died, and its status as
    :func:`os.waitpid` gives it.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            with os.fdopen(writer, "w", buffering=1) as lines:
                for value in work:
                    lines.write(json.dumps(value) + "\n")
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as lines:
        values = [json.loads(line) for line in lines.read().splitlines()]
    _, status = os.waitpid(child, 0)
    return values, status
