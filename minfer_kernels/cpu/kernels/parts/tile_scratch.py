"""The scratch memory of fused products, per thread."""

from __future__ import annotations

# A tile of results on their way to the step behind the product: a part of L2.
TILE_BYTES = 1 << 16

UNIT = 16
"""Output rows of a unit where nothing needs more: whole groups of every layout, few enough to share out evenly."""
