"""Writing parts of a row into a KV cell, in the form that the cell's type has."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from minfer_kernels.cpu.simd import (
    inline,
    load_f32x8,
    load_f32x8_partial,
    store_f16x8,
    store_f16x8_partial,
    store_f32x8,
    store_f32x8_partial,
)


@cache
def cell_writer(cell_type: str) -> Callable[..., None]:
    """(source, cell, start, count): `count` float32 at `source` become elements from `start` on of the cell's row."""
    store, store_partial, element = {
        "f32": (store_f32x8, store_f32x8_partial, 4),
        "f16": (store_f16x8, store_f16x8_partial, 2),
    }[cell_type]

    @inline
    def write(source: int, cell: int, start: int, count: int) -> None:
        to = cell + element * start
        for i in range(0, count - 7, 8):
            store(to + element * i, load_f32x8(source + 4 * i))
        rest = count % 8
        if rest != 0:
            i = count - rest
            store_partial(to + element * i, rest, load_f32x8_partial(source + 4 * i, rest, 0.0))

    return write
