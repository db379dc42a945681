"""A device's own repository: written, checked on its machine, checked as a driver, packaged."""
