"""Which of the named pre-tokenizers a tokenizer.json has: told by what it does to a text, not by how it's written.

llama.cpp's converter hashes the ids of one text, so a retrained vocabulary is unknown to it. Cutting has nothing to do
with the vocabulary: here the pieces are compared.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from functools import cache
from typing import Any

import tokenizers

from minfer_models.tokenizer.pretokenizers import PRE_TOKENIZERS, PreTokenizer

_FRAGMENTS = (
    " ", "  ", "\t", "\n", "\r\n", "\n\n", "\u00a0", "\u3000", "\u200d", "\u0301", "0", "12", "3456", "½", "٣",
    "'s", "'LL", "'Re", "'", "'ſ", "Hello", "HELLOworld", " naïve", "нещо", "我想在", "한국어", "ᾼ", "ʰ", "กำ", "🦙",
    "👩\u200d👩\u200d👧", "!", "...", "=", "_", "-->", "<|", "/", "//\n", "%\r\n",
)  # fmt: skip
_SWEEP = 0x3100
"""Where characters are looked for: most scripts, spaces, digits and marks lie below; the fragments have ideographs."""
_EACH = 16
"""Characters of each Unicode category in the long probe: expressions tell apart categories, spaces and single ASCII."""


@cache
def short_probe() -> str:
    """Every fragment after every other."""
    return "".join(a + b for a in _FRAGMENTS for b in _FRAGMENTS)


@cache
def long_probe() -> str:
    """Latin-1, every space, and characters of every category, each between letters, spaces, digits and line ends."""
    chars = {chr(code) for code in range(1, 256)}
    of_category: dict[str, int] = {}
    for code in range(256, _SWEEP):
        char = chr(code)
        category = unicodedata.category(char)
        taken = of_category.get(category, 0)
        if category not in ("Cs", "Cn", "Co") and (taken < _EACH or char.isspace()):
            of_category[category] = taken + 1
            chars.add(char)
    return "".join(f"a{c}b {c} {c}1{c}\n{c}'{c} " for c in sorted(chars))


def name_of(tokenizer: tokenizers.Tokenizer, normalizer: Mapping[str, Any] | None, ignore_merges: bool) -> str | None:
    """The first name in `PRE_TOKENIZERS` that does what `tokenizer` does, or None.

    `normalizer` and `ignore_merges` are those of its tokenizer.json.
    """
    cutter = tokenizer.pre_tokenizer
    if cutter is None or (normalizer is not None and normalizer.get("type") != "NFC"):
        return None
    kinds: dict[PreTokenizer, str] = {}
    for name, kind in PRE_TOKENIZERS.items():
        if (kind.ignore_merges, kind.composes) == (ignore_merges, normalizer is not None):
            kinds.setdefault(kind, name)
    for probe in (short_probe(), long_probe()):
        wanted = cutter.pre_tokenize_str(probe)
        kinds = {kind: name for kind, name in kinds.items() if kind.build().pre_tokenize_str(probe) == wanted}
    return next(iter(kinds.values()), None)
