"""What PyTorch lacks for devices outside its tree, or refuses them by name: docs/internals/patches.md."""
