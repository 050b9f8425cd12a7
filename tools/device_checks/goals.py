"""What is aimed at on an H200, beside which results are printed."""

from __future__ import annotations

DECODE_OF_BANDWIDTH = {"Q8_0": 0.78, "Q4_K_M": 0.70}
"""Share of the data sheet's bandwidth that decoding a 7B model at depth 0 reads weights with."""
PREFILL_OF_DENSE = 0.60
"""Share of the data sheet's dense float16 rate that a prompt of 4096 tokens is taken in with."""
ATTENTION_OF_SDPA = 0.90
"""Speed of decode attention over torch's scaled_dot_product_attention, both on float16 cells."""
PACKED_COST = 1.30
"""Time of decoding over q8_0 cells over that with float16 ones, at worst; less than 1 at depth 16384 is the goal."""
LAUNCHES_PER_BLOCK = 5
"""In a decode step of a model whose matrices are all of one type."""
