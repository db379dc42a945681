"""The backend that a run is about, by ``OPSMITH_TEST_BACKEND``: one of this folder's descriptions.

With ``_uncached`` behind it, every allocation is the driver's, so that each can be made to fail; with
``_guarded`` the allocator looks for writes to memory that is nobody's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import opsmith
from sim_driver import SimDriver

MODE = os.environ["OPSMITH_TEST_BACKEND"]  # "zero_copy" or "copying"
for _suffix, _settings in (("_uncached", "backend:none"), ("_guarded", "debug:True")):
    if MODE.endswith(_suffix):
        MODE = MODE.removesuffix(_suffix)
        os.environ["OPSMITH_ALLOC_CONF"] = _settings
DEVICE = "sim"
LOADED = opsmith.load(str(Path(__file__).with_name(f"{MODE}.yaml")))
DRIVER = SimDriver(LOADED.built.driver)
statistics = DRIVER.statistics


@contextmanager
def fault(name: str, count: int = 1) -> Iterator[None]:
    """Within it, the driver fails as docs/describe/driver.md says; nothing is injected afterwards."""
    DRIVER.inject(name, count)
    try:
        yield
    finally:
        DRIVER.clear_faults()
