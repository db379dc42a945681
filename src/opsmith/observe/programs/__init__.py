"""A user's programs, run and asked: what was covered, what fell back, what was traced."""
