"""What building and loading a backend needs, and whether this machine has it."""
