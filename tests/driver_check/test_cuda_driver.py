"""cuda_driver on the stand-in for a GPU, without PyTorch: two devices of different kinds, and bad input."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from opsmith.build.driver_library import build_driver
from opsmith.description import find_backend, read_backend

GPU = Path(__file__).parents[2] / "tools" / "gpu"
sys.path.insert(0, str(GPU))
import stand_in  # noqa: E402

GIB = 1 << 30
HEAD = f"""
import ctypes, os, signal, sys, threading, time
sys.path.insert(0, {str(GPU / "check")!r})
from opsmith.driver import DriverFailure, OpenedDriver
from raw_kernels import RawKernels
driver = OpenedDriver(sys.argv[1])

def kernels(device=0):
    return RawKernels(driver.library, device, driver.allocate(4, device))

def failure(call, *arguments):
    try:
        call(*arguments)
    except DriverFailure as error:
        return f"{{error.status.name}} {{error.text}}"
    except RuntimeError as error:
        return str(error)
    return "nothing was raised"
"""


class Stand:
    """The stand-in, and the driver that runs on it."""

    def __init__(self, folder: Path) -> None:
        backend = read_backend(find_backend("cuda_driver"), None)
        self.driver = build_driver(backend.name, backend.driver)
        self.settings = stand_in.built(folder / "stand_in")

    def run(self, script: str, cache: Path, **settings: str) -> list[str]:
        """The lines that ``script`` prints, whose process ends well and says nothing else."""
        done = subprocess.run(
            [sys.executable, "-c", HEAD + dedent(script), str(self.driver)],
            env={**os.environ, **self.settings, "OPSMITH_CACHE_DIR": str(cache), **settings},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
        return done.stdout.splitlines()


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Stand:
    return Stand(tmp_path_factory.mktemp("cuda"))


def test_devices_of_different_kinds_have_kernels_of_their_own(stand: Stand, tmp_path: Path) -> None:
    lines = stand.run(
        """
        for device in range(driver.device_count()):
            found = driver.properties(device)
            print(found.name.decode(), found.architecture.decode(), found.total_memory >> 30)
            spinning = kernels(device)
            spinning.spin(driver.default_stream(device), 10)
            driver.synchronize(driver.default_stream(device))
        """,
        tmp_path,
        OPSMITH_STAND_IN_COMPILED=str(tmp_path / "compiled"),
    )
    assert lines == [
        "a stand-in for a GPU, on the host sm_90 4",
        "an older stand-in for a GPU sm_86 2",
    ]
    compiled = (tmp_path / "compiled").read_text().splitlines()
    assert [line.split()[0] for line in compiled] == ["sm_90", "sm_86"]


def test_a_copy_between_devices_waits_for_the_event_of_the_other(
    stand: Stand, tmp_path: Path
) -> None:
    lines = stand.run(
        """
        size = 1 << 20
        spinning = kernels(0)
        source, target = driver.allocate(size, 0), driver.allocate(size, 1)
        streams = [driver.stream(device) for device in (0, 1)]
        event = driver.event(0)
        spinning.spin(streams[0], 5_000_000)
        driver.check("fill", 0, source, 7, size, streams[0])
        driver.check("event_record", event, streams[0])
        driver.check("stream_wait_event", streams[1], event)
        driver.check("copy", target, 1, source, 0, size, streams[1])
        print(driver.call("stream_query", streams[0]).name)
        driver.synchronize(streams[1])
        print(set(driver.read(target, size, 1)))
        driver.check("copy", source, 0, target, 1, size, streams[0])
        print(failure(driver.check, "event_record", event, streams[1]))
        """,
        tmp_path,
    )
    assert lines == [
        "NOT_READY",
        "{7}",
        "FAILED record an event: invalid resource handle (CUDA_ERROR_INVALID_HANDLE, 400)",
    ]


def test_another_user_of_cuda_may_change_the_device_in_use(stand: Stand, tmp_path: Path) -> None:
    lines = stand.run(
        """
        libcuda = ctypes.CDLL("libcuda.so.1")
        other = ctypes.c_void_p()
        driver.release(driver.allocate(512, 0), 0)
        libcuda.cuDevicePrimaryCtxRetain(ctypes.byref(other), 1)
        libcuda.cuCtxSetCurrent(other)
        pointer = driver.allocate(512, 0)
        print([driver.memory(device)[1] - driver.memory(device)[0] for device in (0, 1)])
        """,
        tmp_path,
    )
    assert lines == ["[512, 0]"]


def test_an_urgent_stream_overtakes_those_that_wait(stand: Stand, tmp_path: Path) -> None:
    lines = stand.run(
        """
        spinning = kernels(1)
        streams = [driver.stream(1, priority) for priority in (0, 0, -1)]
        events = [driver.event(1) for _ in streams]
        start = driver.event(1)
        driver.check("event_record", start, driver.default_stream(1))
        for stream, event, rounds in zip(streams, events, (300_000_000, 10_000_000, 10_000_000)):
            spinning.spin(stream, rounds // 32)
            driver.check("event_record", event, stream)
            time.sleep(0.02)
        times = [driver.elapsed(start, event) for event in events]
        print(sorted(range(3), key=times.__getitem__))
        """,
        tmp_path,
    )
    assert lines == ["[0, 2, 1]"]


def test_ranges_reach_nvidias_tools(stand: Stand, tmp_path: Path) -> None:
    told = tmp_path / "ranges"
    stand.run(
        """
        driver.check("range_push", "a step, µs".encode())
        driver.check("range_push", b"data")
        for _ in range(2):
            driver.check("range_pop")
        """,
        tmp_path,
        OPSMITH_NVTX_RANGES=str(told),
    )
    assert told.read_text().splitlines() == ["+a step, µs", "+data", "-", "-"]


ONE_KERNEL = """
spinning = kernels(0)
spinning.spin(driver.default_stream(), 10)
driver.synchronize(driver.default_stream())
"""


def test_kernels_are_compiled_once_for_a_device_and_a_compiler(
    stand: Stand, tmp_path: Path
) -> None:
    told = tmp_path / "compiled"
    binaries = tmp_path / "cache" / "kernels" / "cuda_driver"

    def compiled(**settings: str) -> int:
        """How many programs a process compiles, of one, that runs its kernels."""
        told.write_text("")
        stand.run(ONE_KERNEL, tmp_path / "cache", OPSMITH_STAND_IN_COMPILED=str(told), **settings)
        return len(told.read_text().splitlines())

    assert [compiled(), compiled()] == [1, 0]
    assert compiled(OPSMITH_STAND_IN_NVRTC="12090") == 1
    assert compiled(OPSMITH_STAND_IN_DRIVER="13010") == 1
    assert [compiled(), len(list(binaries.iterdir()))] == [0, 3]
    for binary in binaries.iterdir():
        binary.write_bytes(binary.read_bytes()[:-1])
    assert [compiled(), compiled()] == [1, 0]
    # One that is whole, but that the driver does not load.
    for library in Path(stand.settings["OPSMITH_STAND_IN"], "kernels").glob("*.so"):
        library.unlink()
    assert [compiled(), compiled()] == [1, 0]


def test_no_device(stand: Stand, tmp_path: Path) -> None:
    lines = stand.run("print(failure(driver.device_count))", tmp_path, OPSMITH_STAND_IN_DEVICES="0")
    assert lines == [
        "FAILED NVIDIA's driver finds no device: see that `nvidia-smi` lists it, and that "
        "CUDA_VISIBLE_DEVICES does not hide it"
    ]


def test_a_driver_that_is_older_than_the_compiler(stand: Stand, tmp_path: Path) -> None:
    lines = stand.run("print(failure(kernels))", tmp_path, OPSMITH_STAND_IN_DRIVER="12040")
    assert lines == [
        "NVIDIA's driver, of CUDA 12.4, does not load what NVRTC 13.0 makes for sm_90: the provided PTX "
        "was compiled with an unsupported toolchain. (CUDA_ERROR_UNSUPPORTED_PTX_VERSION, 222); update the "
        "driver, or name the libnvrtc.so of an NVRTC that is no newer than it in OPSMITH_NVRTC_LIBRARY"
    ]
    assert not (tmp_path / "kernels").exists()


def test_a_compiler_that_knows_the_device_not_any_more_or_not_yet(
    stand: Stand, tmp_path: Path
) -> None:
    told = tmp_path / "compiled"
    lines = stand.run(
        """
        source = driver.library.opsmith_compute_dialect
        source.restype = ctypes.c_char_p
        for major in (12, 5):
            print(driver.library.opsmith_cuda_compile(source(), major, 0), driver.last_error())
        """,
        tmp_path,
        OPSMITH_STAND_IN_COMPILED=str(told),
    )
    assert lines == [
        "0 ",
        "4 NVRTC 13.0 makes no code for sm_50: name the libnvrtc.so of an older one in "
        "OPSMITH_NVRTC_LIBRARY",
    ]
    assert told.read_text().startswith("compute_90 ")


def test_no_compiler(stand: Stand, tmp_path: Path) -> None:
    (line,) = stand.run(
        "print(failure(kernels))", tmp_path, OPSMITH_NVRTC_LIBRARY="/none/libnvrtc.so"
    )
    assert line == (
        "OPSMITH_NVRTC_LIBRARY names no library that opens: /none/libnvrtc.so; pip install "
        "nvidia-cuda-nvrtc, which a CUDA build of torch brings, or name its libnvrtc.so in "
        "OPSMITH_NVRTC_LIBRARY"
    )


def test_a_device_that_another_process_has_filled(stand: Stand, tmp_path: Path) -> None:
    lines = stand.run(
        """
        print(driver.memory())
        print(failure(driver.allocate, 2 << 20))
        driver.release(driver.allocate(1 << 20))
        """,
        tmp_path,
        OPSMITH_STAND_IN_DEVICES="1",
        OPSMITH_STAND_IN_TAKEN=str(4 * GIB - (1 << 20)),
    )
    assert lines == [
        f"({1 << 20}, {4 * GIB})",
        "OUT_OF_MEMORY allocate 2097152 bytes: out of memory (CUDA_ERROR_OUT_OF_MEMORY, 2)",
    ]


def test_after_a_kernels_fault_each_call_says_so_and_the_process_ends_well(
    stand: Stand, tmp_path: Path
) -> None:
    lines = stand.run(
        """
        first, other = kernels(0), kernels(1)
        stream, event, memory = driver.default_stream(), driver.event(), driver.allocate(512)
        driver.check("event_record", event, stream)
        first.fault(stream)
        texts = [
            failure(driver.synchronize, stream),
            failure(driver.allocate, 512),
            failure(driver.release, memory),
            failure(driver.read, memory, 512),
            failure(driver.check, "fill", 0, memory, 0, 512, stream),
            failure(driver.check, "event_record", event, stream),
            failure(driver.check, "event_synchronize", event),
            failure(driver.check, "event_query", event),
            failure(driver.memory),
            failure(driver.stream),
            "DEVICE_LOST " + failure(first.spin, stream, 1),
        ]
        print(texts[0])
        print({text.partition(": ")[2] for text in texts} == {texts[0].partition(": ")[2]})
        print({text.partition(" ")[0] for text in texts})
        other.spin(driver.default_stream(1), 10)
        driver.synchronize(driver.default_stream(1))
        """,
        tmp_path,
    )
    assert lines == [
        "DEVICE_LOST wait for a stream: an illegal memory access was encountered "
        "(CUDA_ERROR_ILLEGAL_ADDRESS, 700); a kernel that was launched before did this: "
        "OPSMITH_LAUNCH_BLOCKING=1 tells which, and NVIDIA's compute-sanitizer where in it",
        "True",
        "{'DEVICE_LOST'}",
    ]


def test_an_interrupt_arrives_when_the_kernel_is_done(stand: Stand, tmp_path: Path) -> None:
    lines = stand.run(
        """
        signal.signal(signal.SIGINT, signal.default_int_handler)
        spinning, stream = kernels(), driver.default_stream()
        spinning.spin(stream, 20_000_000)
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            driver.synchronize(stream)
            time.sleep(10)
        except KeyboardInterrupt:
            print("interrupted", driver.call("stream_query", stream).name)
        driver.write(driver.allocate(4), b"next")
        """,
        tmp_path,
    )
    assert lines == ["interrupted OK"]
