"""Size classes: what a pool buffer may measure."""

from __future__ import annotations

SMALLEST = 1 << 10
STEP = 1 << 14
"""Above this a class is a multiple of it, so no buffer wastes more than one step."""


def class_bytes(nbytes: int) -> int:
    """The smallest class that holds `nbytes`: powers of two from 1 KiB to 16 KiB, then 16 KiB steps.

    Raises ValueError for a negative size.
    """
    if nbytes < 0:
        raise ValueError(f"a buffer of {nbytes} bytes doesn't exist")
    if nbytes <= SMALLEST:
        return SMALLEST
    if nbytes <= STEP:
        return 1 << (nbytes - 1).bit_length()
    return -(-nbytes // STEP) * STEP
