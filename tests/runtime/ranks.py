"""Programs of several processes for the tests: each rank runs the same text, on the loopback interface."""

from __future__ import annotations

import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from textwrap import dedent

import fork_server

_BEGIN = """
import datetime, os
import opsmith
opsmith.load("sim")
import torch
from torch import distributed as dist, nn
dist.set_debug_level_from_env()  # which a fork has read before
dist.init_process_group(
    init_method="file://" + os.environ["TEST_STORE"],
    rank=int(os.environ["RANK"]),
    world_size=int(os.environ["WORLD_SIZE"]),
    timeout=datetime.timedelta(seconds=60),
)
rank, size = dist.get_rank(), dist.get_world_size()
"""


def run_ranks(script: str, size: int = 2, **settings: str) -> list[tuple[int, str, str]]:
    """The status, the output and the errors of each rank.

    The script finds the device loaded, its group made, and ``rank``, ``size``, ``dist`` and ``nn``.
    """
    program = _BEGIN + dedent(script)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(size) as pool:

        def run(rank: int) -> tuple[int, str, str]:
            environment = {
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": str(size),
                "TEST_STORE": str(Path(folder, "store")),
                "GLOO_SOCKET_IFNAME": "lo",
                "OMP_NUM_THREADS": "1",
                **settings,
            }
            done = fork_server.run([sys.executable, "-c", program], env=environment, timeout=240)
            return done.returncode, done.stdout, done.stderr

        return list(pool.map(run, range(size)))


def expect_ranks(script: str, size: int = 2, **settings: str) -> None:
    """Runs it, and fails where a rank does."""
    for rank, (status, output, errors) in enumerate(run_ranks(script, size, **settings)):
        assert status == 0, f"rank {rank}: {output}{errors}"
