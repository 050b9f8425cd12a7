"""Text from files, made harmless for a terminal and a log: nothing in it moves a cursor, sets a title or hides."""

from __future__ import annotations

LONGEST = 1000
PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"} | {0x7F: 0x2421}
"""A terminal obeys control characters, and a model may say any: there they are shown as pictures of themselves."""
PICTURES |= dict.fromkeys(range(0x80, 0xA0), 0xFFFD)


def harmless(text: str) -> str:
    """`text` for a terminal: in its own lines and letters, with control characters shown, not obeyed."""
    return text.translate(PICTURES)


def printable(text: str) -> str:
    """`text` with everything that isn't printable (controls, escapes, direction marks, line ends) as an escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def shortened(text: str, longest: int = LONGEST) -> str:
    """`text`, of a long one its beginning and end and how long it is."""
    if len(text) <= longest:
        return text
    kept = longest * 3 // 4
    return f"{text[:kept]}... ({len(text)} characters) ...{text[kept - longest :]}"


def plain(text: str, longest: int = LONGEST) -> str:
    """`text` as one printable line of bounded length: what an error says of a file's contents goes through this."""
    return shortened(printable(shortened(text, longest)), longest)


def quoted(text: str, longest: int = 80) -> str:
    """`text` in quotation marks, cut."""
    return repr(text) if len(text) <= longest else f"{text[:longest]!r}... ({len(text)} characters)"
