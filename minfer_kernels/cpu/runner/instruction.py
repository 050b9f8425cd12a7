"""Byte offsets of the int64 words of a tape's instruction, which is as long as a cache line."""

from __future__ import annotations

KERNEL = 0
"""The kernel's address."""
ARGUMENTS = 8
"""Its argument block's."""
BARRIER = 16
"""Whether all threads meet after it."""
WEIGHTS = 24
"""The weights that are read first behind this instruction: their address, 0 without any."""
ITEMS = 32
"""How many items of them the threads share."""
ITEM_BYTES = 40
"""Bytes of an item."""
INSTRUCTION_BYTES = 64
