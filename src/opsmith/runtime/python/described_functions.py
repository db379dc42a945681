"""The functions that serve operators by kernels which a manifest names in Python, in Triton or for tvm-ffi.

It is imported at the operator's first call and not before: loading a device imports neither Triton nor a
library of three hundred kernels.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from opsmith.description import Abi
from opsmith.plan import Entry


def function_of_kernel(entry: Entry, schema: str) -> Callable[..., Any]:
    """A function with the arguments of the operator's ``schema`` that has the kernel of ``entry`` compute it.

    Raises :class:`KernelRejected` at its first call, where the kernel or what runs it is missing or does not
    fit; :class:`Unsupported` for a call that the kernel does not take.
    """
    lock = threading.Lock()
    function: Callable[..., Any] | None = None

    def find() -> Callable[..., Any]:
        nonlocal function
        with lock:
            if function is None:
                function = _callable(entry, schema)
            return function

    # Of a class it would take three times as long, at every call.
    def found_at_first_call(*args: Any, **kwargs: Any) -> Any:
        return (function or find())(*args, **kwargs)

    return found_at_first_call


def _callable(entry: Entry, schema: str) -> Callable[..., Any]:
    assert entry.kernel is not None
    # Here: most backends have kernels of neither.
    if entry.kernel.abi is Abi.TRITON:
        from opsmith.runtime.triton.functions import callable_of_kernel

        return callable_of_kernel(entry, schema)
    from opsmith.runtime.python.tvm_ffi_kernels import call_of_kernel

    return call_of_kernel(entry, schema)
