"""How far a CPU kernel may be from the exact result, and why. Everything not listed is held to exact bits.

Errors are relative to the scale of what was summed, not to the result: cancellation is the input's doing.
"""

from __future__ import annotations

EPSILON = 2.0**-24
"""Half a unit in the last place of a float32 near 1: the error of one correctly rounded operation."""

EXP_ULP = 2.0
"""exp: a degree-7 polynomial after range reduction with ln2 in two parts (measured 1.01 ulp)."""

SILU = 8 * EPSILON
"""exp, a sum and a division, each rounded."""

NORM = 16 * EPSILON
"""A sum of up to some thousand squares over 8 to 32 partial sums, a root, a division, two products."""

SOFTMAX = 32 * EPSILON
"""exp of a rounded difference (its error grows with |x - max| up to 16 units), a sum and a division."""

ROPE = 4 * EPSILON
"""Two products of rounded cosines and sines; relative to the pair's length."""

ATTENTION = 64 * EPSILON
"""Scores over a head, exp of their differences, and a weighted mean; relative to the largest |value|."""
