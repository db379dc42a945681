"""The plan for ExecuTorch: which kernel serves which calls of its programs."""
