"""NaN and infinite weights and scales are found, with tensor, row and block."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from minfer_ir.formats import WEIGHT_FORMATS
from minfer_models.gguf import GGUFError, GGUFFile, array_source, check_finite, open_gguf, write_gguf

# Byte places of the f16 scales in a block, from ggml-common.h.
F16_SCALES = {
    "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "Q2_K": (80, 82), "Q3_K": (108,),
    "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "IQ4_NL": (0,), "F16": (0,),
}  # fmt: skip
N_ROWS, N_BLOCKS = 5, 3


def blocks_of(name: str) -> np.ndarray[tuple[int, int, int], np.dtype[np.uint8]]:
    """Rows of blocks whose every byte is 0xFF (NaN anywhere but in a scale is no matter) and whose scales are 1."""
    _, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
    blocks = np.full((N_ROWS, N_BLOCKS, block_bytes), 0xFF, np.uint8)
    for place in F16_SCALES[name]:
        blocks[:, :, place : place + 2] = (0x00, 0x3C)
    return blocks


def file_of(folder: Path, name: str, blocks: np.ndarray[tuple[int, int, int], np.dtype[np.uint8]]) -> GGUFFile:
    good = array_source("good", np.ones(4, np.float32))
    bad = array_source("bad", blocks.reshape(N_ROWS, -1), GGMLQuantizationType[name])
    return open_gguf(write_gguf(folder / "w.gguf", {}, [good, bad])[0])


def test_every_weight_format_is_covered() -> None:
    assert set(F16_SCALES) | {"F32", "BF16"} == set(WEIGHT_FORMATS)


@pytest.mark.parametrize("name", F16_SCALES)
def test_finite_scales_pass_whatever_the_quants(tmp_path: Path, name: str) -> None:
    check_finite(file_of(tmp_path, name, blocks_of(name)))


@pytest.mark.parametrize("bits", [0x7C00, 0xFC00, 0x7E00, 0xFFFF, 0x7C01])
@pytest.mark.parametrize(("name", "place"), [(name, place) for name, places in F16_SCALES.items() for place in places])
def test_a_bad_scale_is_found(tmp_path: Path, name: str, place: int, bits: int) -> None:
    blocks = blocks_of(name)
    blocks[3, 1, place : place + 2] = (bits & 255, bits >> 8)
    file = file_of(tmp_path, name, blocks)
    with pytest.raises(
        GGUFError, match=r"tensor 'bad': a (scale|value) of row 3, block 1 is NaN or infinite"
    ) as caught:
        check_finite(file)
    assert caught.value.tensor == "bad"
    assert caught.value.offset == file.tensors["bad"].offset + (3 * N_BLOCKS + 1) * blocks.shape[-1]


@pytest.mark.parametrize(("name", "bad"), [("F32", b"\0\0\xc0\x7f"), ("F32", b"\0\0\x80\xff"), ("BF16", b"\x80\x7f")])
def test_a_bad_weight_is_found(tmp_path: Path, name: str, bad: bytes) -> None:
    width = len(bad)
    values = np.zeros((N_ROWS, N_BLOCKS, width), np.uint8)
    check_finite(file_of(tmp_path, name, values))
    values[4, 2] = np.frombuffer(bad, np.uint8)
    file = file_of(tmp_path, name, values)
    with pytest.raises(GGUFError, match="tensor 'bad': a value of row 4, block 2 is NaN or infinite"):
        check_finite(file)
    check_finite(file, ["good"])


def test_other_types_are_passed_over(tmp_path: Path) -> None:
    ints = array_source("ints", np.full(8, -1, np.int32))
    unimplemented = array_source("x", np.full((2, 54), 0xFF, np.uint8), GGMLQuantizationType.TQ1_0)
    check_finite(open_gguf(write_gguf(tmp_path / "w.gguf", {}, [ints, unimplemented])[0]))
    with pytest.raises(GGUFError, match="tensor 'absent': missing"):
        check_finite(open_gguf(tmp_path / "w.gguf"), ["absent"])
