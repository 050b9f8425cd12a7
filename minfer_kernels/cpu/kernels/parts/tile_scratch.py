"""The scratch memory of fused products, per thread."""

from __future__ import annotations

# The largest tile of results on their way to the step behind the product; instruction sets with small tiles of tokens
# use less (`panels`), and what isn't used is no memory yet.
TILE_BYTES = 1 << 19

UNIT = 16
"""Output rows of a unit where nothing needs more: whole groups of every layout, few enough to share out evenly."""
