"""Geometry and decoding of every weight format, with gguf-py as the oracle."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from format_cases import BLOCK_NAMES, GEOMETRY, SCALE_OFFSETS, WEIGHT_NAMES, random_rows, same_bits, seeds
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from hypothesis import given, settings
from hypothesis import strategies as st

from minfer_ir.formats import ACTIVATION_FORMATS, FORMATS, WEIGHT_FORMATS, BlockFormat, format_named


@pytest.mark.parametrize("name", WEIGHT_NAMES)
def test_geometry_is_ggmls(name: str) -> None:
    fmt = WEIGHT_FORMATS[name]
    assert (fmt.block_size, fmt.block_bytes) == GEOMETRY[name] == GGML_QUANT_SIZES[GGMLQuantizationType[name]]
    assert fmt.row_bytes(3 * fmt.block_size) == 3 * fmt.block_bytes
    assert fmt.row_elements(3 * fmt.block_bytes) == 3 * fmt.block_size
    assert fmt.name == name == repr(fmt)


def test_every_weight_format_is_covered() -> None:
    assert tuple(WEIGHT_FORMATS) == WEIGHT_NAMES
    assert tuple(FORMATS) == (*WEIGHT_FORMATS, *ACTIVATION_FORMATS)


@pytest.mark.parametrize("name", BLOCK_NAMES)
def test_layout_places_the_scales_where_ggml_does(name: str) -> None:
    fmt = WEIGHT_FORMATS[name]
    assert isinstance(fmt, BlockFormat)
    assert tuple(fmt.layout.fields[field][1] for field in fmt.scale_fields) == SCALE_OFFSETS[name]


@pytest.mark.parametrize("name", ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"])
@pytest.mark.parametrize("cols", [896, 576, 48, 1, -256])
def test_rows_that_are_not_whole_blocks_are_refused_with_the_numbers(name: str, cols: int) -> None:
    with pytest.raises(ValueError, match=rf"{cols} elements.*{name} blocks of 256"):
        WEIGHT_FORMATS[name].row_bytes(cols)


@pytest.mark.parametrize("name", BLOCK_NAMES)
def test_bytes_and_values_that_are_not_whole_blocks_are_refused(name: str) -> None:
    fmt = WEIGHT_FORMATS[name]
    short = fmt.block_bytes * 2 - 1
    for read in (fmt.decode, fmt.scales, fmt.find_nonfinite):
        with pytest.raises(ValueError, match=rf"{short} bytes.*{name} blocks of {fmt.block_bytes} bytes"):
            read(np.zeros((2, short), np.uint8))
    with pytest.raises(ValueError, match=rf"{fmt.block_size + 1} elements.*{name}"):
        fmt.encode(np.zeros((2, fmt.block_size + 1), np.float32))


@pytest.mark.parametrize("name", WEIGHT_NAMES)
def test_other_dtypes_are_refused(name: str) -> None:
    fmt = WEIGHT_FORMATS[name]
    with pytest.raises(ValueError, match=r"float32.*float64"):
        fmt.encode(np.zeros((1, 256), np.float64))
    with pytest.raises(ValueError, match=r"uint8.*float32"):
        fmt.decode(np.zeros((1, fmt.block_bytes), np.float32))


@pytest.mark.parametrize("name", BLOCK_NAMES)
@given(seed=seeds, rows=st.integers(1, 5), blocks=st.integers(1, 4))
@settings(max_examples=25, deadline=None)
def test_decode_is_bit_equal_to_gguf(name: str, seed: int, rows: int, blocks: int) -> None:
    data = random_rows(name, seed, rows, blocks)
    assert same_bits(WEIGHT_FORMATS[name].decode(data), dequantize(data, GGMLQuantizationType[name]))


@pytest.mark.parametrize("name", BLOCK_NAMES)
def test_decode_of_several_pieces_and_any_scale_bits(name: str) -> None:
    block_size, block_bytes = GEOMETRY[name]
    data = np.random.default_rng(1).integers(0, 256, (3, (70000 // block_size + 1) * block_bytes), dtype=np.uint8)
    with np.errstate(all="ignore"):
        want = dequantize(data, GGMLQuantizationType[name])
    assert same_bits(WEIGHT_FORMATS[name].decode(data), want)


@pytest.mark.parametrize("name", WEIGHT_NAMES)
def test_decode_takes_any_leading_shape_and_strides(name: str) -> None:
    fmt = WEIGHT_FORMATS[name]
    row = fmt.row_bytes(512)
    padded = np.random.default_rng(2).integers(0, 0x3C, (2, 3, row + 5), dtype=np.uint8)
    want = fmt.decode(np.ascontiguousarray(padded[..., :row]).reshape(6, row))
    assert same_bits(fmt.decode(padded[..., :row]), want.reshape(2, 3, 512))
    assert same_bits(fmt.decode(padded[1, 2, :row]), want[5])
    assert fmt.decode(padded[:0, :, :row]).shape == (0, 3, 512)
    assert fmt.decode(padded[..., :0]).shape == (2, 3, 0)


@pytest.mark.parametrize("name", ["F16", "BF16"])
def test_every_sixteen_bit_pattern_decodes_as_gguf_does(name: str) -> None:
    data = np.arange(1 << 16, dtype="<u2").view(np.uint8)
    got, want = WEIGHT_FORMATS[name].decode(data), dequantize(data[None], GGMLQuantizationType[name])[0]
    assert same_bits(got, want)


def test_f32_decodes_to_the_same_bits() -> None:
    bits = np.random.default_rng(3).integers(0, 1 << 32, 4096, dtype=np.uint32)
    assert np.array_equal(WEIGHT_FORMATS["F32"].decode(bits.view(np.uint8)).view(np.uint32), bits)


@pytest.mark.parametrize("name", tuple(FORMATS))
def test_copies_and_pickles_are_the_same_object(name: str) -> None:
    fmt = FORMATS[name]
    assert pickle.loads(pickle.dumps(fmt)) is fmt
    assert copy.deepcopy({"format": fmt})["format"] is fmt
    assert format_named(name) is format_named(name.lower()) is fmt


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"'q4_m'.*nearest.*Q4_"):
        format_named("q4_m")
    with pytest.raises(ValueError, match=r"'zebra'; known: F32, .*Q8A256"):
        format_named("zebra")
