"""Kernels of Triton's on the loaded device: found in their modules, launched, or run by the interpreter."""

from opsmith.runtime.triton.functions import callable_of_kernel

__all__ = ["callable_of_kernel"]
