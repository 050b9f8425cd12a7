"""tokenizer.json, checked for what the conversion takes from it, and as the `tokenizers` library runs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers

from minfer_models.convert.errors import ConvertError
from minfer_models.convert.folder import HFFolder
from minfer_models.convert.json_files import read_object

NAME = "tokenizer.json"
INSTEAD = ("tokenizer.model", "vocab.json")


@dataclass(frozen=True, slots=True)
class TokenizerFile:
    """The parsed file `path`; `spec` includes the added tokens that only tokenizer_config.json knows."""

    path: Path
    spec: Mapping[str, Any]
    runs: tokenizers.Tokenizer

    @property
    def model(self) -> Mapping[str, Any]:
        """Type, vocabulary and merges."""
        return self.spec["model"]

    @property
    def ids(self) -> dict[str, int]:
        """Text to id, added tokens included."""
        return self.model["vocab"] | {token["content"]: token["id"] for token in self.spec["added_tokens"]}


def read_tokenizer(folder: HFFolder, n_vocab: int) -> TokenizerFile:
    """The tokenizer of a model with `n_vocab` logits.

    Raises ConvertError for a folder without tokenizer.json, one that the library can't read, a model that isn't BPE,
    BPE with an option that GGUF doesn't express, two texts with one id, and an id beyond the logits.
    """
    path = folder.path / NAME
    if not path.exists():
        old = [name for name in INSTEAD if (folder.path / name).exists()]
        hint = f"; {old[0]} alone isn't read: let transformers load and save the tokenizer once" if old else ""
        raise ConvertError(f"is missing{hint}", path=path)
    spec = read_object(path)
    try:
        runs = tokenizers.Tokenizer.from_file(str(path))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # it raises nothing more specific, and panics with a type of its own
        raise ConvertError(f"the tokenizers library can't read it: {error}", path=path) from None
    _check_model(spec.get("model"), path)
    listed = _listed(spec, path)
    extra = [token for token in _configured(folder) if token["id"] not in {known["id"] for known in listed}]
    spec = {**spec, "added_tokens": listed + extra}
    _check_ids(spec, path, n_vocab)
    return TokenizerFile(path, spec, runs)


def _check_model(model: Any, path: Path) -> None:
    if not isinstance(model, dict) or model.get("type") != "BPE":
        kind = model.get("type") if isinstance(model, dict) else model
        raise ConvertError(f"is {kind!r:.40}; BPE converts", path=path, key="model.type")
    for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(key):
            raise ConvertError(f"is {model[key]!r:.40}, which GGUF doesn't express", path=path, key=f"model.{key}")
    if not isinstance(model.get("vocab"), dict):
        raise ConvertError("is no object of tokens and ids", path=path, key="model.vocab")
    if not isinstance(model.get("merges"), list) or not model["merges"]:
        raise ConvertError("is no list of merges", path=path, key="model.merges")


def _listed(spec: Mapping[str, Any], path: Path) -> list[dict[str, Any]]:
    """tokenizer.json's own added tokens."""
    listed = spec.get("added_tokens") or []
    if not isinstance(listed, list) or not all(_is_token(token) for token in listed):
        raise ConvertError("is no list of tokens with id and content", path=path, key="added_tokens")
    return [_whole(token) for token in listed]


def _configured(folder: HFFolder) -> list[dict[str, Any]]:
    """tokenizer_config.json's, which transformers adds when it loads the tokenizer."""
    path, key = folder.path / "tokenizer_config.json", "added_tokens_decoder"
    decoder: Any = folder.tokenizer_config.get(key) or {}
    if not isinstance(decoder, dict):
        raise ConvertError("is no object", path=path, key=key)
    tokens = [{**token, "id": int(i)} for i, token in decoder.items() if isinstance(token, dict) and i.isdecimal()]
    if len(tokens) < len(decoder) or not all(map(_is_token, tokens)):
        raise ConvertError("is no object of ids and tokens with content", path=path, key=key)
    return [_whole(token) for token in tokens]


def _is_token(token: Any) -> bool:
    return isinstance(token, dict) and isinstance(token.get("content"), str) and type(token.get("id")) is int


def _whole(token: Mapping[str, Any]) -> dict[str, Any]:
    return {"special": False, **token}


def _check_ids(spec: Mapping[str, Any], path: Path, n_vocab: int) -> None:
    texts: dict[int, str] = {}
    tokens = [*spec["model"]["vocab"].items(), *((token["content"], token["id"]) for token in spec["added_tokens"])]
    for text, i in tokens:
        if type(i) is not int or i < 0:
            raise ConvertError(f"{text!r:.80} has the id {i!r:.40}", path=path)
        if i >= n_vocab:
            raise ConvertError(f"{text!r:.80} has id {i}, but the embedding table has {n_vocab} rows", path=path)
        if texts.setdefault(i, text) != text:
            raise ConvertError(f"id {i} is both {texts[i]!r:.80} and {text!r:.80}", path=path)
