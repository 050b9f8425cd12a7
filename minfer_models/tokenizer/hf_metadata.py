"""Hugging Face tokenizer files as the GGUF metadata they convert to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minfer_models.tokenizer.errors import TokenizerError
from minfer_models.tokenizer.vocab import TokenType


def metadata_from_hf(
    tokenizer_json: Mapping[str, Any], config: Mapping[str, Any], pre: str, n_vocab: int | None = None
) -> dict[str, object]:
    """GGUF metadata (`tokenizer.ggml.*`, `tokenizer.chat_template`) for a byte-level BPE `tokenizer.json`.

    tokenizer_json, config: parsed tokenizer.json and tokenizer_config.json.
    pre: the `tokenizer.ggml.pre` name, which the files themselves do not state.
    n_vocab: pad to this many ids with unused tokens, as converters do when the logits are wider than the vocabulary.
    Raises TokenizerError for another model type, or when n_vocab is less than the ids in use.
    """
    model = tokenizer_json["model"]
    if model["type"] != "BPE":
        raise TokenizerError(f"tokenizer.json has a {model['type']!r} model; only 'BPE' converts")
    used = {i: (text, TokenType.NORMAL) for text, i in model["vocab"].items()}
    for added in tokenizer_json["added_tokens"]:
        used[added["id"]] = (added["content"], TokenType.CONTROL if added["special"] else TokenType.USER_DEFINED)
    size = max(used) + 1 if n_vocab is None else n_vocab
    if size <= max(used):
        raise TokenizerError(f"n_vocab is {size}, but tokenizer.json has id {max(used)}")
    table = [used.get(i, (f"[PAD{i}]", TokenType.UNUSED)) for i in range(size)]
    meta: dict[str, object] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": [text for text, _ in table],
        "tokenizer.ggml.token_type": [int(kind) for _, kind in table],
        "tokenizer.ggml.merges": [m if isinstance(m, str) else " ".join(m) for m in model["merges"]],
    }
    ids = {text: i for i, (text, _) in used.items()}
    for role, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        text = _token_text(config.get(f"{role}_token"))
        if text is not None:
            meta[f"tokenizer.ggml.{key}_token_id"] = ids[text]
    meta["tokenizer.ggml.add_bos_token"] = _adds_bos(tokenizer_json, config)
    if isinstance(config.get("chat_template"), str):
        meta["tokenizer.chat_template"] = config["chat_template"]
    return meta


def _token_text(value: object) -> str | None:
    """A token in tokenizer_config.json is its text, an object with `content`, or null."""
    if isinstance(value, Mapping):
        return value["content"]
    return value if isinstance(value, str) else None


def _adds_bos(tokenizer_json: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    """Stated by the config, or by a post-processor whose template starts with the BOS token."""
    if isinstance(config.get("add_bos_token"), bool):
        return config["add_bos_token"]
    bos = _token_text(config.get("bos_token"))
    processor = tokenizer_json.get("post_processor") or {}
    steps = processor.get("processors", [processor])
    firsts = [step["single"][0] for step in steps if step.get("type") == "TemplateProcessing" and step.get("single")]
    return any(first.get("SpecialToken", {}).get("id") == bos for first in firsts)
