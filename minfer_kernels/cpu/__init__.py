"""The CPU backend: Numba kernels, packed weight layouts and the tape that runs them."""
