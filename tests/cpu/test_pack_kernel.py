"""The packing kernel against numpy's packing, byte for byte; what it must find, and what it must not touch."""

from __future__ import annotations

import ctypes
import mmap
import re
import sys
import threading
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from cpu_harness import guarded
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_calls import ISAS, WEIGHTS, block_of, library
from numpy.typing import NDArray

from minfer_ir.formats import FORMATS, BlockFormat
from minfer_ir.runtime.backend import NonFiniteWeightError
from minfer_kernels.cpu.compiler.features import Isa
from minfer_kernels.cpu.runner.threads import ThreadPool
from minfer_kernels.cpu.weights.arena import ALIGNMENT, HUGE_PAGE, SLAB_BYTES, WeightArena
from minfer_kernels.cpu.weights.packer import BATCH_BYTES, WeightPacker
from minfer_kernels.cpu.weights.packing import pack

Bytes = NDArray[np.uint8]
FLOAT_FIELDS = {"F32": np.dtype("<u4"), "F16": np.dtype("<u2"), "BF16": np.dtype("<u2")}
NONFINITE = {"F32": (0x7F800000, 0xFFC00001), "BF16": (0x7F80, 0xFFC1), "F16": (0x7C00, 0xFE01)}


@pytest.fixture(scope="module")
def packers() -> Iterator[dict[tuple[Isa, int], WeightPacker]]:
    pools = {(isa, n): ThreadPool(library(isa), n) for isa in ISAS for n in ((1, 2, 3) if isa is ISAS[0] else (1,))}
    yield {key: WeightPacker(library(key[0]), pool, WeightArena()) for key, pool in pools.items()}
    for pool in pools.values():
        pool.close()


def drawn(fmt: str, n: int, k: int, seed: int = 0) -> Bytes:
    """Rows with finite scales; all else is random."""
    return FORMATS[fmt].draw(np.random.default_rng(seed), n, k)


@given(
    fmt=st.sampled_from(WEIGHTS),
    counts=st.lists(st.integers(0, 40), min_size=1, max_size=4).filter(any),
    n_blocks=st.integers(1, 70),
    which=st.integers(0, 10),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=150, deadline=None)
def test_kernel_packs_as_numpy_does(
    packers: dict[tuple[Isa, int], WeightPacker], fmt: str, counts: list[int], n_blocks: int, which: int, seed: int
) -> None:
    k = n_blocks * block_of(fmt)
    raw = drawn(fmt, sum(counts), k, seed)
    parts = np.split(raw, np.cumsum(counts)[:-1])
    (isa, _), packer = list(packers.items())[which % len(packers)]
    expected = pack(FORMATS[fmt], parts, k, isa.lanes)
    packed = packer.pack("w", FORMATS[fmt], parts, k)
    copied = packer.copy("w", FORMATS[fmt], parts, k)
    packer.finish()
    assert (packed.layout, packed.n, packed.k) == (expected.layout, expected.n, expected.k)
    assert packed.address % ALIGNMENT == 0
    assert np.array_equal(packed.buffer, expected.buffer)
    assert np.array_equal(copied, raw)


