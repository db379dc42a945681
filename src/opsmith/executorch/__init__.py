"""ExecuTorch programs: what they ask of a kernel library."""
