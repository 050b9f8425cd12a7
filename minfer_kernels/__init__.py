"""Kernels and the backends that run them."""
