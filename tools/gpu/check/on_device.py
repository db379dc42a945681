"""Checks that need the device itself: priorities, ranges, kernels on disk, a kernel's fault, an interrupt.

``python tools/gpu/check/on_device.py BACKEND [--json]``: each part has a process of its own, which a fault
may bring down.  For drivers that have ``opsmith_compute.h``.  The last line of JSON has what each part found.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch  # NVIDIA's libraries are looked for beside it
from raw_kernels import RawKernels

import opsmith
from opsmith.driver import OpenedDriver
from opsmith.vendor.driver_check.targets import find_target

sys.path.insert(0, str(Path(__file__).parents[1]))
import stand_in

Found = dict[str, Any]
_SECONDS = 40.0
_LEFT = 512 << 20
_RANGES = ("+a step, µs", "+data", "-", "-")


def kernels(driver: OpenedDriver) -> RawKernels:
    """On the first device."""
    return RawKernels(driver.library, 0, driver.allocate(4))


def rounds_of(driver: OpenedDriver, spinning: RawKernels, seconds: float) -> int:
    """For how many rounds one group spins ``seconds``."""
    stream, tried = driver.default_stream(), 20_000
    taken = []
    for _ in range(3):
        start = time.perf_counter()
        spinning.spin(stream, tried)
        driver.synchronize(stream)
        taken.append(time.perf_counter() - start)
    return max(1, round(tried * seconds / min(taken)))


def priorities(driver: OpenedDriver) -> Found:
    """How long a small kernel waits behind large ones, on an ordinary and on an urgent stream."""
    spinning = kernels(driver)
    rounds = rounds_of(driver, spinning, 2e-4)
    groups = 256 * driver.properties().multiprocessors
    waited = {}
    for name, priority in (("ordinary", 0), ("urgent", -1)):
        busy, mine = [driver.stream() for _ in range(8)], driver.stream(0, priority)
        for stream in busy:
            spinning.spin(stream, rounds, groups)
        time.sleep(2e-3)
        start = time.perf_counter()
        spinning.spin(mine, 1)
        driver.synchronize(mine)
        waited[name] = round(1e3 * (time.perf_counter() - start), 2)
        for stream in busy:
            driver.synchronize(stream)
    return {"milliseconds": waited, "ok": waited["urgent"] < waited["ordinary"] / 2}


def ranges(driver: OpenedDriver) -> Found:
    """Opens and closes some; the parent has the tool that is told of them."""
    for line in _RANGES:
        if line == "-":
            driver.check("range_pop")
        else:
            driver.check("range_push", line[1:].encode())
    return {"ok": True}


def binaries(driver: OpenedDriver) -> Found:
    """How long it takes until kernels can be launched."""
    driver.release(driver.allocate(4))  # the device is open
    start = time.perf_counter()
    kernels(driver)
    return {"seconds": round(time.perf_counter() - start, 4), "ok": True}


def _texts(*calls: Callable[[], object]) -> list[str]:
    texts = []
    for call in calls:
        try:
            call()
            texts.append("nothing was raised")
        except torch.AcceleratorError as error:
            texts.append(str(error))
    return texts


def fault(driver: OpenedDriver) -> Found:
    """The errors of PyTorch, call for call, after a kernel's fault."""
    device = _loaded.name
    x = torch.ones(3, device=device)
    kernels(driver).fault(driver.default_stream())
    texts = _texts(
        torch.accelerator.synchronize,
        lambda: x + 1,
        x.tolist,
        lambda: torch.ones(3, device=device),
        torch.accelerator.synchronize,
    )
    return {"says": texts[0], "ok": set(texts) == {texts[0]} and "DEVICE_LOST" in texts[0]}


