"""Questions about a plan: why an operator is served as it is, and what is known of it."""
