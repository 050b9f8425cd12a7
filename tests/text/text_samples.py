"""Inputs that several text tests share: awkward text, real files as metadata, and a small vocabulary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import tokenizers
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers

from minfer_models.tokenizer.bytelevel import BYTE_TO_CHAR

NORMAL, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 3, 4, 5, 6

_FRAGMENTS = [
    " ", "  ", "   ", "\t", "\n", "\r\n", "\n\n", " \n ", "\u00a0", "\u3000", "\u0085", "\u200d", "\u0301",
    "0", "12", "333", "½", "٣", "'s", "'LL", "'Re", "'", "''t", "Hello", " world", "naïve", "Việt", "нещо", "我想",
    "ｱ", "🦙", "👩‍👩‍👧", "!", "...", " (", "=", "_", "-->", "<", "|", ">", "im_end", "<|im_end|>", "<|eot_id|>",
    "<think>", "<|endoftext|>", "</think>", "ﬁ", "İ", "ß",
]  # fmt: skip

# Text that leans on what pre-tokenizers treat differently.
TEXT = st.lists(st.one_of(st.sampled_from(_FRAGMENTS), st.text(max_size=6)), max_size=12).map("".join)


def read_json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def gguf_metadata(path: Path) -> dict[str, object]:
    """The tokenizer's metadata as gguf-py reads it."""
    fields = gguf.GGUFReader(path).fields
    return {name: field.contents() for name, field in fields.items() if name.startswith("tokenizer.")}


def smollm_components(meta: dict[str, Any], digits: bool = True) -> tokenizers.Tokenizer:
    """SmolLM2's vocabulary in the `tokenizers` components that its own tokenizer.json names; GPT-2's without digits."""
    tokens, types = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.token_type"]
    vocab = {text: i for i, text in enumerate(tokens) if types[i] == NORMAL}
    oracle = tokenizers.Tokenizer(models.BPE(vocab, [tuple(m.split(" ")) for m in meta["tokenizer.ggml.merges"]]))
    first = [pre_tokenizers.Digits(individual_digits=True)] if digits else []
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    oracle.pre_tokenizer = pre_tokenizers.Sequence([*first, last])  # type: ignore[assignment]
    return oracle


def toy_metadata() -> dict[str, Any]:
    """256 byte tokens, two merges, then special and unused ids; every id is easy to name."""
    letters = list(BYTE_TO_CHAR.values())
    extra = {
        "ab": NORMAL, "abc": NORMAL, "<s>": CONTROL, "</s>": CONTROL, "<s>x": USER_DEFINED, "<t>": USER_DEFINED,
        "<0xF0>": BYTE, "[PAD263]": UNUSED, "[PAD264]": UNUSED,
    }  # fmt: skip
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": letters + list(extra),
        "tokenizer.ggml.token_type": [NORMAL] * 256 + list(extra.values()),
        "tokenizer.ggml.merges": ["a b", "ab c"],
        "tokenizer.ggml.bos_token_id": 258,
        "tokenizer.ggml.eos_token_id": 259,
    }
