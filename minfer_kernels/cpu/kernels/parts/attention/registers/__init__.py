"""Register tiles of attention: a few queries against a few cells or columns, everything in between in registers.

A tile takes 1, 2 or 4 queries and as many cells, or vectors of four, that sixteen accumulators hold. Loops are written
in LLVM here: sixteen names for sixteen accumulators would say less. `table` holds the byte offset of every cell.
"""
