"""Vocabularies for synthetic models, as the `tokenizer.*` metadata of a GGUF file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from minfer_models.tokenizer import metadata_from_hf
from minfer_models.tokenizer.bytelevel import BYTE_TO_CHAR
from minfer_models.tokenizer.vocab import MERGES_KEY, MODEL_KEY, TOKENS_KEY, TYPES_KEY, TokenType

END_OF_TEXT = 256
"""The end of a generation in a byte vocabulary."""


def byte_vocabulary(n_vocab: int = 258) -> dict[str, Any]:
    """A vocabulary of single bytes: id = byte, `<|endoftext|>` (the EOS), two NULs, then unused ids up to `n_vocab`."""
    if n_vocab < 258:
        raise ValueError(f"a byte vocabulary has at least 258 ids, asked for {n_vocab}")
    n_unused = n_vocab - 258
    nul, normal, unused = BYTE_TO_CHAR[0], int(TokenType.NORMAL), int(TokenType.UNUSED)
    return {
        MODEL_KEY: "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        TOKENS_KEY: [
            *(BYTE_TO_CHAR[b] for b in range(256)),
            *("<|endoftext|>", nul + nul),
            *(f"[PAD{i}]" for i in range(n_unused)),
        ],
        TYPES_KEY: [normal] * 256 + [int(TokenType.CONTROL), normal] + [unused] * n_unused,
        # One merge that text hardly meets: a list without elements has no element type to write.
        MERGES_KEY: [f"{nul} {nul}"],
        "tokenizer.ggml.eos_token_id": END_OF_TEXT,
    }


def hf_vocabulary(folder: Path, pre: str, n_vocab: int | None = None) -> dict[str, Any]:
    """The vocabulary of a folder with tokenizer.json and tokenizer_config.json; see `metadata_from_hf`."""
    files = (folder / "tokenizer.json", folder / "tokenizer_config.json")
    tokenizer, config = (json.loads(file.read_text(encoding="utf-8")) for file in files)
    return metadata_from_hf(tokenizer, config, pre, n_vocab)
