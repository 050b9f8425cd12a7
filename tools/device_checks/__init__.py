"""The steps of tools/device_check: what one short stay on a machine with a GPU is used for.

Nothing here imports more than the standard library, numpy, torch, Triton and minfer's own modules, of which those that
need another package are left out: the tree runs as it is wherever these are installed.
"""
