"""Bit fields of quantized blocks: groups of bytes that hold several planes of small integers."""

from __future__ import annotations

import numpy as np

from minfer_ir.formats.base import Bytes


def unpack_planes(packed: Bytes, bits: int, group: int) -> Bytes:
    """Split `packed [n, B]` into its `bits`-wide fields, `[n, B * 8 / bits]`.

    Each run of `group` bytes gives its lowest field for all its bytes, then the next field for all of them, and so on:
    the order of every GGUF block.
    """
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    grouped = packed.reshape(len(packed), packed.shape[1] // group, 1, group)
    fields = (grouped >> shifts) & np.uint8((1 << bits) - 1)
    return fields.reshape(len(packed), -1)


def pack_planes(fields: Bytes, bits: int, group: int) -> Bytes:
    """The inverse of `unpack_planes`: `fields [n, E]`, each below `2 ** bits`, to bytes `[n, E * bits / 8]`."""
    planes = 8 // bits
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    grouped = fields.reshape(len(fields), fields.shape[1] // (group * planes), planes, group)
    return np.bitwise_or.reduce(grouped << shifts, axis=2).reshape(len(fields), -1)
