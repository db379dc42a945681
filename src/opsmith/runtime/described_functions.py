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
    return _FoundAtFirstCall(entry, schema)


class _FoundAtFirstCall:
    def __init__(self, entry: Entry, schema: str) -> None:
        self._entry = entry
        self._schema = schema
        self._call: Callable[..., Any] | None = None
        self._lock = threading.Lock()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return (self._call or self._found())(*args, **kwargs)

    def _found(self) -> Callable[..., Any]:
        with self._lock:
            if self._call is None:
                self._call = _callable(self._entry, self._schema)
            return self._call


def _callable(entry: Entry, schema: str) -> Callable[..., Any]:
    assert entry.kernel is not None
    # Here: most backends have kernels of neither.
    if entry.kernel.abi is Abi.TRITON:
        from opsmith.runtime.triton.functions import callable_of_kernel

        return callable_of_kernel(entry, schema)
    from opsmith.runtime.tvm_ffi_kernels import call_of_kernel

    return call_of_kernel(entry, schema)
