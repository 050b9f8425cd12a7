"""The good files that fuzzing starts from: every architecture, weight format and kind of vocabulary, small.

Most are made by our writer, one by gguf-py's, one is a split pair, and one is the header of a real model before a hole
as large as its weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from minfer_models.gguf import SplitRule, file_source, open_gguf, write_gguf
from minfer_models.synthetic import SyntheticModel, byte_vocabulary, llama3_factors, write_model
from minfer_models.tokenizer.vocab import MERGES_KEY, TOKENS_KEY, TYPES_KEY

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_MERGES = ("h e", "l l", "he ll", "hell o", "Ġ t", "Ġt he", "i n", "in g", "1 2", "Ċ Ċ")
_MADE = ("he", "ll", "hell", "hello", "Ġt", "Ġthe", "in", "ing", "12", "ĊĊ")
_SPECIALS = ("<|im_start|>", "<|im_end|>", "<tool_call>", "[PAD0]", "[PAD1]")
_SPECIAL_TYPES = (3, 3, 4, 5, 5)


@dataclass(frozen=True, slots=True)
class Seed:
    """A good file: its bytes, those of its other shards by name, and the bytes of a hole behind its own."""

    name: str
    file: str
    content: bytes
    siblings: Mapping[str, bytes]
    hole: int = 0


def bpe_vocabulary() -> dict[str, Any]:
    """A byte vocabulary with merges, markers of three kinds, unused ids and a template."""
    base = byte_vocabulary()
    tokens = [*base[TOKENS_KEY], *_MADE, *_SPECIALS]
    ids = {text: i for i, text in enumerate(tokens)}
    return {
        **base,
        TOKENS_KEY: tokens,
        TYPES_KEY: [*base[TYPES_KEY], *[1] * len(_MADE), *_SPECIAL_TYPES],
        MERGES_KEY: [*base[MERGES_KEY], *_MERGES],
        "tokenizer.ggml.bos_token_id": ids["<|im_start|>"],
        "tokenizer.ggml.eos_token_id": ids["<|im_end|>"],
        "tokenizer.ggml.padding_token_id": ids["[PAD0]"],
        "tokenizer.ggml.unknown_token_id": ids["<|endoftext|>"],
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.add_space_prefix": False,
        "tokenizer.chat_template": TEMPLATE,
    }


def spm_vocabulary() -> dict[str, Any]:
    """A SentencePiece-style vocabulary: scores, byte fallback, a space prefix."""
    pieces = ["▁", "▁t", "he", "▁the", "ll", "lo", "hello", *"abcdefghijklmnopqrstuvwxyz,.0123456789"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *pieces]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        TOKENS_KEY: tokens,
        "tokenizer.ggml.scores": np.array([0.0] * 259 + [-float(i) for i in range(len(pieces))], np.float32),
        TYPES_KEY: [2, 3, 3, *[6] * 256, *[1] * len(pieces)],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_eos_token": False,
        "tokenizer.ggml.add_space_prefix": True,
        "tokenizer.chat_template": "{{ bos_token }}{% for m in messages %}[INST] {{ m.content }} [/INST]{% endfor %}",
    }


def models() -> dict[str, SyntheticModel]:
    """The small models, the plainest first."""
    vocabulary = bpe_vocabulary()
    small: dict[str, Any] = {
        "n_blocks": 1, "width": 64, "ffn_width": 64, "n_heads": 4, "n_kv_heads": 2, "n_ctx_train": 64,
        "vocabulary": vocabulary,
    }  # fmt: skip
    yarn = {
        "rope.dimension_count": 16, "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 16, "rope.scaling.yarn_beta_fast": 16.0, "expert_count": 0,
        "attention.sliding_window": 64,
    }  # fmt: skip
    k_quants = {
        "token_embd.*": "Q6_K", "*attn_q.*": "Q4_K", "*attn_k.*": "Q5_K", "*attn_v.*": "Q3_K", "*attn_output.*": "Q2_K",
        "*ffn_gate.*": "Q4_0", "*ffn_up.*": "Q5_1", "*": "IQ4_NL",
    }  # fmt: skip
    factors = llama3_factors(16, 10000.0, 8.0)
    return {
        "llama-q8_0": SyntheticModel(**small),
        "llama-yarn": SyntheticModel(**small, weights="Q4_1", tied=False, rope_factors=factors, metadata=yarn),
        "llama-k-quants": SyntheticModel(**{**small, "width": 256, "ffn_width": 256}, weights=k_quants),
        "qwen2": SyntheticModel(**small, architecture="qwen2", weights="Q5_0", biases=True),
        "qwen3": SyntheticModel(**small, architecture="qwen3", weights={"token*": "BF16", "*": "F16"}, head_dim=32),
        "sentencepiece": SyntheticModel(**{**small, "vocabulary": spm_vocabulary()}, weights="F32"),
    }


def write_seeds(folder: Path, real: Path | None = None) -> None:
    """Write every seed into a folder of its own in `folder`; `real` is a real model, whose header becomes one."""
    for name, model in models().items():
        (folder / name).mkdir(parents=True)
        write_model(folder / name / "m.gguf", model)
    plain = folder / "llama-q8_0" / "m.gguf"
    (folder / "split").mkdir()
    with open_gguf(plain) as file:
        sources = [file_source(file, name) for name in file.tensors]
        write_gguf(folder / "split" / "m.gguf", file.metadata, sources, split=SplitRule(max_tensors=7))
    (folder / "gguf-py").mkdir()
    _write_with_gguf_py(folder / "gguf-py" / "m.gguf", plain)
    if real is not None:
        (folder / "real").mkdir()
        _write_header(folder / "real" / "m.gguf", real)


def read_seeds(folder: Path) -> dict[str, Seed]:
    """What `write_seeds` wrote, by name."""
    return {place.name: _read(place) for place in sorted(folder.iterdir()) if place.is_dir()}


def _read(place: Path) -> Seed:
    first, *others = sorted(place.glob("*.gguf"))
    hole_file = place / "hole"
    hole = int(hole_file.read_text()) if hole_file.exists() else 0
    return Seed(place.name, first.name, first.read_bytes(), {path.name: path.read_bytes() for path in others}, hole)


def _write_header(path: Path, real: Path) -> None:
    with open_gguf(real) as file:
        start = min(info.offset for info in file.tensors.values())
    path.write_bytes(real.read_bytes()[:start])
    path.with_name("hole").write_text(str(real.stat().st_size - start))


def _write_with_gguf_py(path: Path, source: Path) -> None:
    """A copy with values of every type and an alignment of 64."""
    from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter

    reader, writer = GGUFReader(source), GGUFWriter(path, "llama")
    writer.add_custom_alignment(64)
    for key, entry in reader.fields.items():
        if not key.startswith("GGUF.") and key != "general.architecture":
            writer.add_key_value(key, entry.contents(), *entry.types[:2])
    for number, kind in enumerate(GGUFValueType):
        if kind not in (GGUFValueType.STRING, GGUFValueType.ARRAY):
            value = kind == GGUFValueType.BOOL or number
            writer.add_key_value(f"x.{kind.name.lower()}", value, kind)
            writer.add_key_value(f"x.{kind.name.lower()}s", [value, value], GGUFValueType.ARRAY, kind)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=GGMLQuantizationType(tensor.tensor_type))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
