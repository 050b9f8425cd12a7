"""Models for measuring: types as llama-quantize assigns them, published shapes, a file's weights in another type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize, quantize
from model_steps import exact_logits
from typer.testing import CliRunner

from minfer_ir.formats import F16, format_named
from minfer_models.gguf import GGUFError, open_gguf
from minfer_models.synthetic import SHAPES, SyntheticModel, byte_vocabulary, reencode, write_model
from minfer_models.synthetic.mixes import types_by_tensor
from tools.make_model import app

# Answers of llama-quantize (llama-cpp-python 0.3.36) for a qwen3 with an F16 source:
# blocks whose attn_v is better than their attn_k, by number of blocks.
BETTER_BLOCKS = {
    1: [0],
    2: [1],
    7: [2, 5, 6],
    16: [0, 1, 4, 7, 10, 13, 14, 15],
    24: [0, 1, 2, 5, 8, 11, 14, 17, 20, 21, 22, 23],
    28: [0, 1, 2, 5, 8, 11, 14, 17, 20, 23, 24, 25, 26, 27],
    30: [0, 1, 2, 5, 8, 11, 14, 17, 20, 23, 26, 27, 28, 29],
}
NORMED = ("token_embd", "attn_q", "attn_k", "attn_v", "ffn_gate", "ffn_up")


def rows(width: int, ffn_width: int) -> dict[str, int]:
    return {**dict.fromkeys(NORMED, width), "attn_output": width, "ffn_down": ffn_width}


def types_in(path: Path) -> dict[str, str]:
    return {t.name: t.tensor_type.name for t in gguf.GGUFReader(path).tensors}


@pytest.mark.parametrize("n_blocks", BETTER_BLOCKS)
def test_the_q4_k_m_mix_lifts_the_blocks_that_llama_quantize_lifts(n_blocks: int) -> None:
    types = types_by_tensor("Q4_K_M", rows(256, 512), n_blocks, tied=False)
    for kind in ("attn_v", "ffn_down"):
        found = [types[f"blk.{i}.{kind}.weight"] for i in range(n_blocks)]
        assert [i for i, name in enumerate(found) if name == "Q6_K"] == BETTER_BLOCKS[n_blocks]
        assert set(found) <= {"Q4_K", "Q6_K"}
    rest = ("attn_q", "attn_k", "attn_output", "ffn_gate", "ffn_up")
    assert {types[f"blk.{i}.{kind}.weight"] for i in range(n_blocks) for kind in rest} == {"Q4_K"}
    assert (types["token_embd.weight"], types["output.weight"]) == ("Q4_K", "Q6_K")


@pytest.mark.parametrize(
    ("type_name", "width", "tied", "expected"),
    [
        # embedding, output, attn_q, attn_v of block 3, ffn_down (rows of 512) of block 3: from llama-quantize
        ("Q4_K_M", 256, True, ("Q6_K", "Q6_K", "Q4_K", "Q4_K", "Q4_K")),
        ("Q4_K_M", 128, True, ("Q8_0", "Q8_0", "Q5_0", "Q5_0", "Q4_K")),
        ("Q5_K_M", 128, True, ("Q8_0", "Q8_0", "Q5_1", "Q5_1", "Q5_K")),
        ("Q4_0", 256, True, ("Q6_K", "Q6_K", "Q4_0", "Q4_0", "Q4_0")),
        ("Q5_1", 256, False, ("Q5_1", "Q6_K", "Q5_1", "Q5_1", "Q5_1")),
        ("Q8_0", 256, True, ("Q8_0", "Q8_0", "Q8_0", "Q8_0", "Q8_0")),
        ("F16", 256, True, ("F16", "F16", "F16", "F16", "F16")),
    ],
)
def test_heads_and_rows_of_odd_length_get_the_types_that_llama_quantize_gives(
    type_name: str, width: int, tied: bool, expected: tuple[str, ...]
) -> None:
    types = types_by_tensor(type_name, rows(width, 512), 24, tied)
    names = ("token_embd", "output", "blk.3.attn_q", "blk.3.attn_v", "blk.3.ffn_down")
    assert tuple(types[f"{name}.weight"] for name in names) == expected


def test_rows_that_no_block_fits_are_f16_and_unknown_types_are_refused() -> None:
    types = types_by_tensor("Q4_K", rows(80, 512), 2, tied=True)
    assert (types["output.weight"], types["blk.0.attn_q.weight"], types["blk.0.ffn_down.weight"]) == (
        "F16", "F16", "Q4_K",
    )  # fmt: skip
    with pytest.raises(ValueError, match="no format is called 'Q4_K_X'"):
        types_by_tensor("Q4_K_X", rows(256, 512), 2, tied=True)


# config.json of Qwen/Qwen2.5-0.5B, Qwen/Qwen3-0.6B, meta-llama/Llama-3.2-1B: the parameters that their pages state
PARAMETERS = {"qwen2.5-0.5b": 494_032_768, "qwen3-0.6b": 596_049_920, "llama-3.2-1b": 1_235_814_400}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_has_the_published_number_of_parameters(shape: str, tmp_path: Path) -> None:
    named = SHAPES[shape]
    small: dict[str, Any] = {"vocabulary": byte_vocabulary(300)}
    path = write_model(tmp_path / "m.gguf", named.model("Q2_K", **small, n_blocks=1))
    with open_gguf(path) as file:
        per_block = sum(t.n_elements for name, t in file.tensors.items() if name.startswith("blk."))
        assert file.metadata["general.architecture"] == named.architecture
    whole = named.n_blocks * per_block + named.n_vocab * named.width + named.width
    assert whole == PARAMETERS[shape]


@pytest.mark.parametrize("shape", ["qwen2.5-0.5b", "qwen3-0.6b"])
def test_logits_of_a_shape_are_neither_flat_nor_one_sided(shape: str, tmp_path: Path) -> None:
    named = SHAPES[shape]
    path = write_model(tmp_path / "m.gguf", named.model("Q8_0", byte_vocabulary(5000), n_blocks=2))
    tokens = np.random.default_rng(3).integers(0, 5000, 32).tolist()
    logits = exact_logits(path, tokens).astype(np.float64)
    spread = logits.std(axis=1)
    assert ((spread > 2) & (spread < 4.5)).all()
    assert len(set(logits.argmax(axis=1))) >= 6


def test_no_blocks_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 block, asked for 0"):
        SHAPES["qwen3-0.6b"].model("Q8_0", byte_vocabulary(), n_blocks=0)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    model = SyntheticModel(architecture="llama", width=256, ffn_width=512, weights={"token_embd*": "Q8_0", "*": "Q4_1"})
    return write_model(tmp_path / "source.gguf", model)


@pytest.mark.parametrize("type_name", ["Q4_0", "Q5_0", "Q5_1", "Q8_0", "F16", "BF16"])
def test_a_reencoded_file_holds_what_gguf_py_makes_of_its_weights(type_name: str, source: Path, tmp_path: Path) -> None:
    target = reencode(source, tmp_path / "out.gguf", type_name)
    old = {t.name: t for t in gguf.GGUFReader(source).tensors}
    new = {t.name: t for t in gguf.GGUFReader(target).tensors}
    assert list(old) == list(new)
    kind = gguf.GGMLQuantizationType[type_name]
    for name, tensor in old.items():
        if name.startswith("blk.") and "norm" not in name:
            expected = quantize(dequantize(tensor.data, tensor.tensor_type), kind)
            assert new[name].tensor_type == kind
            np.testing.assert_array_equal(new[name].data.view(np.uint8), expected.view(np.uint8))
        else:
            assert new[name].tensor_type == tensor.tensor_type
            np.testing.assert_array_equal(new[name].data, tensor.data)


def test_a_reencoded_mix_and_its_file_type(source: Path, tmp_path: Path) -> None:
    with open_gguf(source) as file:
        entries = {**dict(file.metadata.typed_items()), "general.file_type": 3}
        from minfer_models.gguf import file_source, write_gguf

        write_gguf(tmp_path / "typed.gguf", entries, [file_source(file, name) for name in file.tensors])
    target = reencode(tmp_path / "typed.gguf", tmp_path / "out.gguf", "q4_k_m")
    types = types_in(target)
    assert types["blk.0.ffn_down.weight"] == types["blk.0.attn_v.weight"] == "Q4_K"
    assert types["blk.1.ffn_down.weight"] == types["blk.1.attn_v.weight"] == "Q6_K"
    assert types["token_embd.weight"] == "Q8_0"
    with open_gguf(target) as file:
        assert file.metadata["general.file_type"] == 15  # LLAMA_FTYPE_MOSTLY_Q4_K_M


def test_bytes_are_heard_as_they_are_written(source: Path, tmp_path: Path) -> None:
    heard: dict[str, int] = {}

    def hear(name: str, n: int) -> None:
        heard[name] = heard.get(name, 0) + n

    target = reencode(source, tmp_path / "out.gguf", "Q5_0", hear)
    with open_gguf(target) as file:
        assert heard == {name: info.nbytes for name, info in file.tensors.items()}
    heard.clear()
    path = write_model(tmp_path / "m.gguf", SyntheticModel(), hear)
    with open_gguf(path) as file:
        assert heard == {name: info.nbytes for name, info in file.tensors.items()}


def test_large_float_tensors_repeat_drawn_values_and_keep_their_spread() -> None:
    for name in ("F32", "F16", "BF16"):
        fmt = format_named(name)
        data = fmt.draw(np.random.default_rng(5), 300, 1000, 0.05)
        values = fmt.decode(data)
        assert data.shape == (300, fmt.row_bytes(1000))
        assert len(np.unique(values)) <= 1 << 16
        assert 0.049 < values.std() < 0.051
        assert abs(values.mean()) < 0.001
        np.testing.assert_array_equal(data, fmt.draw(np.random.default_rng(5), 300, 1000, 0.05))
        assert abs(np.corrcoef(values[:, :-1].ravel(), values[:, 1:].ravel())[0, 1]) < 0.01
    few = F16.decode(F16.draw(np.random.default_rng(5), 2, 1000))
    np.testing.assert_array_equal(
        few.ravel(),
        (np.random.default_rng(5).standard_normal((2000, 1), dtype=np.float32) * np.float32(0.02))
        .astype(np.float16)
        .astype(np.float32)
        .ravel(),
    )


def call(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    return result.exit_code, result.output


def test_the_command_writes_a_shape_with_its_real_vocabulary(tmp_path: Path, qwen3_tokenizer: Path) -> None:
    path = tmp_path / "m.gguf"
    code, output = call(path, "--shape", "qwen3-0.6b", "--type", "q2_k", "--layers", "1", "--seed", "3")
    assert code == 0, output
    assert f"{path}: " in output
    with open_gguf(path) as file:
        assert file.tensor("token_embd.weight").shape == (151936, 1024)
        assert file.metadata["qwen3.block_count"] == 1
        assert len(file.metadata["tokenizer.ggml.tokens"]) == 151936
    assert types_in(path)["blk.0.attn_q.weight"] == "Q2_K"


def test_the_command_reencodes(source: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    code, output = call(path, "--from", source, "--type", "Q8_0")
    assert code == 0, output
    assert types_in(path)["blk.0.attn_q.weight"] == "Q8_0"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--type", "Q8_0"), 2, "give one of --shape and --from"),
        (("--type", "Q8_0", "--shape", "qwen3-0.6b", "--from", "x.gguf"), 2, "give one of --shape and --from"),
        (("--type", "Q8_0", "--from", "x.gguf", "--layers", "2"), 2, "--layers and --seed go with --shape"),
        (("--type", "Q9", "--shape", "qwen3-0.6b"), 2, "'Q9' is not one of"),
        (("--type", "Q8_0", "--shape", "qwen9"), 2, "'qwen9' is not one of"),
        (("--type", "Q8_0", "--from", "none.gguf"), 1, "none.gguf"),
    ],
)
def test_the_command_refuses(arguments: tuple[str, ...], code: int, message: str, tmp_path: Path) -> None:
    found, output = call(tmp_path / "m.gguf", *arguments)
    assert (found, message in output) == (code, True), output
    assert list(tmp_path.iterdir()) == []


def test_the_command_refuses_a_folder_that_is_not_there(source: Path, tmp_path: Path) -> None:
    code, output = call(tmp_path / "none" / "m.gguf", "--from", source, "--type", "Q8_0")
    assert code == 1
    assert f"{tmp_path / 'none'}: no such folder" in output


def test_a_file_that_cannot_run_is_not_reencoded(tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"GGUF")
    with pytest.raises(GGUFError):
        reencode(tmp_path / "bad.gguf", tmp_path / "out.gguf", "Q8_0")
    assert not (tmp_path / "out.gguf").exists()
