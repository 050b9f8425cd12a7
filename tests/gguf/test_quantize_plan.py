"""Which tensor gets which type: the answers of llama.cpp's own quantizer, and what is refused before any work."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from minfer_ir.formats import WEIGHT_FORMATS
from minfer_models.gguf import GGUFError, array_source, open_gguf, type_of, write_gguf
from minfer_models.gguf.quantize import FILE_TYPES, Choice, QuantizeOptions, plan_quantization
from minfer_models.gguf.quantize.mixes import Matrix, Model, file_type, fitting, type_of_matrix

CODES = {"2": "Q2_K", "3": "Q3_K", "4": "Q4_K", "5": "Q5_K", "6": "Q6_K", "8": "Q8_0", "N": "IQ4_NL"}
KINDS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")

# What llama_model_quantize (llama-cpp-python 0.3.36) makes of llama models with rows of 256: by blocks, query heads to
# a key head, and whether the head is tied. A kind has one code for every block, or one for all; "rest" is the others'.
# fmt: off
LAYOUTS: dict[tuple[int, int, bool], dict[str, dict[str, str]]] = {
    (24, 2, True): {
        "Q6_K": {"token_embd": "6", "rest": "6"},
        "Q5_K_M": {
            "token_embd": "6",
            "rest": "5",
            "attn_v": "666556556556556556556666",
            "ffn_down": "666556556556556556556666",
        },
        "Q5_K_S": {"token_embd": "6", "rest": "5"},
        "Q4_K_M": {
            "token_embd": "6",
            "rest": "4",
            "attn_v": "666446446446446446446666",
            "ffn_down": "666446446446446446446666",
        },
        "Q4_K_S": {
            "token_embd": "6",
            "rest": "4",
            "attn_v": "555544444444444444444444",
            "ffn_down": "555444444444444444444444",
        },
        "IQ4_NL": {"token_embd": "6", "rest": "N", "ffn_down": "555NNNNNNNNNNNNNNNNNNNNN"},
        "Q3_K_L": {"token_embd": "6", "rest": "3", "attn_v": "5", "attn_output": "5", "ffn_down": "5"},
        "Q3_K_M": {
            "token_embd": "6",
            "rest": "3",
            "attn_v": "554444444444444444444444",
            "attn_output": "4",
            "ffn_down": "544444444444444444444444",
        },
        "Q3_K_S": {"token_embd": "6", "rest": "3"},
        "Q2_K": {"token_embd": "6", "rest": "2", "attn_v": "3", "attn_output": "3", "ffn_down": "3"},
    },
    (17, 4, False): {
        "Q6_K": {"token_embd": "6", "output": "6", "rest": "6"},
        "Q5_K_M": {
            "token_embd": "5",
            "output": "6",
            "rest": "5",
            "attn_v": "66556556556556666",
            "ffn_down": "66556556556556666",
        },
        "Q5_K_S": {"token_embd": "5", "output": "6", "rest": "5"},
        "Q4_K_M": {
            "token_embd": "4",
            "output": "6",
            "rest": "4",
            "attn_v": "66446446446446666",
            "ffn_down": "66446446446446666",
        },
        "Q4_K_S": {
            "token_embd": "4",
            "output": "6",
            "rest": "4",
            "attn_v": "55554444444444444",
            "ffn_down": "55444444444444444",
        },
        "IQ4_NL": {"token_embd": "N", "output": "6", "rest": "N", "attn_v": "5", "ffn_down": "55NNNNNNNNNNNNNNN"},
        "Q3_K_L": {"token_embd": "3", "output": "6", "rest": "3", "attn_v": "5", "attn_output": "5", "ffn_down": "5"},
        "Q3_K_M": {
            "token_embd": "3",
            "output": "6",
            "rest": "3",
            "attn_v": "55444444444444444",
            "attn_output": "4",
            "ffn_down": "54444444444444444",
        },
        "Q3_K_S": {"token_embd": "3", "output": "6", "rest": "3"},
        "Q2_K": {"token_embd": "2", "output": "6", "rest": "2", "attn_v": "4", "attn_output": "3", "ffn_down": "3"},
    },
    (80, 2, False): {
        "Q6_K": {"token_embd": "6", "output": "6", "rest": "6"},
        "Q5_K_M": {
            "token_embd": "5",
            "output": "6",
            "rest": "5",
            "attn_v": "6" * 10 + "556" * 20 + "6" * 10,
            "ffn_down": "6" * 10 + "556" * 20 + "6" * 10,
        },
        "Q5_K_S": {"token_embd": "5", "output": "6", "rest": "5"},
        "Q4_K_M": {
            "token_embd": "4",
            "output": "6",
            "rest": "4",
            "attn_v": "6" * 10 + "556" * 20 + "6" * 10,
            "ffn_down": "6" * 10 + "446" * 20 + "6" * 10,
        },
        "Q4_K_S": {"token_embd": "4", "output": "6", "rest": "4", "attn_v": "5", "ffn_down": "5" * 10 + "4" * 70},
        "IQ4_NL": {"token_embd": "N", "output": "6", "rest": "N", "ffn_down": "5" * 10 + "N" * 70},
        "Q3_K_L": {"token_embd": "3", "output": "6", "rest": "3", "attn_v": "5", "attn_output": "5", "ffn_down": "5"},
        "Q3_K_M": {
            "token_embd": "3",
            "output": "6",
            "rest": "3",
            "attn_v": "5",
            "attn_output": "4",
            "ffn_down": "5" * 5 + "4" * 75,
        },
        "Q3_K_S": {"token_embd": "3", "output": "6", "rest": "3", "attn_v": "5"},
        "Q2_K": {"token_embd": "2", "output": "6", "rest": "2", "attn_v": "5", "attn_output": "3", "ffn_down": "3"},
    },
}
# fmt: on


def options(name: str, **kwargs: object) -> QuantizeOptions:
    return QuantizeOptions.parse(name, **kwargs)  # type: ignore[arg-type]


@pytest.mark.parametrize("model", LAYOUTS)
@pytest.mark.parametrize(
    "name", ["Q6_K", "Q5_K_M", "Q5_K_S", "Q4_K_M", "Q4_K_S", "IQ4_NL", "Q3_K_L", "Q3_K_M", "Q3_K_S", "Q2_K"]
)
def test_mixes_are_those_of_llama_quantize(name: str, model: tuple[int, int, bool]) -> None:
    n_blocks, sharing, tied = model
    expected = LAYOUTS[model][name]
    asked = Model(n_blocks, sharing, large=n_blocks == 80, tied=tied)
    wanted = file_type(name)
    heads = [kind for kind in ("token_embd", "output") if kind in expected]
    assert [type_of_matrix(wanted, Matrix(kind, 256), asked) for kind in heads] == [CODES[expected[k]] for k in heads]
    for kind in KINDS:
        codes = expected.get(kind, expected["rest"])
        codes = codes * n_blocks if len(codes) == 1 else codes
        found = [type_of_matrix(wanted, Matrix(kind, 256, i, n_blocks), asked) for i in range(n_blocks)]
        assert found == [CODES[code] for code in codes], kind


# rows of 896 (Qwen2 0.5B), 576 (SmolLM), 48 and 1
@pytest.mark.parametrize(
    ("wanted", "by_row"),
    [
        ("Q4_K", {896: "Q5_0", 576: "Q5_0", 48: "F16", 1: "F16", 512: "Q4_K"}),
        ("Q5_K", {896: "Q5_1", 576: "Q5_1", 48: "F16", 1: "F16", 512: "Q5_K"}),
        ("Q6_K", {896: "Q8_0", 576: "Q8_0", 48: "F16", 1: "F16", 512: "Q6_K"}),
        ("Q2_K", {896: "IQ4_NL", 576: "IQ4_NL", 48: "F16", 1: "F16", 512: "Q2_K"}),
        ("Q3_K", {896: "IQ4_NL", 576: "IQ4_NL", 48: "F16", 1: "F16", 512: "Q3_K"}),
        ("Q4_0", {896: "Q4_0", 576: "Q4_0", 48: "F16", 1: "F16"}),
        ("IQ4_NL", {896: "IQ4_NL", 48: "F16"}),
        ("Q8_0", {896: "Q8_0", 48: "F16"}),
        ("BF16", {896: "BF16", 48: "BF16", 1: "BF16"}),
        ("F32", {1: "F32"}),
    ],
)
def test_rows_that_do_not_fit_fall_back(wanted: str, by_row: dict[int, str]) -> None:
    assert {row: fitting(wanted, row) for row in by_row} == by_row


def test_every_file_type_has_the_number_that_gguf_py_gives_it() -> None:
    from gguf.constants import LlamaFileType

    for name, found in FILE_TYPES.items():
        prefix = "ALL_" if name == "F32" else "MOSTLY_"
        assert found.number == LlamaFileType[prefix + name], name


def model_file(folder: Path, shapes: dict[str, tuple[int, ...]], **metadata: object) -> Path:
    rng = np.random.default_rng(0)
    entries = {"general.architecture": "llama", "llama.block_count": 1, "llama.attention.head_count": 4, **metadata}
    sources = [array_source(name, rng.standard_normal(shape).astype(np.float32)) for name, shape in shapes.items()]
    return write_gguf(folder / "model.gguf", entries, sources)[0]


def plan(path: Path, name: str, **kwargs: object) -> dict[str, Choice]:
    with open_gguf(path) as file:
        return {choice.info.name: choice for choice in plan_quantization(file, options(name, **kwargs))}


def new_types(choices: dict[str, Choice]) -> dict[str, str]:
    return {name.removesuffix(".weight"): choice.type_name for name, choice in choices.items()}


def test_rows_are_the_first_dimension_of_gguf_and_each_fallback_is_noted(tmp_path: Path) -> None:
    shapes = {"blk.0.ffn_up.weight": (512, 576), "blk.0.ffn_down.weight": (576, 512), "blk.0.attn_q.weight": (256, 48)}
    choices = plan(model_file(tmp_path, {**shapes, "output.weight": (256, 1)}), "Q4_K_S")
    assert new_types(choices) == {
        "blk.0.ffn_up": "Q5_0", "blk.0.ffn_down": "Q4_K", "blk.0.attn_q": "F16", "output": "F16",
    }  # fmt: skip
    fell = {name: choice.note for name, choice in choices.items() if choice.fell_back}
    assert fell == {
        "blk.0.ffn_up.weight": "rows of 576 are not whole Q4_K blocks of 256: Q5_0 instead",
        "blk.0.attn_q.weight": "rows of 48 are not whole Q4_K blocks of 256: F16 instead",
        "output.weight": "rows of 1 are not whole Q8_0 blocks of 32: F16 instead",
    }
    assert choices["blk.0.ffn_up.weight"].nbytes == 512 * 576 // 32 * 22


def test_what_has_its_type_already_did_not_fall_back(tmp_path: Path) -> None:
    eight = type_of(WEIGHT_FORMATS["Q8_0"])
    rows = WEIGHT_FORMATS["Q8_0"].draw(np.random.default_rng(0), 8, 64)
    sources = [array_source("blk.0.attn_q.weight", rows, eight)]
    path = write_gguf(tmp_path / "m.gguf", {"general.architecture": "llama", "llama.block_count": 1}, sources)[0]
    (choice,) = plan(path, "Q8_0").values()
    assert (choice.type_name, choice.new, choice.fell_back) == ("Q8_0", None, False)


def test_vectors_norms_and_small_matrices_stay(tmp_path: Path) -> None:
    kept = {
        "blk.0.attn_norm.weight": (256,), "blk.0.attn_q_norm.weight": (4, 256), "rope_freqs.weight": (32,),
        "blk.0.attn_q.bias": (256,), "blk.0.ffn_gate_inp.weight": (8, 256), "position_embd.weight": (16, 256),
        "one_row.weight": (1, 256),
    }  # fmt: skip
    choices = plan(model_file(tmp_path, {**kept, "blk.0.attn_k.weight": (2, 256)}), "Q8_0")
    assert [name for name, choice in choices.items() if choice.new is not None] == ["blk.0.attn_k.weight"]


SHAPES = {
    "token_embd.weight": (8, 256),
    "output.weight": (8, 256),
    "blk.0.attn_k.weight": (8, 256),
    "blk.0.ffn_down.weight": (8, 512),
}
TIED = {name: shape for name, shape in SHAPES.items() if name != "output.weight"}


@pytest.mark.parametrize(
    ("shapes", "kwargs", "expected"),
    [
        (SHAPES, {}, ("Q4_K", "Q6_K", "Q4_K", "Q6_K")),
        (SHAPES, {"pure": True}, ("Q4_K", "Q4_K", "Q4_K", "Q4_K")),
        (SHAPES, {"keep_output": True}, ("Q4_K", "F32", "Q4_K", "Q6_K")),
        (SHAPES, {"output_type": "q8_0"}, ("Q4_K", "Q8_0", "Q4_K", "Q6_K")),
        (SHAPES, {"token_embedding_type": "q3_k"}, ("Q3_K", "Q6_K", "Q4_K", "Q6_K")),
        (SHAPES, {"tensor_types": ("ffn_d.wn=BF16", "ffn=Q5_0")}, ("Q4_K", "Q6_K", "Q4_K", "BF16")),
        (SHAPES, {"tensor_types": (".=Q5_0",), "output_type": "F16"}, ("Q5_0", "F16", "Q5_0", "Q5_0")),
        (TIED, {}, ("Q6_K", "Q4_K", "Q6_K")),
        (TIED, {"keep_output": True}, ("F32", "Q4_K", "Q6_K")),
        (TIED, {"output_type": "Q8_0"}, ("Q8_0", "Q4_K", "Q6_K")),
        (TIED, {"output_type": "Q8_0", "token_embedding_type": "Q5_K"}, ("Q5_K", "Q4_K", "Q6_K")),
    ],
)
def test_options_choose(
    shapes: dict[str, tuple[int, ...]], kwargs: dict[str, object], expected: tuple[str, ...], tmp_path: Path
) -> None:
    choices = plan(model_file(tmp_path, shapes), "Q4_K_M", **kwargs)
    assert tuple(new_types(choices).values()) == expected


@pytest.mark.parametrize(
    ("name", "kwargs", "message"),
    [
        ("Q9", {}, "a file can't be quantized to 'Q9'; it can to F32, F16"),
        ("IQ2_XS", {}, "a file can't be quantized to 'IQ2_XS'"),
        ("Q8_0", {"output_type": "Q4_K_M"}, "a tensor can't get the type 'Q4_K_M'; nearest: Q4_K"),
        ("Q8_0", {"tensor_types": ("ffn",)}, "'ffn' is not REGEX=TYPE"),
        ("Q8_0", {"tensor_types": ("=Q8_0",)}, "'=Q8_0' is not REGEX=TYPE"),
        ("Q8_0", {"tensor_types": ("f(=Q8_0",)}, r"'f\(' is not a regular expression"),
        ("Q8_0", {"tensor_types": ("ffn_gate=Q4_0",)}, "no matrix of the file has a name that 'ffn_gate' is found in"),
        ("Q8_0", {"tensor_types": ("attn_norm=Q4_0",)}, "no matrix of the file has a name that 'attn_norm'"),
    ],
)
def test_options_that_mean_nothing_are_refused(
    name: str, kwargs: dict[str, object], message: str, tmp_path: Path
) -> None:
    path = model_file(tmp_path, {**SHAPES, "blk.0.attn_norm.weight": (256,)})
    with pytest.raises(ValueError, match=message):
        plan(path, name, **kwargs)


def test_aliases_are_those_of_llama_quantize() -> None:
    assert [file_type(name).name for name in ("q4_k", "Q5_K", "Q3_K", "Q2_K", "q6_k")] == [
        "Q4_K_M", "Q5_K_M", "Q3_K_M", "Q2_K", "Q6_K",
    ]  # fmt: skip


def test_experts_are_refused_unless_all_get_one_type(tmp_path: Path) -> None:
    path = model_file(tmp_path, {"blk.0.ffn_down_exps.weight": (4, 8, 256)}, **{"llama.expert_count": 4})
    with pytest.raises(GGUFError, match=r"key 'llama.expert_count': a mix's rules for experts"):
        plan(path, "Q4_K_M")
    assert new_types(plan(path, "Q4_K_M", pure=True)) == {"blk.0.ffn_down_exps": "Q4_K"}
