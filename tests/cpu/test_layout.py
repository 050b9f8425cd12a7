"""Packed layouts: the description is right (read by a slow reader that knows only it), packing loses nothing."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from gguf_numbers import CENTRES, integers, minimums, scale
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_calls import WEIGHTS, block_of
from numpy.typing import NDArray

from minfer_ir.formats import FORMATS, Q4_1
from minfer_kernels.cpu.decoders.kquants import CENTRE_BITS
from minfer_kernels.cpu.weights.layouts import GROUP_ROWS, WeightLayout, activation_format, layout_of
from minfer_kernels.cpu.weights.moves import PLANE_GROUP
from minfer_kernels.cpu.weights.packing import ALIGNMENT, PackedWeight, pack, unpack
from minfer_kernels.cpu.weights.plane_bits import regroup

Bytes = NDArray[np.uint8]

QUANTIZED = [fmt for fmt in WEIGHTS if activation_format(fmt) != "f32"]


def random_bytes(fmt: str, n: int, k: int, seed: int = 0) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, (n, FORMATS[fmt].row_bytes(k)), np.uint8)


def group_block(packed: PackedWeight, row: int, block: int) -> Bytes:
    layout = packed.layout
    start = row // layout.rows * layout.group_bytes(packed.k) + block * layout.block_bytes
    return packed.buffer[start : start + layout.block_bytes]


def plane_value(layout: WeightLayout, data: Bytes, row: int, element: int) -> int:
    """Element of a row from the bit planes, as the module's docstring describes them."""
    run, quad, within = element // 32, element % 32 // 4, element % 4
    shift_of_quad = {8: (quad, 0), 4: (quad % 4, 4 * (quad // 4)), 2: (quad // 4, 2 * (quad % 4)), 1: (0, quad)}
    value, position = 0, 0
    for bits in (8, 4, 2, 1):
        if not layout.has(f"q{bits}"):
            continue
        field = layout.field(f"q{bits}")
        unit, shift = shift_of_quad[bits]
        units_per_run = 32 * bits // 8 // field.unit
        byte = data[field.offset + ((run * units_per_run + unit) * layout.rows + row) * field.unit + within]
        value |= (int(byte) >> shift & ((1 << bits) - 1)) << position
        position += bits
    return value


def small_number(layout: WeightLayout, data: Bytes, name: str, row: int, index: int) -> int:
    """A number of a field of whole bytes."""
    field = layout.field(name)
    unit, within = divmod(index, field.unit)
    byte = data[field.offset + (unit * layout.rows + row) * field.unit + within]
    return int(byte.view(np.int8)) if field.kind == "i8" else int(byte)


@pytest.mark.parametrize("rows", GROUP_ROWS)
@pytest.mark.parametrize("fmt", QUANTIZED)
def test_description_finds_every_quant(fmt: str, rows: int) -> None:
    layout, block = layout_of(fmt, rows), block_of(fmt)
    raw = random_bytes(fmt, 10, 2 * block)
    packed = pack(FORMATS[fmt], [raw], 2 * block, rows)
    expected = integers(fmt, raw)
    centre = CENTRES.get(fmt, 1 << CENTRE_BITS[fmt] if fmt in CENTRE_BITS else 0)
    levels = {}
    for row in (0, 3, 7, 8, 9):
        for element in range(2 * block):
            data = group_block(packed, row, element // block)
            value = plane_value(layout, data, row % rows, element % block)
            wanted = int(expected[row, element])
            if fmt == "IQ4_NL":
                assert levels.setdefault(value, wanted) == wanted
                continue
            if fmt == "Q8_0":
                value = int(np.uint8(value).view(np.int8))
            if layout.has("scales"):
                sub = element % block // (block // layout.field("scales").count)
                byte = small_number(layout, data, "scales", row % rows, sub)
                value = (value - centre) * (byte & 15 if fmt == "Q2_K" else byte)
            else:
                value -= centre
            assert value == wanted
    assert fmt != "IQ4_NL" or len(set(levels.values())) == 16


@pytest.mark.parametrize("rows", GROUP_ROWS)
@pytest.mark.parametrize("fmt", [fmt for fmt in QUANTIZED if layout_of(fmt, 8).has("dmin")])
def test_description_finds_the_small_minimums(fmt: str, rows: int) -> None:
    layout = layout_of(fmt, rows)
    raw = random_bytes(fmt, 9, 256)
    packed = pack(FORMATS[fmt], [raw], 256, rows)
    expected = minimums(fmt, raw)
    for row in range(9):
        data = group_block(packed, row, 0)
        for element in range(0, 256, 16):
            if fmt == "Q2_K":
                found = small_number(layout, data, "scales", row % rows, element // 16) >> 4
            else:
                found = small_number(layout, data, "mins", row % rows, element // 32)
            assert found == expected[row, element]


@pytest.mark.parametrize("rows", GROUP_ROWS)
@pytest.mark.parametrize("fmt", QUANTIZED)
def test_description_finds_the_scales(fmt: str, rows: int) -> None:
    layout, block = layout_of(fmt, rows), block_of(fmt)
    raw = FORMATS[fmt].draw(np.random.default_rng(1), 11, 3 * block)
    packed = pack(FORMATS[fmt], [raw], 3 * block, rows)
    for name in ("d", "m", "dmin"):
        if not layout.has(name):
            continue
        wanted = scale(fmt, raw, name)
        for row in range(11):
            for b in range(3):
                at = layout.field(name).offset + 2 * (row % rows)
                half = group_block(packed, row, b)[at : at + 2].view(np.float16)
                assert np.float32(half[0]) == wanted[row, b]


@pytest.mark.parametrize("rows", GROUP_ROWS)
@pytest.mark.parametrize("fmt", WEIGHTS)
def test_fields_fill_the_group_block(fmt: str, rows: int) -> None:
    layout = layout_of(fmt, rows)
    end = 0
    for field in layout.fields:
        assert field.offset == end
        assert field.row_bytes % field.unit == 0
        end += field.nbytes
    assert end == layout.block_bytes
    assert FORMATS[fmt].block_size == layout.block
    assert layout.rows == rows
    # Whole-byte scales cost Q3_K, Q4_K and Q5_K a little; nothing else grows.
    assert layout.block_bytes <= 1.04 * rows * FORMATS[fmt].block_bytes
    assert str(layout.block_bytes) in str(layout)


@pytest.mark.parametrize("rows", GROUP_ROWS)
@pytest.mark.parametrize("n", [1, 7, 8, 9, 16, 17, 200])
@pytest.mark.parametrize("fmt", WEIGHTS)
def test_round_trip(fmt: str, n: int, rows: int) -> None:
    k = 3 * layout_of(fmt, rows).block
    raw = random_bytes(fmt, n, k, seed=n)
    packed = pack(FORMATS[fmt], [raw], k, rows)
    assert packed.address % ALIGNMENT == 0
    assert packed.buffer.nbytes == packed.layout.nbytes(n, k)
    assert np.array_equal(unpack(FORMATS[fmt], packed), raw)


@given(
    fmt=st.sampled_from(WEIGHTS),
    counts=st.lists(st.integers(0, 40), min_size=1, max_size=5),
    n_blocks=st.integers(1, 5),
    rows=st.sampled_from(GROUP_ROWS),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=60, deadline=None)
def test_parts_pack_as_their_concatenation(fmt: str, counts: list[int], n_blocks: int, rows: int, seed: int) -> None:
    k = n_blocks * layout_of(fmt, rows).block
    raw = random_bytes(fmt, sum(counts), k, seed)
    parts = np.split(raw, np.cumsum(counts)[:-1])
    packed = pack(FORMATS[fmt], parts, k, rows)
    whole = pack(FORMATS[fmt], [raw], k, rows)
    assert packed.n == sum(counts)
    assert np.array_equal(packed.buffer, whole.buffer)
    assert np.array_equal(unpack(FORMATS[fmt], packed), raw)


@pytest.mark.parametrize("rows", GROUP_ROWS)
@pytest.mark.parametrize("fmt", WEIGHTS)
def test_padding_rows_are_zero(fmt: str, rows: int) -> None:
    k = 2 * layout_of(fmt, rows).block
    packed = pack(FORMATS[fmt], [random_bytes(fmt, 3, k)], k, rows)
    padded = PackedWeight(packed.layout, rows, k, packed.buffer)
    assert not unpack(FORMATS[fmt], padded)[3:].any()


@pytest.mark.parametrize("rows", GROUP_ROWS)
def test_packing_many_pieces_and_read_only_rows(rows: int) -> None:
    """Rows as a memory map gives them: read-only, and more than one piece of them."""
    raw = random_bytes("Q4_K", 4000, 1024)
    raw.flags.writeable = False
    packed = pack(FORMATS["Q4_K"], [raw[:1001], raw[1001:]], 1024, rows)
    assert np.array_equal(unpack(FORMATS["Q4_K"], packed), raw)


@pytest.mark.parametrize("fmt", ["Q4_1", "Q6_K"])
def test_packing_needs_little_memory_beside_its_result(fmt: str) -> None:
    raw = random_bytes(fmt, 16384, 1024)
    tracemalloc.start()
    try:
        packed = pack(FORMATS[fmt], [raw], 1024, 16)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < packed.buffer.nbytes + 4 * 2**20


@given(
    bits=st.sampled_from([1, 2, 4]),
    group=st.sampled_from([1, 4, 16, 32]),
    blocks=st.integers(1, 9),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=60, deadline=None)
def test_regroup_matches_numpy_planes(bits: int, group: int, blocks: int, seed: int) -> None:
    if group == 1 and bits != 1:
        group = 4
    rng = np.random.default_rng(seed)
    planes = rng.integers(0, 256, (blocks, 64), np.uint8)
    new_group = PLANE_GROUP[bits]
    words = np.ascontiguousarray(planes.view(np.uint32).T)
    found = np.ascontiguousarray(regroup(words, bits, group, new_group).T).view(np.uint8)
    assert np.array_equal(numbers_of(found, bits, new_group), numbers_of(planes, bits, group))
    back = regroup(regroup(words, bits, group, new_group), bits, new_group, group)
    assert np.array_equal(back, words)


def numbers_of(planes: Bytes, bits: int, group: int) -> Bytes:
    single = np.unpackbits(planes, axis=1, bitorder="little").reshape(len(planes), -1, group, 8 // bits, bits)
    return (
        (single << np.arange(bits, dtype=np.uint8)).sum(axis=-1, dtype=np.uint8).swapaxes(2, 3).reshape(len(planes), -1)
    )


def test_refusals_name_the_values() -> None:
    good = random_bytes("Q4_1", 4, 64)
    with pytest.raises(ValueError, match=r"part 1 of a packed Q4_1 weight is uint8 \(4, 20\), expected .* 40 bytes"):
        pack(Q4_1, [good, good[:, :20]], 64, 8)
    with pytest.raises(ValueError, match="int8"):
        signed: Any = good.view(np.int8)
        pack(Q4_1, [signed], 64, 8)
    with pytest.raises(ValueError, match="33 elements"):
        pack(Q4_1, [good], 33, 8)
    with pytest.raises(ValueError, match="no packed layout for weight format Q8A32"):
        pack(FORMATS["Q8A32"], [good], 64, 8)
    with pytest.raises(ValueError, match="Q3_Kx8: 100 columns"):
        layout_of("Q3_K", 8).group_bytes(100)
    with pytest.raises(KeyError, match="Q4_0x8 has no field mins"):
        layout_of("Q4_0", 8).field("mins")
    with pytest.raises(ValueError, match="in groups of 8 or 16 rows, not 4"):
        layout_of("Q4_0", 4)
