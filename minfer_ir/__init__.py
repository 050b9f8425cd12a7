"""The minfer compiler and its runtime: graph IR, passes, memory planning, backends.

Depends on numpy alone; nothing here knows a file format, a model or a kernel.
"""
