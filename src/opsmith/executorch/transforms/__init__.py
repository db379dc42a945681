"""Rewrites of models for kernels that want their weights prepared."""