def interrupt(driver: OpenedDriver) -> Found:
    """When Ctrl-C arrives that is pressed while a kernel runs, and that all works afterwards."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    x = torch.ones(3, device=_loaded.name)
    spinning = kernels(driver)
    rounds = rounds_of(driver, spinning, 1.0)
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    start, arrived = time.perf_counter(), False
    try:
        spinning.spin(driver.default_stream(), rounds)
        torch.accelerator.synchronize()
        time.sleep(5)
    except KeyboardInterrupt:
        arrived = True
    seconds = round(time.perf_counter() - start, 3)
    return {"seconds": seconds, "ok": arrived and (x + 1).sum().item() == 6}


def full(driver: OpenedDriver) -> Found:
    """The error of PyTorch when another process has all but a little of the memory, and that it goes on."""
    x = torch.ones(3, device=_loaded.name)
    command = [sys.executable, __file__, _loaded.name, "--part", "holder", "--library"]
    with subprocess.Popen(
        [*command, str(_loaded.built.driver)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        held = int(json.loads(holder.stdout.readline())["held"])
        try:
            torch.empty(2 * _LEFT, dtype=torch.uint8, device=_loaded.name)
            text = "nothing was raised"
        except torch.OutOfMemoryError as error:
            text = str(error)
        works = (x + 1).sum().item() == 6
        holder.communicate()
    return {"held": held, "says": text, "ok": works and " is out of memory: 1.00 GiB were" in text}


def holder(driver: OpenedDriver) -> Found:
    """The other process, which holds the memory until its input ends."""
    held = max(0, driver.memory()[0] - _LEFT)
    if held:
        driver.allocate(held)
    print(json.dumps({"held": held}), flush=True)
    sys.stdin.read()
    return {"ok": True}


_IN_PYTORCH = (fault, interrupt, full)
PARTS = {each.__name__: each for each in (priorities, ranges, binaries, holder, *_IN_PYTORCH)}
_loaded: opsmith.LoadedBackend


def run_part(part: str, backend: str, library: str) -> None:
    """In a process of its own."""
    global _loaded
    if PARTS[part] in _IN_PYTORCH:
        _loaded = opsmith.load(backend)
        library = str(_loaded.built.driver)
    print(json.dumps(PARTS[part](OpenedDriver(library))), flush=True)


def started(part: str, backend: str, library: str, **settings: str) -> Found:
    """The findings of a part, in a process that ends well and says nothing else."""
    try:
        done = subprocess.run(
            [sys.executable, __file__, backend, "--part", part, "--library", library],
            env={**os.environ, **settings},
            capture_output=True,
            text=True,
            timeout=_SECONDS * float(os.environ.get("OPSMITH_CHECK_PATIENCE", "1")),
        )
    except subprocess.TimeoutExpired as late:
        return {"ok": False, "timed_out": True, "said": str(late.stdout) + str(late.stderr)}
    lines = done.stdout.splitlines()
    found: Found = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {"ok": False}
    if done.returncode != 0 or done.stderr:
        found |= {"ok": False, "status": done.returncode, "said": done.stderr[-2000:]}
    return found


def all_parts(backend: str, folder: Path) -> dict[str, Found]:
    """The findings of each part."""
    library = str(find_target(backend, lambda *_: None).library)
    if not hasattr(ctypes.CDLL(library), "opsmith_compute_compile"):
        return {"left out": {"ok": True, "said": "the driver compiles no kernels"}}
    # A stand-in's process knows nothing of another's memory but by this.
    taken = {"OPSMITH_STAND_IN_TAKEN": str((4 << 30) - _LEFT)}
    found = {part: started(part, backend, library) for part in ("priorities", "fault", "interrupt")}
    found["full"] = started("full", backend, library, **taken)

    told = folder / "ranges"
    (tool,) = stand_in.compiled(folder, "nvtx_tool.cpp")
    found["ranges"] = started(
        "ranges", backend, library, NVTX_INJECTION64_PATH=str(tool), OPSMITH_NVTX_RANGES=str(told)
    )
    seen = told.read_text().splitlines() if told.exists() else []
    found["ranges"] |= {"seen": seen, "ok": found["ranges"]["ok"] and tuple(seen) == _RANGES}

    cache = {"OPSMITH_CACHE_DIR": str(folder / "cache"), "CUDA_CACHE_DISABLE": "1"}
    found["binaries"] = started("binaries", backend, library, **cache)
    kept = {file: file.stat().st_mtime_ns for file in folder.glob("cache/kernels/*/*")}
    again = started("binaries", backend, library, **cache)
    found["binaries"] |= {
        "again": again.get("seconds"),
        "files": len(kept),
        "ok": found["binaries"]["ok"]
        and again["ok"]
        and bool(kept)
        and all(file.stat().st_mtime_ns == written for file, written in kept.items()),
    }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("backend", help="a name or a backend.yaml")
    parser.add_argument("--part", choices=list(PARTS), help=argparse.SUPPRESS)
    parser.add_argument("--library", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        return run_part(options.part, options.backend, options.library)
    with tempfile.TemporaryDirectory() as folder:
        found = all_parts(options.backend, Path(folder))
    for part, each in found.items():
        print(f"{part}: {each}")
    print(json.dumps(found))
    if bad := [part for part, each in found.items() if not each["ok"]]:
        sys.exit(f"failed: {', '.join(bad)}")
    return None


if __name__ == "__main__":
    main()
