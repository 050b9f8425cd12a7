"""A weight that is no number is found by every load, on every backend: each scale of each format, and each value."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from minfer_ir.formats import WEIGHT_FORMATS
from minfer_models.gguf import GGUFError, TensorInfo, open_gguf
from minfer_models.loading import load
from minfer_models.synthetic import SyntheticModel, llama3_factors, write_model

MATRICES = {
    "token_embd.*": "Q6_K", "output.*": "Q8_0", "*attn_q.*": "Q4_K", "*attn_k.*": "Q5_K", "*attn_v.*": "Q3_K",
    "*attn_output.*": "Q2_K", "blk.0.ffn_gate.*": "Q4_0", "blk.0.ffn_up.*": "Q4_1", "blk.0.ffn_down.*": "Q5_0",
    "blk.1.ffn_gate.*": "Q5_1", "blk.1.ffn_up.*": "IQ4_NL", "blk.1.ffn_down.*": "F16", "blk.2.ffn_gate.*": "BF16",
    "*": "F32",
}  # fmt: skip
MODEL = SyntheticModel(
    architecture="llama", n_blocks=3, width=256, ffn_width=256, n_heads=4, tied=False, biases=True, weights=MATRICES,
    n_ctx_train=64, rope_factors=llama3_factors(64, 10000.0, 8.0),
)  # fmt: skip
NAN = {"F32": b"\1\0\x80\x7f", "BF16": b"\x81\xff"}
HALF_INFINITY, HALF_NAN = b"\0\xfc", b"\1\x7c"


@cache
def places(name: str) -> tuple[int, ...]:
    """Where in a block the numbers are that make it no number, found with gguf-py: its half-precision scales."""
    kind = GGMLQuantizationType[name]
    if name in NAN:
        return (0,)
    found = []
    for place in range(GGML_QUANT_SIZES[kind][1] - 1):
        block = np.zeros(GGML_QUANT_SIZES[kind][1], np.uint8)
        block[place : place + 2] = np.frombuffer(HALF_NAN, np.uint8)
        with np.errstate(invalid="ignore"):
            if np.isnan(dequantize(block, kind).astype(np.float32)).any():
                found.append(place)
    return tuple(found)


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, dict[str, TensorInfo]]:
    path = write_model(tmp_path_factory.mktemp("finite") / "m.gguf", MODEL)
    with open_gguf(path) as file:
        return path.read_bytes(), dict(file.tensors)


def refused(path: Path, content: bytes, at: int, damage: bytes, device: str) -> GGUFError:
    path.write_bytes(content[:at] + damage + content[at + len(damage) :])
    with pytest.raises(GGUFError) as caught:
        load(path, device=device, threads=2).close()
    return caught.value


def damages(infos: Sequence[TensorInfo]) -> list[tuple[TensorInfo, int, bytes]]:
    """For every tensor a row, and for every scale of its format another damage."""
    found = []
    for info in infos:
        assert info.format is not None
        name = info.format.name
        for i, place in enumerate(places(name)):
            found.append((info, place, NAN.get(name) or (HALF_NAN, HALF_INFINITY)[i % 2]))
    return found


def test_every_format_has_scales_and_is_in_the_model(content: tuple[bytes, dict[str, TensorInfo]]) -> None:
    formats = {info.format.name for info in content[1].values() if info.format is not None}
    assert formats == set(WEIGHT_FORMATS)
    assert {name: len(places(name)) for name in formats} == {
        "F32": 1, "F16": 1, "BF16": 1, "Q4_0": 1, "Q4_1": 2, "Q5_0": 1, "Q5_1": 2, "Q8_0": 1, "Q2_K": 2, "Q3_K": 1,
        "Q4_K": 2, "Q5_K": 2, "Q6_K": 1, "IQ4_NL": 1,
    }  # fmt: skip


@pytest.mark.parametrize("device", ["cpu", "torch:cpu", "numpy"])
def test_a_load_names_tensor_row_and_block(
    device: str, content: tuple[bytes, dict[str, TensorInfo]], tmp_path: Path
) -> None:
    data, tensors = content
    seen: set[tuple[str, int]] = set()
    vectors = {name for name, info in tensors.items() if len(info.shape) == 1 and name.startswith(("blk.1", "blk.2"))}
    for info, place, damage in damages([info for name, info in tensors.items() if name not in vectors]):
        kind = (info.type_name if len(info.shape) > 1 else info.name.removeprefix("blk.0."), place)
        if kind in seen:
            continue
        seen.add(kind)
        assert info.format is not None
        row, block = info.n_rows - 1, info.row_bytes // info.format.block_bytes - 1
        at = info.offset + row * info.row_bytes + block * info.format.block_bytes
        error = refused(tmp_path / "bad.gguf", data, at + place, damage, device)
        assert (error.tensor, error.offset) == (info.name, at)
        assert f"row {row}, block {block} is NaN or infinite ({info.type_name} blocks of" in str(error)
    assert len(seen) == 19 + 7


def test_the_model_itself_loads(content: tuple[bytes, dict[str, TensorInfo]], tmp_path: Path) -> None:
    (tmp_path / "good.gguf").write_bytes(content[0])
    with load(tmp_path / "good.gguf", device="numpy") as llm:
        assert np.isfinite(llm.logits([1, 2, 3])).all()
