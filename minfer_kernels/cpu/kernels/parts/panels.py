"""How many tokens a group of weights meets before the next group takes its turn."""

from __future__ import annotations

from minfer_kernels.cpu.kernels.parts.tile_scratch import TILE_BYTES
from minfer_kernels.cpu.simd import Isa, inline, larger, smaller
from minfer_kernels.cpu.simd.core import inline_by_isa

# Activation rows of a panel together: half of a small L2, the rest for the weights that pass by. Where AMX is, L2 has
# 2 MiB, and decoding a group for its tiles pays with many tokens.
PANEL_BYTES = 1 << 17
PANEL_BYTES_AMX = 1 << 19
# Results on their way to the step behind a product: as much again.
RESULT_BYTES = 1 << 16
RESULT_BYTES_AMX = TILE_BYTES
# Tokens of the largest tile that products are made in: a whole number of them leaves no rest within a panel.
WHOLE_TILES = 8
WHOLE_TILES_AMX = 16

panel_bytes = inline_by_isa({Isa.PORTABLE: lambda: PANEL_BYTES, Isa.AVX512_AMX: lambda: PANEL_BYTES_AMX})
result_bytes = inline_by_isa({Isa.PORTABLE: lambda: RESULT_BYTES, Isa.AVX512_AMX: lambda: RESULT_BYTES_AMX})
whole_tiles = inline_by_isa({Isa.PORTABLE: lambda: WHOLE_TILES, Isa.AVX512_AMX: lambda: WHOLE_TILES_AMX})


@inline
def panel_tokens(x_stride: int) -> int:
    """Tokens whose activations stay in a part of L2: a whole number of tiles."""
    return larger(1, panel_bytes() // (x_stride + 1) // whole_tiles()) * whole_tiles()


@inline
def tile_tokens(x_stride: int, tile_stride: int) -> int:
    """How many tokens of a panel a tile in scratch takes, with `tile_stride` bytes of results each."""
    fitting = smaller(panel_bytes() // (x_stride + 1), result_bytes() // tile_stride)
    return larger(1, fitting // whole_tiles()) * whole_tiles()
