"""The Triton backend: weights as planes, plans as lists of kernel launches, captured into CUDA graphs."""
