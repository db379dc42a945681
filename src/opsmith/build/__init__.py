"""C++ text → shared library: ninja, a content-addressed cache, atomic and locked."""
