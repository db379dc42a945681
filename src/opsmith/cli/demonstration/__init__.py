"""The demonstration: a small CNN trained on a backend's device and on the CPU, side by side."""
