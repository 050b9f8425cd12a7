"""The pre-tokenizers by the name a GGUF file gives in `tokenizer.ggml.pre`.

The names are llama.cpp's (`llama-vocab.cpp`). The expressions are those of the tokenizer.json that each name was made
for: they decide which ids a text becomes. llama.cpp adapts some to its own engine, which gives other ids for a few
texts. The expressions of one entry run in order, each on the pieces the one before left; text between matches is a
piece too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tokenizers import Regex, pre_tokenizers

from minfer_models.tokenizer.errors import TokenizerError

PRE_KEY: Final = "tokenizer.ggml.pre"

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_AFTER_DIGITS = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_QWEN2 = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{_AFTER_DIGITS}"
_LLAMA3 = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{_AFTER_DIGITS}"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_ONE_DIGIT = r"\p{N}"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """How text is cut before the merges run.

    `ignore_merges`: a piece that is itself in the vocabulary becomes that id, whatever the merges would make of it.
    `adds_bos`: the default where the file has no `tokenizer.ggml.add_bos_token`.
    `composes`: text is brought to Unicode's form NFC first.
    """

    expressions: tuple[str, ...]
    ignore_merges: bool = False
    adds_bos: bool = False
    composes: bool = False

    def build(self) -> pre_tokenizers.PreTokenizer:
        """The `tokenizers` object that cuts a text and maps its bytes to the byte-level alphabet."""
        splits = [pre_tokenizers.Split(Regex(expression), behavior="isolated") for expression in self.expressions]
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return pre_tokenizers.Sequence([*splits, byte_level])


_LLAMA3_NAMES = ("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2")
_DIGIT_NAMES = ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b")
_KINDS: Final = {
    ("qwen2", "deepseek-r1-qwen"): PreTokenizer((_QWEN2,), composes=True),
    ("megrez", "kormo"): PreTokenizer((_QWEN2,)),
    _LLAMA3_NAMES: PreTokenizer((_LLAMA3,), ignore_merges=True, adds_bos=True),
    ("smaug-bpe", "dbrx"): PreTokenizer((_LLAMA3,)),
    ("tekken",): PreTokenizer((_TEKKEN,), ignore_merges=True, adds_bos=True),
    _DIGIT_NAMES: PreTokenizer((_ONE_DIGIT, _GPT2)),
    ("gpt-2", "phi-2", "gigachat", "mellum"): PreTokenizer((_GPT2,)),
}
PRE_TOKENIZERS: Final = {name: kind for names, kind in _KINDS.items() for name in names}


def pre_tokenizer_from(meta: Mapping[str, object]) -> PreTokenizer:
    """The pre-tokenizer that the metadata names.

    Raises TokenizerError when the name is missing, "default" or unknown: another expression gives other ids, and
    the model then answers worse without any sign of it.
    """
    known = ", ".join(PRE_TOKENIZERS)
    name = meta.get(PRE_KEY)
    if name is None:
        raise TokenizerError(f"{PRE_KEY} is missing, so how to cut text is unknown; known names: {known}")
    if not isinstance(name, str) or name not in PRE_TOKENIZERS:
        raise TokenizerError(f"{PRE_KEY} is {name!r}, which names no known pre-tokenizer; known names: {known}")
    return PRE_TOKENIZERS[name]
