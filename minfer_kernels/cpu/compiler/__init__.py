"""From kernels in Python to native code: declaring, compiling, caching."""
