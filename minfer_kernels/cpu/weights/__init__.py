"""Weights as kernels read them: layouts as data, and packing into them."""
