"""Benchmarks: what they measure, and runs that are kept and compared."""
