"""Philox4x64-10: random numbers from a key and a counter alone.

J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011; numpy's Philox gives the same words.
"""

from __future__ import annotations

from minfer_kernels.cpu.simd import inline
from minfer_kernels.cpu.simd.bits import multiply_high

_WRAP = 1 << 64
# as int64, which a kernel's integers are
MULTIPLIER_0, MULTIPLIER_2 = 0xD2E7470EE14C6C93 - _WRAP, 0xCA5A826395121157 - _WRAP
WEYL_0, WEYL_1 = 0x9E3779B97F4A7C15 - _WRAP, 0xBB67AE8584CAA73B - _WRAP
ROUNDS = 10
FRACTION = (1 << 53) - 1


@inline
def uniform_bits(seed: int, step: int) -> int:
    """The first number of a step, in units of 2^-53: the key is the seed, and the counter one above the step."""
    c0, c1, c2, c3 = step + 1, 0, 0, 0
    k0, k1 = seed, 0
    for _ in range(ROUNDS):
        high0, low0 = multiply_high(MULTIPLIER_0, c0), MULTIPLIER_0 * c0
        high2, low2 = multiply_high(MULTIPLIER_2, c2), MULTIPLIER_2 * c2
        c0, c1, c2, c3 = high2 ^ c1 ^ k0, low2, high0 ^ c3 ^ k1, low0
        k0, k1 = k0 + WEYL_0, k1 + WEYL_1
    return (c0 >> 11) & FRACTION
