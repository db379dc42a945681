"""What a program did on the device: its calls, its fallbacks and their policy, its traces."""
