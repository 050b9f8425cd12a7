"""What kernels are put together from: not kernels themselves."""
