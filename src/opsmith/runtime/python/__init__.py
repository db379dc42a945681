"""Kernels and operators that are called through Python: functions, Triton kernels, functions of tvm-ffi."""
