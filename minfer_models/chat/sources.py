"""Where a model's chat template comes from: its metadata, the caller, or ChatML where the file has none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from minfer_models.chat.errors import ChatTemplateError
from minfer_models.tokenizer.vocab import END_NAMES, TOKENS_KEY, TYPES_KEY, TokenType

TEMPLATE_KEY: Final = "tokenizer.chat_template"
NAMES_KEY: Final = "tokenizer.chat_templates"
DEFAULT: Final = "default"
TOOL_USE: Final = "tool_use"
MOST_CHARACTERS: Final = 1 << 18
"""Of a template: the longest real ones have some 30,000. So many of the costliest kind compile in 2 s."""
CHATML_MARKERS: Final = ("<|im_start|>", "<|im_end|>")
CHATML: Final = (
    "{%- for message in messages %}\n"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}\n"
    "{{- '<|im_start|>assistant\\n' }}\n"
    "{%- endif %}\n"
)

Origin = Literal["model", "given", "chatml"]


@dataclass(frozen=True, slots=True)
class TemplateSources:
    """Template texts by name, `default` and others; `origin` says where they come from."""

    texts: Mapping[str, str]
    origin: Origin

    @classmethod
    def of(cls, meta: Mapping[str, object], given: str | Path | None = None) -> TemplateSources:
        """The templates of GGUF metadata, unless one is `given`: a file, the name of one of the model's, or a text.

        Raises ChatTemplateError for a file that cannot be read, a name that the model has not, a template that is no
        text, and a model without one whose vocabulary lacks ChatML's markers.
        """
        found = _in_metadata(meta)
        if given is not None:
            return _given(given, found)
        if found:
            return cls(found, "model")
        lacking = [marker for marker in CHATML_MARKERS if not _is_marker(meta, marker)]
        if lacking:
            raise ChatTemplateError(
                f"this model has no chat template ({TEMPLATE_KEY}), and its vocabulary has no token "
                f"{' or '.join(lacking)}, so ChatML can't be used either: give a template (--chat-template FILE), or a "
                "plain prompt"
            )
        return cls({DEFAULT: CHATML}, "chatml")


def _in_metadata(meta: Mapping[str, object]) -> dict[str, str]:
    """Name to text. `tokenizer.chat_template` is the default; others are `tokenizer.chat_template.NAME`."""
    keys = {DEFAULT: TEMPLATE_KEY} if meta.get(TEMPLATE_KEY) is not None else {}
    keys |= {name: f"{TEMPLATE_KEY}.{name}" for name in _names(meta) if name != DEFAULT}
    prefix = f"{TEMPLATE_KEY}."
    keys |= {key.removeprefix(prefix): key for key in meta if key.startswith(prefix)}
    return {name: _text(meta.get(key), key) for name, key in keys.items()}


def _names(meta: Mapping[str, object]) -> Sequence[Any]:
    names: Any = meta.get(NAMES_KEY, ())
    if isinstance(names, str) or not isinstance(names, Sequence) or not all(type(name) is str for name in names):
        raise ChatTemplateError(f"{NAMES_KEY} is {names!r}, not a list of names")
    return names


def _text(value: object, key: str) -> str:
    if value is None:
        raise ChatTemplateError(f"{NAMES_KEY} names a template that isn't there: {key}")
    if not isinstance(value, str):
        raise ChatTemplateError(f"{key} is a {type(value).__name__}, not a template")
    if len(value) > MOST_CHARACTERS:
        raise ChatTemplateError(f"{key} has {len(value)} characters, over the {MOST_CHARACTERS} of a template")
    return value


def _given(given: str | Path, found: Mapping[str, str]) -> TemplateSources:
    if isinstance(given, Path):
        return TemplateSources({DEFAULT: read_template(given)}, "given")
    if given in found:
        return TemplateSources({DEFAULT: found[given]}, "model")
    if "{" not in given:
        names = ", ".join(found) or "none"
        raise ChatTemplateError(f"{given!r} is neither a template nor the name of one; this model has {names}")
    return TemplateSources({DEFAULT: _text(given, "the given chat template")}, "given")


def read_template(path: Path) -> str:
    """The text of a template file. Raises ChatTemplateError for what isn't UTF-8 or far too long, OSError."""
    with path.open("rb") as file:
        data = file.read(4 * MOST_CHARACTERS + 1)
    try:
        return _text(data.decode("utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise ChatTemplateError(f"{path}: the template isn't UTF-8: {error.reason} at byte {error.start}") from None


def _is_marker(meta: Mapping[str, object], text: str) -> bool:
    """Whether the vocabulary has `text` as a token of its own that a template may write."""
    tokens: Any = meta.get(TOKENS_KEY, ())
    types: Any = meta.get(TYPES_KEY, ())
    try:
        index = list(tokens).index(text)
    except (ValueError, TypeError):
        return False
    own = {TokenType.CONTROL, TokenType.USER_DEFINED, TokenType.UNKNOWN}
    typed = isinstance(types, Sequence | np.ndarray) and index < len(types) and types[index] in own
    return typed or text in END_NAMES
