"""``torch.<name>``: the module that PyTorch shows for a loaded device, and its submodules."""
