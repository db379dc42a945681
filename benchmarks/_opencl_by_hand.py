"""The peers of ``opencl.py``: kernels by hand through pyopencl, in a process of their own.

Neither side's queues and threads are so in the other's.  Each kernel is the fastest of several on the
device, which is the one that opsmith takes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import numpy
import pyopencl as cl
from _turns import median_microseconds

ELEMENTS = 1_000_000
SIDE = 1024

_ADD = """
kernel void run(global const float* a, global const float* b, global float* out) {
  const int i = get_global_id(0);
  if (i < COUNT) out[i] = a[i] + b[i];
}
"""
# For matrices that the tiles divide: a group of one item packs both tiles into private memory.
_PACKED = """
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define V JOIN(float, NR)
#define LOAD JOIN(vload, NR)
#define STORE JOIN(vstore, NR)
kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void run(global const float* a, global const float* b, global float* out) {
  const int m0 = get_group_id(1) * MT, n0 = get_group_id(0) * NT;
  float pa[KT * MT], pb[KT * NT];
  for (int k0 = 0; k0 < SIDE; k0 += KT) {
    for (int m = 0; m < MT; m++)
      for (int k = 0; k < KT; k++) pa[(m / MR) * KT * MR + k * MR + m % MR] = a[(m0 + m) * SIDE + k0 + k];
    for (int k = 0; k < KT; k++)
      for (int n = 0; n < NT; n += NR)
        STORE(LOAD(0, b + (k0 + k) * SIDE + n0 + n), 0, pb + (n / NR) * KT * NR + k * NR);
    for (int m = 0; m < MT; m += MR) {
      for (int n = 0; n < NT; n += NR) {
        const float* qa = pa + m * KT;
        const float* qb = pb + n * KT;
        global float* tile = out + (m0 + m) * SIDE + n0 + n;
        V sums[MR];
        #pragma unroll
        for (int i = 0; i < MR; i++) sums[i] = k0 == 0 ? (V)(0.0f) : LOAD(0, tile + i * SIDE);
        for (int k = 0; k < KT; k++) {
          const V line = LOAD(k, qb);
          #pragma unroll
          for (int i = 0; i < MR; i++) sums[i] = fma((V)(qa[k * MR + i]), line, sums[i]);
        }
        #pragma unroll
        for (int i = 0; i < MR; i++) STORE(sums[i], 0, tile + i * SIDE);
      }
    }
  }
}
"""
# The same for GPUs: items share tiles in local memory, and each has MR x NR sums.
_SHARED = """
kernel __attribute__((reqd_work_group_size(NT / NR, MT / MR, 1)))
void run(global const float* a, global const float* b, global float* out) {
  local float pa[KT][MT + 1], pb[KT][NT];
  const int x = get_local_id(0), y = get_local_id(1), width = NT / NR, height = MT / MR;
  const int m0 = get_group_id(1) * MT, n0 = get_group_id(0) * NT;
  float sums[MR][NR];
  for (int i = 0; i < MR; i++)
    for (int j = 0; j < NR; j++) sums[i][j] = 0;
  for (int k0 = 0; k0 < SIDE; k0 += KT) {
    for (int e = y * width + x; e < KT * MT; e += width * height)
      pa[e % KT][e / KT] = a[(m0 + e / KT) * SIDE + k0 + e % KT];
    for (int e = y * width + x; e < KT * NT; e += width * height)
      pb[e / NT][e % NT] = b[(k0 + e / NT) * SIDE + n0 + e % NT];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = 0; k < KT; k++)
      for (int i = 0; i < MR; i++)
        for (int j = 0; j < NR; j++)
          sums[i][j] = fma(pa[k][y + i * height], pb[k][x + j * width], sums[i][j]);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  for (int i = 0; i < MR; i++)
    for (int j = 0; j < NR; j++) out[(m0 + y + i * height) * SIDE + n0 + x + j * width] = sums[i][j];
}
"""
# MT, NT, KT, MR, NR.
_PACKED_TILES = ((64, 64, 64, 4, 16), (64, 128, 128, 4, 16), (64, 64, 128, 8, 8))
_SHARED_TILES = ((64, 64, 16, 4, 4), (128, 128, 16, 8, 8))
_ADD_GROUPS = (256, 1024, 4096)


class NoPlatform(Exception):
    """OpenCL has no device here."""


class Peer:
    """Kernels by hand, on the device that opsmith takes."""

    def __init__(self) -> None:
        self.held: list[cl.Buffer] = []
        self.device = _device()
        self.context = cl.Context([self.device])
        self.queue = cl.CommandQueue(self.context)

    def buffer(self, values: numpy.ndarray[Any, Any]) -> cl.Buffer:
        return cl.Buffer(self.context, cl.mem_flags.COPY_HOST_PTR, hostbuf=values)

    def call(
        self,
        source: str,
        options: str,
        grid: tuple[int, ...],
        group: tuple[int, ...],
        *buffers: cl.Buffer,
    ) -> Callable[[], object]:
        """Launches the kernel of ``source``, and waits for it."""
        kernel = cl.Program(self.context, source).build(options.split()).run
        kernel.set_args(*buffers)
        self.held += buffers  # a kernel's arguments do not keep them
        return lambda: cl.enqueue_nd_range_kernel(self.queue, kernel, grid, group).wait()

    def adding(self, a: cl.Buffer, b: cl.Buffer, out: cl.Buffer) -> Callable[[], object]:
        """The fastest sum of the first two."""
        return _fastest(
            {
                f"groups of {group}": self.call(
                    _ADD,
                    f"-DCOUNT={ELEMENTS}",
                    (-(-ELEMENTS // group) * group,),
                    (group,),
                    a,
                    b,
                    out,
                )
                for group in _ADD_GROUPS
                if group <= self.device.max_work_group_size
            }
        )

    def multiplying(self, a: cl.Buffer, b: cl.Buffer, out: cl.Buffer) -> Callable[[], object]:
        """The fastest product of the first two."""
        calls = {}
        on_cpu = self.device.type & cl.device_type.CPU
        for tiles in (_PACKED_TILES if on_cpu else ()) + _SHARED_TILES:
            mt, nt, _, mr, nr = tiles
            packed = tiles in _PACKED_TILES
            group = (1, 1) if packed else (nt // nr, mt // mr)
            named = zip(("MT", "NT", "KT", "MR", "NR"), tiles, strict=True)
            options = f"-DSIDE={SIDE} " + " ".join(f"-D{name}={size}" for name, size in named)
            grid = (SIDE // nt * group[0], SIDE // mt * group[1])
            calls[f"{'packed' if packed else 'shared'} tiles of {tiles}"] = self.call(
                _PACKED if packed else _SHARED, options, grid, group, a, b, out
            )
        return _fastest(calls)


def _device() -> cl.Device:
    """The first device of the platform that opsmith takes.  Raises :class:`NoPlatform`."""
    choice = os.environ.get("OPSMITH_OPENCL_PLATFORM", "")
    try:
        platforms = cl.get_platforms()
    except cl.LogicError:
        platforms = []
    for platform in platforms:
        devices = platform.get_devices() if choice in platform.name else []
        if devices:
            return devices[0]
    seen = ", ".join(f"`{platform.name}`" for platform in platforms) or "none"
    chosen = f" whose name has `{choice}`" if choice else ""
    raise NoPlatform(
        f"OpenCL has no platform with a device here{chosen}; found: {seen}\n"
        "  remedy: apt-get install pocl-opencl-icd, or name the folder of another's .icd file in "
        "OCL_ICD_VENDORS"
    )


def _fastest(calls: dict[str, Callable[[], object]]) -> Callable[[], object]:
    """The one that takes least in short trials."""
    taken = {
        name: min(median_microseconds(call, 0.05) for _ in range(3)) for name, call in calls.items()
    }
    best = min(taken, key=lambda name: taken[name])
    print(f"peer: {best}", file=sys.stderr)
    return calls[best]


_prepared: dict[str, Callable[[], object]] = {}


def prepare(
    name: str, a: numpy.ndarray[Any, Any], b: numpy.ndarray[Any, Any]
) -> numpy.ndarray[Any, Any]:
    """The result of ``adding`` or ``multiplying``; :func:`microseconds` then takes the same call's time."""
    hand = Peer()
    out = numpy.empty_like(a)
    result = hand.buffer(out)
    _prepared[name] = getattr(hand, name)(hand.buffer(a), hand.buffer(b), result)
    _prepared[name]()
    cl.enqueue_copy(hand.queue, out, result)
    return out


def microseconds(name: str, seconds: float) -> float:
    """The median of calls again and again for ``seconds``."""
    return median_microseconds(_prepared[name], seconds)


def platform_name() -> str:
    """That of the implementation.  Raises :class:`NoPlatform`."""
    return str(_device().platform.name).strip()
