"""The Triton kernels. A kernel's module also says how it is checked: a numpy reference is in the op it runs."""
