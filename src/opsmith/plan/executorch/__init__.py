"""What the plan says of ExecuTorch: which kernel serves which calls of its programs."""
