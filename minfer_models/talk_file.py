"""Conversations in files: one JSON object, versioned, written whole or not at all, checked before it counts."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from minfer_models.talk import ConversationError, Talk
from minfer_models.text_files import write_text

FORMAT: Final = "minfer conversation"
VERSION: Final = 2
"""2 has keep_thinking; in files of version 1 there's none to keep."""
MOST_BYTES: Final = 1 << 28
"""Of a file: far above the text of the longest context."""
NAMES: Final = tuple(field.name for field in fields(Talk))


def save_talk(path: Path, talk: Talk, model: str) -> None:
    """Write the conversation; what was at `path` stays when that fails. `model` is for the reader's eyes.

    Raises OSError, ConversationError for text that isn't Unicode.
    """
    entries = {"format": FORMAT, "version": VERSION, "model": model} | {name: getattr(talk, name) for name in NAMES}
    entries["sampling"] = _sampling_as_json(talk.sampling)
    text = json.dumps(entries, ensure_ascii=False, indent=1, allow_nan=False) + "\n"
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConversationError(
            f"the conversation has a lone surrogate, U+{ord(text[error.start]):04X}: it can't be saved"
        ) from None
    write_text(path, text, option="")


def load_talk(path: Path) -> Talk:
    """Read a conversation. Raises ConversationError, with the place, for what isn't one that can go on; OSError."""
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ConversationError(f"{path} has more than {MOST_BYTES >> 20} MiB: it is no conversation")
    entries = _object(path, data)
    _check_version(path, entries)
    if entries["version"] == 1:
        entries = {"keep_thinking": False, **entries}
    given = entries.keys() - {"format", "version", "model"}
    if given != set(NAMES):
        odd = ", ".join(sorted(given ^ set(NAMES)))
        what = "lacks" if set(NAMES) - given else "has unknown entries:"
        raise ConversationError(f"{path} {what} {odd}: it was written by another program, or damaged")
    try:
        return Talk(**{name: _entry(name, entries[name]) for name in NAMES})
    except ValueError as error:
        raise ConversationError(f"{path}: {error}") from None


def _object(path: Path, data: bytes) -> Mapping[str, Any]:
    try:
        text = data.decode("utf-8")
        entries = json.loads(text, parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_no_duplicates)
    except UnicodeDecodeError as error:
        raise ConversationError(f"{path} isn't UTF-8: {error.reason} at byte {error.start}") from None
    except RecursionError:
        raise ConversationError(f"{path} is nested too deeply to be a conversation") from None
    except ValueError as error:
        raise ConversationError(f"{path} isn't JSON: {error}") from None
    if not isinstance(entries, dict) or entries.get("format") != FORMAT:
        raise ConversationError(f'{path} holds no conversation of minfer: no "format": "{FORMAT}"')
    return entries


def _check_version(path: Path, entries: Mapping[str, Any]) -> None:
    version = entries.get("version")
    if type(version) is not int or version < 1:
        raise ConversationError(f"{path}: version is {version!r}, not a whole number from 1")
    if version > VERSION:
        raise ConversationError(f"{path} has version {version}, newer than the {VERSION} that this minfer reads")


def _entry(name: str, value: Any) -> Any:
    """Lists as the tuples that a Talk has. Raises ConversationError for anything else in their place."""
    if name == "tools" and value is None:
        return None
    if name == "sampling" and isinstance(value, dict):
        return _sampling_from_json(value)
    if name not in ("messages", "tools", "stop"):
        return value
    if not isinstance(value, list):
        raise ConversationError(f"{name} is a {type(value).__name__}, not a list")
    return tuple(value)


def _sampling_as_json(sampling: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has neither numbers as keys nor -inf, which bars a token."""
    biases = sampling.get("logit_bias")
    if not biases:
        return dict(sampling)
    written = {str(token): "-inf" if bias == -math.inf else bias for token, bias in biases.items()}
    return {**sampling, "logit_bias": written}


def _sampling_from_json(sampling: dict[str, Any]) -> dict[str, Any]:
    biases = sampling.get("logit_bias")
    if not isinstance(biases, dict):
        return sampling
    read = {int(token): -math.inf if bias == "-inf" else bias for token, bias in biases.items()}
    return {**sampling, "logit_bias": read}


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text} is no number that can be held")
    return value


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    for name, value in pairs:
        if name in entries:
            raise ValueError(f"{name!r} stands twice in one object")
        entries[name] = value
    return entries
