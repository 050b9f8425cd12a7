"""Kernels by area; importing a module here imports numba, so only compiling does."""
