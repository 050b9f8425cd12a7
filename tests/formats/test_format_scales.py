"""Scales as data: finding the one that is not finite, and drawing random weights under chosen ones."""

from __future__ import annotations

import numpy as np
import pytest
from format_cases import BLOCK_NAMES, GEOMETRY, SCALE_OFFSETS, WEIGHT_NAMES, random_rows, seeds
from hypothesis import given, settings
from hypothesis import strategies as st

from minfer_ir.formats import FORMATS, WEIGHT_FORMATS, Bytes

BAD_HALVES = (0x7C00, 0xFC00, 0x7E00, 0x7C01, 0xFFFF)


def plant(data: Bytes, name: str, place: tuple[int, int], offset: int, bits: int) -> None:
    row, block = place
    at = block * GEOMETRY[name][1] + offset
    data[row, at : at + 2] = np.array([bits], "<u2").view(np.uint8)


@pytest.mark.parametrize("name", BLOCK_NAMES)
@given(seed=seeds, rows=st.integers(1, 4), blocks=st.integers(1, 5), data=st.data())
@settings(max_examples=25, deadline=None)
def test_the_first_nonfinite_scale_is_found(name: str, seed: int, rows: int, blocks: int, data: st.DataObject) -> None:
    rows_of_bytes = random_rows(name, seed, rows, blocks)
    fmt = WEIGHT_FORMATS[name]
    assert fmt.find_nonfinite(rows_of_bytes) is None
    planted = []
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, rows - 1)), data.draw(st.integers(0, blocks - 1))
        plant(
            rows_of_bytes,
            name,
            place,
            data.draw(st.sampled_from(SCALE_OFFSETS[name])),
            data.draw(st.sampled_from(BAD_HALVES)),
        )
        planted.append(place)
    assert fmt.find_nonfinite(rows_of_bytes) == min(planted)


@pytest.mark.parametrize("name", BLOCK_NAMES)
def test_a_nonfinite_scale_deep_in_a_weight_is_found(name: str) -> None:
    data = random_rows(name, 11, 300, 9)
    for offset in SCALE_OFFSETS[name]:
        broken = data.copy()
        plant(broken, name, (297, 8), offset, 0x7E00)
        assert WEIGHT_FORMATS[name].find_nonfinite(broken) == (297, 8)
        assert WEIGHT_FORMATS[name].find_nonfinite(broken.reshape(3, 100, -1)) == (297, 8)


@pytest.mark.parametrize("name", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_floats_are_checked_by_value(name: str, bad: float) -> None:
    x = np.random.default_rng(12).standard_normal((70, 1500)).astype(np.float32)
    fmt = WEIGHT_FORMATS[name]
    assert fmt.find_nonfinite(fmt.encode(x)) is None
    x[61, 1400] = x[61, 1401] = x[65, 3] = bad
    assert fmt.find_nonfinite(fmt.encode(x)) == (61, 1400)


def test_nothing_is_found_in_no_rows() -> None:
    for fmt in FORMATS.values():
        assert fmt.find_nonfinite(np.zeros((0, fmt.block_bytes), np.uint8)) is None
        assert fmt.find_nonfinite(np.zeros((3, 0), np.uint8)) is None


@pytest.mark.parametrize("name", BLOCK_NAMES)
def test_scales_are_the_halves_in_the_blocks(name: str) -> None:
    data = random_rows(name, 13, 3, 4)
    blocks = data.reshape(3, 4, -1)
    halves = [np.ascontiguousarray(blocks[..., at : at + 2]).view(np.float16)[..., 0] for at in SCALE_OFFSETS[name]]
    scales = WEIGHT_FORMATS[name].scales(data)
    assert scales.dtype == np.float32
    assert np.array_equal(scales, np.stack(halves, axis=-1).astype(np.float32))


@pytest.mark.parametrize("name", tuple(FORMATS))
@pytest.mark.parametrize("scale", [0.003, 0.02, 1.0])
def test_drawn_weights_have_the_asked_size(name: str, scale: float) -> None:
    fmt = FORMATS[name]
    values = fmt.decode(fmt.draw(np.random.default_rng(14), 64, 2048, scale))
    assert values.shape == (64, 2048)
    assert np.std(values) == pytest.approx(scale, rel=0.08)
    assert abs(np.mean(values)) < 0.05 * scale


@pytest.mark.parametrize("name", tuple(FORMATS))
def test_a_seed_decides_the_drawn_bytes(name: str) -> None:
    fmt = FORMATS[name]
    first, same, other = (fmt.draw(np.random.default_rng(seed), 3, 768) for seed in (1, 1, 2))
    assert first.dtype == np.uint8 and first.shape == (3, fmt.row_bytes(768))
    assert np.array_equal(first, same) and not np.array_equal(first, other)
    assert fmt.find_nonfinite(first) is None


@pytest.mark.parametrize("name", BLOCK_NAMES)
def test_drawn_blocks_use_every_bit_of_their_quants(name: str) -> None:
    data = WEIGHT_FORMATS[name].draw(np.random.default_rng(15), 64, 4096)
    blocks = data.reshape(-1, GEOMETRY[name][1])
    quants = np.delete(blocks, [at + i for at in SCALE_OFFSETS[name] for i in (0, 1)], axis=1)
    assert np.array_equal(np.bitwise_or.reduce(quants), np.full(quants.shape[1], 255))
    assert np.array_equal(np.bitwise_and.reduce(quants), np.zeros(quants.shape[1]))


@pytest.mark.parametrize("name", BLOCK_NAMES)
@pytest.mark.parametrize("scale", [1e-9, 1e9, np.nan, -1.0, 0.0])
def test_scales_out_of_range_are_refused(name: str, scale: float) -> None:
    with pytest.raises(ValueError, match=rf"{name} draws values of scale .* asked for {scale}"):
        WEIGHT_FORMATS[name].draw(np.random.default_rng(0), 1, 256, scale)


def test_draw_of_rows_that_are_not_whole_blocks_is_refused() -> None:
    for name in WEIGHT_NAMES[3:]:
        with pytest.raises(ValueError, match=r"577 elements"):
            WEIGHT_FORMATS[name].draw(np.random.default_rng(0), 1, 577)
