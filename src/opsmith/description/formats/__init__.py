"""The YAML of torchgen and of ExecuTorch, read as kernel libraries and turned into manifests."""
