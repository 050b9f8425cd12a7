"""The scratch memory of fused products, per thread."""

from __future__ import annotations

# A tile of results on their way to the step behind the product: a part of L2.
TILE_BYTES = 1 << 16
