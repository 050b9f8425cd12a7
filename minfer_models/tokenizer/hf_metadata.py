"""Hugging Face tokenizer files as the GGUF metadata they convert to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from minfer_models.tokenizer.bytelevel import HEX_TOKEN
from minfer_models.tokenizer.errors import TokenizerError
from minfer_models.tokenizer.sentencepiece import PREFIX_KEY
from minfer_models.tokenizer.vocab import MERGES_KEY, MODEL_KEY, SCORES_KEY, TOKENS_KEY, TYPES_KEY, TokenType

# Of an added token: conditions on what stands around it, for which a GGUF file has no place.
_CONDITIONS = ("lstrip", "rstrip", "single_word")


def metadata_from_hf(
    tokenizer_json: Mapping[str, Any], config: Mapping[str, Any], pre: str, n_vocab: int | None = None
) -> dict[str, object]:
    """GGUF metadata (`tokenizer.ggml.*`, `tokenizer.chat_template`) for a `tokenizer.json`.

    A byte-level BPE becomes the model "gpt2"; a BPE that writes unknown characters as bytes becomes "llama", with
    scores that rank its pieces as the merges do.
    tokenizer_json, config: parsed tokenizer.json and tokenizer_config.json.
    pre: the `tokenizer.ggml.pre` name, which the files themselves do not state ("default" for "llama").
    n_vocab: pad to this many ids with unused tokens, as converters do when the logits are wider than the vocabulary.
    Raises TokenizerError for another model type, an added token that GGUF cannot describe, or when n_vocab is less
    than the ids in use.
    """
    model = tokenizer_json["model"]
    if model["type"] != "BPE":
        raise TokenizerError(f"tokenizer.json has a {model['type']!r} model; only 'BPE' converts")
    used = _used(tokenizer_json)
    size = max(used) + 1 if n_vocab is None else n_vocab
    if size <= max(used):
        raise TokenizerError(f"n_vocab is {size}, but tokenizer.json has id {max(used)}")
    table = [used.get(i, (f"[PAD{i}]", TokenType.UNUSED)) for i in range(size)]
    texts = [text for text, _ in table]
    meta: dict[str, object] = {
        MODEL_KEY: "llama" if model.get("byte_fallback") else "gpt2",
        "tokenizer.ggml.pre": pre,
        TOKENS_KEY: texts,
        TYPES_KEY: [int(kind) for _, kind in table],
    }
    if model.get("byte_fallback"):
        meta |= {SCORES_KEY: _scores(texts, model["merges"]), PREFIX_KEY: _prepends(tokenizer_json)}
    else:
        meta[MERGES_KEY] = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    ids = {text: i for i, (text, _) in used.items()}
    for role, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        text = _token_text(config.get(f"{role}_token"))
        if text is not None:
            meta[f"tokenizer.ggml.{key}_token_id"] = ids[text]
    meta["tokenizer.ggml.add_bos_token"] = _adds_bos(tokenizer_json, config)
    if isinstance(config.get("chat_template"), str):
        meta["tokenizer.chat_template"] = config["chat_template"]
    return meta


def _used(tokenizer_json: Mapping[str, Any]) -> dict[int, tuple[str, TokenType]]:
    """Text and type of every id, the added tokens' last."""
    model = tokenizer_json["model"]
    used = {i: (text, TokenType.NORMAL) for text, i in model["vocab"].items()}
    if model.get("byte_fallback"):
        used |= {i: (text, TokenType.BYTE) for text, i in model["vocab"].items() if HEX_TOKEN.fullmatch(text)}
    for added in tokenizer_json["added_tokens"]:
        text = added["content"]
        asked = [name for name in _CONDITIONS if added.get(name)]
        if asked:
            raise TokenizerError(f"the added token {text!r} has {', '.join(asked)}, which a GGUF file cannot say")
        used[added["id"]] = (text, TokenType.CONTROL if added["special"] else TokenType.USER_DEFINED)
    unknown = model.get("unk_token")
    if unknown in model["vocab"]:
        used[model["vocab"][unknown]] = (unknown, TokenType.UNKNOWN)
    return used


def _scores(texts: list[str], merges: list[str] | list[list[str]]) -> list[float]:
    """Minus the rank at which a piece is first made; a piece that no merge makes has no use for one and gets 0."""
    ranks: dict[str, int] = {}
    for merge in merges:
        ranks.setdefault("".join(merge.split(" ")) if isinstance(merge, str) else "".join(merge), len(ranks))
    return [float(-ranks.get(text, 0)) for text in texts]


def _prepends(tokenizer_json: Mapping[str, Any]) -> bool:
    """Whether a space goes before a text: a normalizer prepends it, or a Metaspace pre-tokenizer does."""
    steps = [*_steps(tokenizer_json, "normalizer"), *_steps(tokenizer_json, "pre_tokenizer")]
    spaced = any(step.get("type") == "Metaspace" and step.get("prepend_scheme") != "never" for step in steps)
    return spaced or any(step.get("type") == "Prepend" for step in steps)


def _steps(tokenizer_json: Mapping[str, Any], part: str) -> Iterator[Mapping[str, Any]]:
    whole = tokenizer_json.get(part) or {}
    yield whole
    yield from whole.get(f"{part.replace('_', '')}s", [])


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
