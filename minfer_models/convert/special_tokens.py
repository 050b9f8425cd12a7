"""Roles of tokens: which id begins a text, which ones end it, and whether they are added."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tokenizers

from minfer_models.convert.errors import ConvertError
from minfer_models.convert.folder import HFFolder

ROLES = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
"""Hugging Face's `<role>_token` and GGUF's `tokenizer.ggml.<role>_token_id`."""
_TOKENIZER_CONFIG = "tokenizer_config.json"


def role_ids(folder: HFFolder, ids: Mapping[str, int], n_vocab: int) -> dict[str, int]:
    """GGUF's role to id.

    tokenizer_config.json names tokens by their text, null for none; where it's silent, generation_config.json and
    config.json give ids. `ids` is text to id. Raises ConvertError for a text that is no token and an id out of range.
    """
    found: dict[str, int] = {}
    for theirs, ours in ROLES.items():
        key = f"{theirs}_token"
        if key in folder.tokenizer_config:
            text = _token_text(folder.tokenizer_config[key])
            if text is not None and text not in ids:
                raise ConvertError(f"is {text!r:.80}, which is no token", path=folder.path / _TOKENIZER_CONFIG, key=key)
            if text is not None:
                found[ours] = ids[text]
        else:
            stated = _stated_ids(folder, f"{key}_id", n_vocab)
            if stated:
                found[ours] = stated[0]
    return found


def end_ids(folder: HFFolder, n_vocab: int) -> list[int]:
    """The ids at which transformers' `generate` stops; raises ConvertError for what is no id."""
    return _stated_ids(folder, "eos_token_id", n_vocab)


def _stated_ids(folder: HFFolder, key: str, n_vocab: int) -> list[int]:
    """One id or a list of them; generation_config.json has the last word where it has one."""
    for name, config in (("generation_config.json", folder.generation), ("config.json", folder.config)):
        value = config.get(key)
        if value is None:
            continue
        listed = value if isinstance(value, list) else [value]
        for item in listed:
            if type(item) is not int or not 0 <= item < n_vocab:
                message = f"is {value!r:.80}: {item!r:.40} is no id of a vocabulary of {n_vocab} tokens"
                raise ConvertError(message, path=folder.path / name, key=key)
        return listed
    return []


def added_ends(folder: HFFolder, tokenizer: tokenizers.Tokenizer, roles: Mapping[str, int]) -> dict[str, bool]:
    """Whether a text gets a BOS before it and an EOS behind it.

    tokenizer_config.json may say so; else it's what the tokenizer does to a text.
    """
    plain = tokenizer.encode("a", add_special_tokens=False).ids
    ids = tokenizer.encode("a", add_special_tokens=True).ids
    at = next((i for i in range(len(ids)) if ids[i : i + len(plain)] == plain), None)
    if at is None:
        raise ConvertError(f"its post-processor makes {ids} of {plain}", path=folder.path / "tokenizer.json")
    before, after = ids[:at], ids[at + len(plain) :]
    found = {"bos": before, "eos": after}
    for role, extra in found.items():
        if extra not in ([], [roles.get(role)]):
            message = f"its post-processor adds {extra}, which aren't the {role.upper()} token"
            raise ConvertError(message, path=folder.path / "tokenizer.json", key="post_processor")
    return {role: _said(folder, f"add_{role}_token", bool(extra)) for role, extra in found.items()}


def _said(folder: HFFolder, key: str, default: bool) -> bool:
    value: Any = folder.tokenizer_config.get(key)
    if value is not None and not isinstance(value, bool):
        message = f"is {value!r:.80}, expected true or false"
        raise ConvertError(message, path=folder.path / _TOKENIZER_CONFIG, key=key)
    return default if value is None else value


def _token_text(value: Any) -> str | None:
    """A token is its text, an object with `content`, or null."""
    if isinstance(value, Mapping):
        value = value.get("content")
    return value if isinstance(value, str) else None
