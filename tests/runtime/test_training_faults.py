"""Each call of the driver in a training step fails in turn: nothing hangs, is lost or silently wrong."""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import fork_server

PROGRAM = Path(__file__).with_name("training_faults.py")

# What a caller is told of the entry; nothing where another way leads to the same.
TOLD = {
    "allocate": "OutOfMemoryError",
    "copy": "could not copy",
    "event_create": "could not create an event",
    "event_record": "could not record an event",
    "event_synchronize": "injected fault: event_synchronize",
    "fill": "could not fill memory",
    "pinned_allocate": "could not pin N bytes",
    "stream_host_function": "could not queue",
    "stream_synchronize": "injected fault: stream_synchronize",
    "stream_wait_event": "could not make a stream wait for an event",
}


def run(*words: str, **settings: str) -> Any:
    done = fork_server.run(
        [sys.executable, str(PROGRAM), *words],
        env={**os.environ, "GLOO_SOCKET_IFNAME": "lo", **settings},
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def check(found: dict[str, Any], **met: int) -> None:
    """Of each entry: every failure told is told as what it is, and at least so many were ``met``."""
    for entry, seen in found.items():
        assert seen["calls"] >= met.get(entry, 0), entry
        for error in seen["told"]:
            assert TOLD[entry] in error, (entry, error)
    assert found["stream_query"]["told"] == {}


@pytest.mark.usefixtures("sim")
def test_each_call_of_a_step_fails_in_turn() -> None:
    found = run("eager")
    check(found, copy=13, fill=12, stream_query=20, stream_host_function=1, event_record=1)
    assert found["copy"]["harmless"] == 0


@pytest.mark.nightly
@pytest.mark.usefixtures("sim")
@pytest.mark.parametrize("window", ["on", "off"])
@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_each_call_of_a_step_fails_in_turn_without_a_cache(mode: str, window: str) -> None:
    found = run(mode, OPSMITH_HOST_WINDOW=window, OPSMITH_ALLOC_CONF="backend:none")
    check(found, allocate=40, copy=13)


@pytest.mark.nightly
@pytest.mark.usefixtures("sim")
@pytest.mark.parametrize("window", ["on", "off"])
def test_each_call_of_a_rank_fails_in_turn(window: str, tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    settings = {"OPSMITH_HOST_WINDOW": window, "OMP_NUM_THREADS": "1"}
    with ThreadPoolExecutor(2) as pool:
        ranks = [pool.submit(run, "ranks", store, RANK=rank, **settings) for rank in "01"]
        first, second = (rank.result() for rank in ranks)
    check(first, copy=19, fill=12, event_record=2)
    # Where the first never came to its collectives, the second was told.
    assert set(second["told"]) == {"DistBackendError"}
