"""Wheels that carry a backend's built libraries: what a vendor gives to people who have no compiler."""
