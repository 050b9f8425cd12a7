"""Many short random texts that lean on everything tokenizers treat differently, the same every run."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence

_SCRIPTS = [
    (0x41, 0x5A), (0x61, 0x7A), (0xC0, 0x24F), (0x370, 0x3FF), (0x400, 0x52F), (0x531, 0x587), (0x5D0, 0x5EA),
    (0x620, 0x64A), (0x905, 0x939), (0xE01, 0xE30), (0x10D0, 0x10FA), (0x1100, 0x11FF), (0x1E00, 0x1EFF),
    (0x3041, 0x30FE), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xFB00, 0xFB06), (0xFF21, 0xFF5A), (0x1D400, 0x1D7FF),
    (0x20000, 0x2A6DF),
]  # fmt: skip
_DIGITS = "0123456789" * 3 + "٠٣٩०५፩½¾²³⁹₀Ⅷⅻ㉈𝟘𝟡〇"
_SPACES = [" "] * 12 + list("\t\n\r\v\f\x1c\x1f\u0085\u00a0\u1680\u2003\u2028\u2029\u202f\u3000\u200b\u2581") + ["\r\n"]
_MARKS = "\u0300\u0301\u0308\u0327\u0323\u0345\u05b0\u064b\u093c\u0e34\u20dd\u3099\ufe0f\U0001e8d0"
_EMOJI = ["🦙", "😁", "👍🏽", "👩‍👩‍👧", "🏳️‍🌈", "🇩🇪🇫🇷", "❤️", "1️⃣", "☃", "🧑🏿‍🚀"]
_PUNCTUATION = [*"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~»—。，€™", "...", "--", "=>", "/*", "//"]
_CONTROLS = "\x00\x00\x00\x01\x07\x1b\x7f\x80\xad\u061c\u200e\u202e\u2066\ufeff\ufffd\uffff\ue000\U000e0061\U0010ffff"
_CONTRACTIONS = ["'s", "'T", "'re", "'VE", "'m", "'Ll", "'d", "'ſ", "’s", "''s", "'sx", "' s"]
_WORDS = [
    "Hello",
    " world",
    "naïve",
    "Việt",
    " нещо",
    "我想",
    "def ",
    "return",
    "İstanbul",
    "ﬁn",
    "ǅ",
    "ŉ",
    "ẞ",
    "K",
    "Å",
]


def random_texts(count: int, seed: int, markers: Sequence[str] = ()) -> list[str]:
    """Texts of 1 to 10 fragments; `markers` and cut or doubled ones among them."""
    draw = random.Random(seed)
    kinds = _kinds(draw, markers)
    return ["".join(draw.choice(kinds)() for _ in range(draw.randint(1, 10))) for _ in range(count)]


def _kinds(draw: random.Random, markers: Sequence[str]) -> list[Callable[[], str]]:
    def some(of: Sequence[str], most: int) -> str:
        return "".join(draw.choices(of, k=draw.randint(1, most)))

    def letters() -> str:
        low, high = draw.choice(_SCRIPTS)
        return "".join(chr(draw.randint(low, high)) for _ in range(draw.randint(1, 7)))

    def anything() -> str:
        code = draw.randrange(sys.maxunicode + 1 - 0x800)
        return chr(code if code < 0xD800 else code + 0x800)

    def marker() -> str:
        text = draw.choice(markers) if markers else "<|x|>"
        return draw.choice([text, text[1:], text[:-1], text + text, text.upper(), " " + text + " "])

    return [
        letters, letters, letters,
        lambda: some(_DIGITS, 8),
        lambda: some(_SPACES, 5),
        lambda: draw.choice(_SPACES) * draw.randint(1, 20),
        lambda: letters() + some(_MARKS, 4),
        lambda: some(_EMOJI, 3),
        lambda: some(_PUNCTUATION, 4),
        lambda: some(_CONTROLS, 2),
        lambda: draw.choice(_CONTRACTIONS),
        lambda: draw.choice(_WORDS),
        lambda: " " + letters(),
        anything,
        marker,
    ]  # fmt: skip
