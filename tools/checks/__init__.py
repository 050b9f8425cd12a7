"""The steps of tools/check: each one a module or a tool that exits non-zero and says what is wrong."""
