"""A driver in Python with everything that is optional: streams are threads, the memory lies in files."""

from __future__ import annotations

import ctypes
import mmap
import os
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from opsmith.driver import HOST, AddressRange, DeviceProperties, Driver, MemoryHandle

_BYTES = 128 << 20


Work = Callable[[], None]


class Queue:
    """A stream: one thread that does its work in order."""

    def __init__(self) -> None:
        self.capture: Capture | None = None
        self.work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self.queued = self.done = 0
        self.changed = threading.Condition()
        threading.Thread(target=self._run, daemon=True).start()

    def put(self, work: Work) -> None:
        if self.capture is not None:
            self.capture.work.append(work)
            return
        with self.changed:
            self.queued += 1
            self.work.put(work)

    def wait(self) -> None:
        if self.capture is not None:
            raise RuntimeError("the stream is captured")
        with self.changed:
            last = self.queued
            self.changed.wait_for(lambda: self.done >= last)

    def _run(self) -> None:
        while (work := self.work.get()) is not None:
            work()
            with self.changed:
                self.done += 1
                self.changed.notify_all()


class Capture:
    """The work of the streams that take part, in the order in which it was queued; a graph afterwards."""

    def __init__(self, first: Queue) -> None:
        self.streams = {first}
        self.work: list[Work] = []


class Mark:
    """An event: what was recorded last, and when it happened."""

    def __init__(self) -> None:
        self.capture: Capture | None = None
        self.happened: threading.Event | None = None
        self.time = 0.0


def _mapped(file: int) -> ctypes.Array[ctypes.c_ubyte]:
    return (ctypes.c_ubyte * _BYTES).from_buffer(mmap.mmap(file, _BYTES))


