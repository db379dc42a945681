"""Triton for the kernels of a graph that Inductor compiles: its driver, its compiler, its times."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from opsmith.errors import KernelRejected
from opsmith.plan.model import Compiling
from opsmith.schema.torch_names import inductor_config


@contextmanager
def tritons_compiler(plan: Compiling, device: str) -> Iterator[None]:
    """While the block runs, Triton asks the loaded device, and compiles in this process.

    Inductor's workers have not loaded the device, so that Triton finds no driver there.  Raises
    :class:`~opsmith.errors.TorchNameMissing` where PyTorch cannot time kernels on the device.
    """
    if plan.triton is None:
        yield
        return
    # Here: some releases lack it, and graphs without Triton do not need it.
    from opsmith.schema.torch_names import register_benchmarker

    if importlib.util.find_spec("triton") is None:
        yield
        return
    # Here: it needs Triton.
    from opsmith.runtime.triton.driver import activate

    with suppress(
        KernelRejected
    ):  # Inductor asks the device's interface whether Triton has the backend
        activate(plan.triton.backend)
    register_benchmarker(device, _milliseconds, override=True)
    with inductor_config.patch(compile_threads=1):
        yield


def _milliseconds(
    _benchmarker: Any, call: Callable[[], Any], *, warmup: int, rep: int, **_: Any
) -> float:
    """The time of a call, by which Inductor chooses among a kernel's configurations."""
    time: float = importlib.import_module("triton.testing").do_bench(call, warmup=warmup, rep=rep)
    return time
