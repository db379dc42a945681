"""Whether a device does what PyTorch's own operator database says: the checks, and their verdicts."""
