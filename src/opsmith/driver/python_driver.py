"""The base class of a driver that is written in Python: the table of ``opsmith_driver.h`` as methods.

A method's arguments are those of the C function; what C writes to a pointer is returned, and what C reports
as a status is raised.  :mod:`opsmith.driver.served` makes a table of an instance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

Stream: TypeAlias = Any
"""The result of ``default_stream`` or ``stream_create``, given back to the others; None without streams."""

Event: TypeAlias = Any
"""The result of ``event_create``."""

Graph: TypeAlias = Any
"""The result of ``capture_end``."""


@dataclass(frozen=True)
class DeviceProperties:
    """The properties of a device that people see, its memory in bytes, and the alignment of its addresses."""

    name: str
    total_memory: int
    architecture: str = "python"
    alignment: int = 64
    multiprocessors: int = 1


@dataclass(frozen=True)
class MemoryHandle:
    """The handle of an allocation for another process: up to 64 bytes, and a file descriptor if need be."""

    data: bytes = b""
    file: int | None = None


class Driver:
    """A device's memory, copies and queues.  Subclass it, and name the class in ``backend.yaml``.

    One instance, made without arguments, serves the process.  Methods may be called from any thread, and two
    of them at a time.  They raise :class:`~opsmith.driver.OutOfMemory`,
    :class:`~opsmith.driver.InvalidArgument` or :class:`~opsmith.driver.DeviceLost`; any other exception is an
    ``OPSMITH_FAILED`` with its text.  A device that does not exist is refused before a method is called.

    The first six have to be overridden.  The others are optional, in sets: the five of streams, the seven of
    events, the three of pinned memory, the two of ranges, the three of sharing, the six of graphs.  A
    device without streams does its work within the call, and gets ``None`` for a stream.  Addresses are
    ints, sizes in bytes, times in milliseconds.
    """

    name = "python"
    """The driver's name, for people."""

    # ---- devices ----

    def device_count(self) -> int:
        """How many devices there are: one, unless overridden.  Asked for once."""
        return 1

    def device_properties(self, device: int) -> DeviceProperties:
        """The properties of the device."""
        raise NotImplementedError

    def device_memory(self, device: int) -> tuple[int, int]:
        """The free and the total bytes of the device."""
        raise NotImplementedError

    # ---- memory ----

    def allocate(self, device: int, nbytes: int) -> int:
        """The address of new memory, of at least one byte, at a multiple of the device's alignment.

        It must not be an address of the host's memory: :class:`~opsmith.driver.AddressRange` has others.
        Raises :class:`~opsmith.driver.OutOfMemory`.
        """
        raise NotImplementedError

    def release(self, device: int, address: int) -> None:
        """Ends what ``allocate`` gave.  No stream uses it any more."""
        raise NotImplementedError

    def copy(
        self,
        destination: int,
        destination_device: int,
        source: int,
        source_device: int,
        nbytes: int,
        stream: Stream,
    ) -> None:
        """Copies bytes; either device may be :data:`~opsmith.driver.HOST`, but not both.

        :func:`~opsmith.driver.host_bytes` gives the host's bytes.  With streams, the copy is queued; host
        memory that is not pinned has been read or written when this returns.
        """
        raise NotImplementedError

    def fill(self, device: int, destination: int, value: int, nbytes: int, stream: Stream) -> None:
        """Sets each of ``nbytes`` bytes to ``value``, 0 to 255."""
        raise NotImplementedError

    # ---- streams: in-order queues. Optional as a set ----

    def default_stream(self, device: int) -> Stream:
        """The device's own stream, never destroyed; asked for once a device."""
        raise NotImplementedError

    def stream_create(self, device: int, priority: int) -> Stream:
        """A new stream; a priority below 0 is more urgent, which is a hint."""
        raise NotImplementedError

    def stream_destroy(self, stream: Stream) -> None:
        """Ends a stream."""
        raise NotImplementedError

    def stream_query(self, stream: Stream) -> bool:
        """Whether all of the stream's work is done.  Called before each operator that runs on the host."""
        raise NotImplementedError

    def stream_synchronize(self, stream: Stream) -> None:
        """Waits until it is."""
        raise NotImplementedError

    def stream_host_function(self, stream: Stream, function: Callable[[], None]) -> None:
        """Calls ``function`` once, when the work that was queued before it is done.  Optional, alone."""
        raise NotImplementedError

    # ---- events. Optional as a set ----

    def event_create(self, device: int, timing: bool) -> Event:
        """A new event; ``timing`` where its time will be asked for."""
        raise NotImplementedError

    def event_destroy(self, event: Event) -> None:
        """Ends an event, which streams may still wait for."""
        raise NotImplementedError

    def event_record(self, event: Event, stream: Stream) -> None:
        """The event happens when the work queued so far is done.  A second record replaces the first."""
        raise NotImplementedError

    def event_query(self, event: Event) -> bool:
        """Whether it happened; an event that was not recorded has."""
        raise NotImplementedError

    def event_synchronize(self, event: Event) -> None:
        """Waits until it has."""
        raise NotImplementedError

    def event_elapsed(self, start: Event, end: Event) -> float:
        """The milliseconds between two events that happened."""
        raise NotImplementedError

    def stream_wait_event(self, stream: Stream, event: Event) -> None:
        """Work that is queued on the stream from now on waits for the event."""
        raise NotImplementedError

    # ---- pinned host memory. Optional as a set ----

    def pinned_allocate(self, nbytes: int) -> int:
        """The address of new host memory that copies use without waiting."""
        raise NotImplementedError

    def pinned_release(self, address: int) -> None:
        """Ends what ``pinned_allocate`` gave."""
        raise NotImplementedError

    def pinned_contains(self, address: int) -> bool:
        """Whether the address lies in pinned memory."""
        raise NotImplementedError

    # ---- memory shared with other processes. Optional as a set ----

    def memory_export(self, device: int, address: int) -> MemoryHandle:
        """A handle of memory from ``allocate``, for another process.  Its file is closed by the caller.

        The work that wrote the memory is done; ``release`` comes when every process has given it up.
        """
        raise NotImplementedError

    def memory_import(self, device: int, handle: MemoryHandle) -> int:
        """The address, in this process, of memory that another one exported.

        The other methods take it like any address, ``release`` excepted.  The handle's file is open within
        the call.  An allocation may be imported again while it is.
        """
        raise NotImplementedError

    def memory_unimport(self, device: int, address: int) -> None:
        """Gives up what ``memory_import`` gave, once.  No stream uses it any more."""
        raise NotImplementedError

    # ---- graphs: work that is recorded once and run often. Optional as a set ----

    def capture_begin(self, stream: Stream) -> None:
        """Work that is queued on the stream from now on is recorded and does not run.

        So is what is queued on a stream that waits for an event that was recorded so.
        """
        raise NotImplementedError

    def capture_end(self, stream: Stream) -> Graph:
        """The recorded graph.  The capture has ended when this raises too."""
        raise NotImplementedError

    def stream_is_captured(self, stream: Stream) -> bool:
        """Whether what is queued on the stream is recorded.  Such a stream is never done."""
        raise NotImplementedError

    def graph_launch(self, graph: Graph, stream: Stream) -> None:
        """Queues the recorded work."""
        raise NotImplementedError

    def graph_destroy(self, graph: Graph) -> None:
        """Ends a graph, which does not run any more."""
        raise NotImplementedError

    def graph_dump(self, graph: Graph, path: str) -> None:
        """Writes what is recorded to a file, for people."""
        raise NotImplementedError

    # ---- optional, alone ----

    def host_window(self, address: int) -> int | None:
        """The host's address of the byte at a device address, or None where it is none of the device's.

        The distance is the same within one allocation.  Without it the CPU works on copies.
        """
        raise NotImplementedError

    # ---- ranges of the program, for the vendor's tools. Optional as a set ----

    def range_push(self, text: str) -> None:
        """Opens a range in the calling thread; those of a thread nest."""
        raise NotImplementedError

    def range_pop(self) -> None:
        """Closes the innermost one; there is one."""
        raise NotImplementedError
