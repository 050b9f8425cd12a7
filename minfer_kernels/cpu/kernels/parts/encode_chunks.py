"""What encoding kernels take at a time, known to them and to who calls them; imports no numba."""

from __future__ import annotations

from typing import NamedTuple

from minfer_ir.formats import BF16, F16, IQ4_NL, Q2_K, Q3_K, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0


class Chunk(NamedTuple):
    """What a kernel encodes at a time, and tells of when it can't: blocks, and the elements and bytes of each."""

    blocks: int
    elements: int
    nbytes: int


FLOAT_RUN = 1024
"""Elements that count as a block of F16 and BF16."""
CHUNKS: dict[str, Chunk] = {
    **{fmt.name: Chunk(1, FLOAT_RUN, FLOAT_RUN * fmt.block_bytes) for fmt in (F16, BF16)},
    **{fmt.name: Chunk(16, 32, fmt.block_bytes) for fmt in (Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL)},
    **{fmt.name: Chunk(2, 256, fmt.block_bytes) for fmt in (Q4_K, Q5_K)},
    **{fmt.name: Chunk(1, 256, fmt.block_bytes) for fmt in (Q2_K, Q3_K, Q6_K)},
}
"""By format; a search takes sixteen groups at once."""
