"""Kernels of Triton's on the loaded device: found in their modules, launched, or run by the interpreter."""
