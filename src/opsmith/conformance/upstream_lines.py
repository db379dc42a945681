"""Between :mod:`upstream` and :mod:`upstream_plugin`: settings of the one, and lines that the other writes.

A module of its own, for the plugin imports pytest, which only runs of PyTorch's files need.
"""

from __future__ import annotations

import msgspec

LINES_VARIABLE = "OPSMITH_UPSTREAM_LINES"
"""The file that the lines are appended to."""

DONE_VARIABLE = "OPSMITH_UPSTREAM_DONE"
"""A file with the tests that are not to run again, one in a line."""

ONLY_VARIABLE = "OPSMITH_UPSTREAM_ONLY"
"""A file with the tests that alone are to run, one in a line; empty: all."""

SHARD_VARIABLE = "OPSMITH_UPSTREAM_SHARD"
"""``2/8``: run this part of the tests, counted from 0, of so many."""

GENERIC_VARIABLE = "OPSMITH_UPSTREAM_GENERIC"
"""Set where a file's tests are made for each device by PyTorch: only the device's run."""


EXPECTED_TO_FAIL = "expected to fail: "
"""How the message of a test begins that was skipped since it failed, as its file says it does."""


class Collected(msgspec.Struct, tag=True):
    """So many tests will run."""

    count: int


class Broken(msgspec.Struct, tag=True):
    """The file could not be imported."""

    message: str


class Begun(msgspec.Struct, tag=True):
    """A test begins."""

    test: str


class Over(msgspec.Struct, tag=True):
    """A test has ended; ``outcome`` is pytest's word."""

    test: str
    outcome: str
    seconds: float
    message: str


Line = Collected | Broken | Begun | Over
