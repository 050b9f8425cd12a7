"""Bounds on what a header may declare.

They keep a crafted file from costing more than a moment and a few dozen MB. Real files stay far below:
about 50 keys, 2,000 tensors, and 800,000 strings (a vocabulary of 262,144 tokens with 515,000 merges).
"""

from __future__ import annotations

MAX_DIMS = 4
MAX_DIM = 2**63 - 1
MAX_TENSOR_NAME = 63
"""Bytes: GGML stores names in 64 bytes with a final NUL."""
MAX_KEY = 65535
MAX_KEYS = 65536
MAX_TENSORS = 65536
MAX_STRINGS = 2**21
"""Strings in all arrays of one file together."""
MAX_ALIGNMENT = 1 << 20
"""Bytes. Any power of two up to this is accepted, 1 included, as llama.cpp does; the specification's text asks for a
multiple of 8."""


def alignment_fault(alignment: int) -> str | None:
    """What is wrong with a value of `general.alignment`, or None."""
    if 0 < alignment <= MAX_ALIGNMENT and alignment & (alignment - 1) == 0:
        return None
    return f"alignment {alignment} is not a power of two from 1 to {MAX_ALIGNMENT}"


def padded(n: int, alignment: int) -> int:
    """`n` rounded up to a multiple of `alignment`."""
    return -(-n // alignment) * alignment
