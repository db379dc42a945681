"""What people and programs ask of a plan and a loaded device; it reads, and decides nothing."""