class QueuedChip(Driver):
    """Two devices."""

    name = "queued"

    def __init__(self) -> None:
        self.files = [os.memfd_create(f"queued-{device}") for device in range(2)]
        for file in self.files:
            os.ftruncate(file, _BYTES)
        self.memory = [_mapped(file) for file in self.files]
        self.imported: dict[int, tuple[AddressRange, ctypes.Array[ctypes.c_ubyte]]] = {}
        self.addresses = [AddressRange(_BYTES) for _ in self.memory]
        self.default_streams = [Queue() for _ in self.memory]
        self.pinned: dict[int, ctypes.Array[ctypes.c_ubyte]] = {}
        self.ranges: dict[int, list[str]] = defaultdict(list)  # by thread

    def device_count(self) -> int:
        return len(self.memory)

    def device_properties(self, device: int) -> DeviceProperties:
        return DeviceProperties("queued chip", _BYTES)

    def device_memory(self, device: int) -> tuple[int, int]:
        return _BYTES - self.addresses[device].live_bytes, _BYTES

    def allocate(self, device: int, nbytes: int) -> int:
        return self.addresses[device].allocate(nbytes)

    def release(self, device: int, address: int) -> None:
        self.addresses[device].release(address)

    def _host(self, address: int, device: int, nbytes: int) -> int:
        if device == HOST:
            return address
        for addresses, memory in list(self.imported.values()):
            if addresses.start <= address < addresses.start + _BYTES:
                return ctypes.addressof(memory) + address - addresses.start
        offset = self.addresses[device].offset(address, nbytes)
        return ctypes.addressof(self.memory[device]) + offset

    def copy(
        self,
        destination: int,
        destination_device: int,
        source: int,
        source_device: int,
        nbytes: int,
        stream: Queue,
    ) -> None:
        to = self._host(destination, destination_device, nbytes)
        origin = self._host(source, source_device, nbytes)
        stream.put(lambda: ctypes.memmove(to, origin, nbytes) and None)
        on_host = [
            address
            for address, device in ((destination, destination_device), (source, source_device))
            if device == HOST
        ]
        if any(not self.pinned_contains(address) for address in on_host):
            stream.wait()

    def fill(self, device: int, destination: int, value: int, nbytes: int, stream: Queue) -> None:
        to = self._host(destination, device, nbytes)
        stream.put(lambda: ctypes.memset(to, value, nbytes) and None)

    def default_stream(self, device: int) -> Queue:
        return self.default_streams[device]

    def stream_create(self, device: int, priority: int) -> Queue:
        return Queue()

    def stream_destroy(self, stream: Queue) -> None:
        stream.work.put(None)

    def stream_query(self, stream: Queue) -> bool:
        with stream.changed:
            return stream.capture is None and stream.done == stream.queued

    def stream_synchronize(self, stream: Queue) -> None:
        stream.wait()

    def stream_host_function(self, stream: Queue, function: Callable[[], None]) -> None:
        stream.put(function)

    def event_create(self, device: int, timing: bool) -> Mark:
        return Mark()

    def event_destroy(self, event: Mark) -> None:
        pass

    def event_record(self, event: Mark, stream: Queue) -> None:
        event.capture = stream.capture
        happened = event.happened = threading.Event()

        def happen() -> None:
            event.time = time.perf_counter()
            happened.set()

        stream.put(happen)

    def event_query(self, event: Mark) -> bool:
        return event.happened is None or event.happened.is_set()

    def event_synchronize(self, event: Mark) -> None:
        if event.happened is not None:
            event.happened.wait()

    def event_elapsed(self, start: Mark, end: Mark) -> float:
        return (end.time - start.time) * 1000

    def stream_wait_event(self, stream: Queue, event: Mark) -> None:
        if event.capture is not None and event.capture.streams:
            stream.capture = event.capture
            event.capture.streams.add(stream)
        elif (happened := event.happened) is not None:
            stream.put(lambda: happened.wait() and None)

    def pinned_allocate(self, nbytes: int) -> int:
        memory = (ctypes.c_ubyte * nbytes)()
        address = ctypes.addressof(memory)
        self.pinned[address] = memory
        return address

    def pinned_release(self, address: int) -> None:
        del self.pinned[address]

    def pinned_contains(self, address: int) -> bool:
        return any(
            start <= address < start + len(memory) for start, memory in list(self.pinned.items())
        )

    def host_window(self, address: int) -> int | None:
        own = zip(self.addresses, self.memory, strict=True)
        for addresses, memory in (*own, *list(self.imported.values())):
            if addresses.start <= address < addresses.start + addresses.nbytes:
                return ctypes.addressof(memory) + address - addresses.start
        return None

    def range_push(self, text: str) -> None:
        self.ranges[threading.get_ident()].append(text)

    def range_pop(self) -> None:
        self.ranges[threading.get_ident()].pop()

    def memory_export(self, device: int, address: int) -> MemoryHandle:
        offset = self.addresses[device].offset(address, 1)
        return MemoryHandle(offset.to_bytes(8, "little"), os.dup(self.files[device]))

    def memory_import(self, device: int, handle: MemoryHandle) -> int:
        assert handle.file is not None
        addresses = AddressRange(_BYTES)
        address = addresses.start + int.from_bytes(handle.data[:8], "little")
        self.imported[address] = (addresses, _mapped(handle.file))
        return address

    def memory_unimport(self, device: int, address: int) -> None:
        del self.imported[address]

    def capture_begin(self, stream: Queue) -> None:
        stream.capture = Capture(stream)

    def capture_end(self, stream: Queue) -> Capture:
        graph = stream.capture
        assert graph is not None
        for each in graph.streams:
            each.capture = None
        graph.streams.clear()
        return graph

    def stream_is_captured(self, stream: Queue) -> bool:
        return stream.capture is not None

    def graph_launch(self, graph: Capture, stream: Queue) -> None:
        for work in graph.work:
            stream.put(work)

    def graph_destroy(self, graph: Capture) -> None:
        graph.work.clear()

    def graph_dump(self, graph: Capture, path: str) -> None:
        Path(path).write_text(f"digraph {{ work [label={len(graph.work)}] }}\n")
