"""The requirements of building and loading a backend, and whether this machine meets them."""