@pytest.mark.parametrize("fmt", WEIGHTS)
def test_kernel_reads_only_the_rows(packers: dict[tuple[Isa, int], WeightPacker], fmt: str) -> None:
    """The last row ends where a page does and the next page faults; rows have a stride, as a part of a wider file."""
    k = 3 * block_of(fmt)
    raw = guarded(drawn(fmt, 9, 2 * k))
    half = raw[:, raw.shape[1] // 2 :]
    packer = packers[ISAS[0], 2]
    packed = packer.pack("w", FORMATS[fmt], [half], k)
    copied = packer.copy("w", FORMATS[fmt], [half], k)
    packer.finish()
    assert np.array_equal(packed.buffer, pack(FORMATS[fmt], [half], k, ISAS[0].lanes).buffer)
    assert np.array_equal(copied, half)


def numbers_of(fmt: str, raw: Bytes) -> list[NDArray[np.unsignedinteger]]:
    """The stored numbers that must be finite, as writable views `[n, blocks]` of their bits."""
    layout = FORMATS[fmt]
    if not isinstance(layout, BlockFormat):
        return [raw.view(FLOAT_FIELDS[fmt])]
    blocks = raw.view(layout.layout)
    return [blocks[field].view(np.uint16) for field in layout.scale_fields]


@pytest.mark.parametrize("fmt", WEIGHTS)
def test_kernel_finds_every_nonfinite_number(packers: dict[tuple[Isa, int], WeightPacker], fmt: str) -> None:
    packer, n, k = packers[ISAS[0], 2], 19, 5 * block_of(fmt)
    for bits in NONFINITE.get(fmt, NONFINITE["F16"]):
        for row, block in ((0, 0), (7, 4), (8, 2), (18, 4)):
            for field in range(len(numbers_of(fmt, drawn(fmt, n, k)))):
                raw = drawn(fmt, n, k)
                numbers_of(fmt, raw)[field][row, block] = bits
                assert FORMATS[fmt].find_nonfinite(raw) == (row, block)
                parts = [raw[:8], raw[8:]]
                for take in (packer.pack, packer.copy):
                    packer.copy("before", FORMATS[fmt], [drawn(fmt, n, k)], k)
                    take("blk.0.q", FORMATS[fmt], parts, k)
                    with pytest.raises(NonFiniteWeightError, match=re.escape("weight blk.0.q: a scale")):
                        packer.finish()
    copied = packer.copy("w", FORMATS[fmt], [drawn(fmt, n, k)], k)
    packer.finish()
    assert np.array_equal(copied, drawn(fmt, n, k))


def test_weights_wait_until_there_are_enough(packers: dict[tuple[Isa, int], WeightPacker]) -> None:
    """Small ones are packed together, and what waits never takes more than a batch."""
    packer, raw = packers[ISAS[0], 2], drawn("F32", 1, BATCH_BYTES // 8)
    first = packer.copy("first", FORMATS["F32"], [raw], BATCH_BYTES // 8)
    assert not first.any()
    packer.copy("second", FORMATS["F32"], [raw], BATCH_BYTES // 8)
    assert np.array_equal(first, raw)


def test_what_waits_can_be_forgotten(packers: dict[tuple[Isa, int], WeightPacker]) -> None:
    packer, raw = packers[ISAS[0], 2], drawn("F32", 4, 64)
    copied = packer.copy("w", FORMATS["F32"], [raw], 64)
    packer.forget()
    packer.finish()
    assert not copied.any()


@pytest.mark.parametrize("fmt", WEIGHTS)
def test_largest_numbers_are_finite(packers: dict[tuple[Isa, int], WeightPacker], fmt: str) -> None:
    """One below infinity in every number, every other bit set."""
    raw = np.full((9, FORMATS[fmt].row_bytes(2 * block_of(fmt))), 0xFF, np.uint8)
    for numbers in numbers_of(fmt, raw):
        numbers[...] = NONFINITE.get(fmt, NONFINITE["F16"])[0] - 1
    packed = packers[ISAS[0], 2].pack("w", FORMATS[fmt], [raw], 2 * block_of(fmt))
    packers[ISAS[0], 2].finish()
    assert np.array_equal(packed.buffer, pack(FORMATS[fmt], [raw], 2 * block_of(fmt), ISAS[0].lanes).buffer)


def test_refusals_name_the_values(packers: dict[tuple[Isa, int], WeightPacker]) -> None:
    packer, good = packers[ISAS[0], 1], drawn("Q4_1", 4, 64)
    for take in (packer.pack, packer.copy):
        with pytest.raises(ValueError, match=r"part 1 of a packed Q4_1 weight is uint8 \(4, 20\), .* 40 bytes"):
            take("w", FORMATS["Q4_1"], [good, good[:, :20]], 64)


SIZES = st.one_of(st.integers(0, 5000), st.sampled_from([HUGE_PAGE, SLAB_BYTES - 1, SLAB_BYTES + 1]))


@given(st.lists(SIZES, max_size=9))
@settings(max_examples=25, deadline=None)
def test_arena_gives_aligned_memory_of_its_own(sizes: list[int]) -> None:
    arena = WeightArena()
    taken = [arena.take(size) for size in sizes]
    for number, piece in enumerate(taken):
        piece[:1], piece[-1:] = number, number
    for number, (size, piece) in enumerate(zip(sizes, taken, strict=True)):
        assert piece.nbytes == size
        assert piece.ctypes.data % ALIGNMENT == 0
        assert (piece[:1] == number).all()
        assert (piece[-1:] == number).all()
    spans = sorted((piece.ctypes.data, piece.ctypes.data + piece.nbytes) for piece in taken if piece.nbytes)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


@given(expected=st.sampled_from([-1, 0, 1, 3 * HUGE_PAGE]), sizes=st.lists(SIZES, max_size=5), settled=st.booleans())
@settings(max_examples=25, deadline=None)
def test_expected_memory_is_given_out_like_any_other(expected: int, sizes: list[int], settled: bool) -> None:
    arena = WeightArena()
    arena.expect(expected)
    if settled:
        arena.settle()
    taken = [arena.take(size) for size in sizes]
    for number, piece in enumerate(taken):
        piece[:1], piece[-1:] = number + 1, number + 1
    arena.settle()
    assert [piece.nbytes for piece in taken] == sizes
    assert all((piece[[0, -1]] == number + 1).all() for number, piece in enumerate(taken) if piece.nbytes)
    assert "minfer-memory" not in {thread.name for thread in threading.enumerate()}


def test_expected_memory_is_backed_before_it_is_used() -> None:
    arena = WeightArena()
    arena.expect(2 * HUGE_PAGE)
    backing = arena._backing
    assert (backing is not None) == (sys.platform == "linux")
    if backing is None:
        return
    backing.join()
    there = (ctypes.c_ubyte * (2 * HUGE_PAGE // mmap.PAGESIZE))()
    start = ctypes.c_void_p(arena.take(2 * HUGE_PAGE).ctypes.data)
    assert ctypes.CDLL(None).mincore(start, ctypes.c_size_t(2 * HUGE_PAGE), there) == 0
    assert all(byte & 1 for byte in there)
