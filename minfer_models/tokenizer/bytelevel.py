"""GPT-2's reversible map between the 256 bytes and 256 printable characters (Radford et al. 2019, `encoder.py`)."""

from __future__ import annotations

import re
from typing import Final

HEX_TOKEN: Final = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_to_char() -> dict[int, str]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in set(printable)]
    table = {byte: chr(byte) for byte in printable}
    table.update({byte: chr(0x100 + rank) for rank, byte in enumerate(others)})
    return table


BYTE_TO_CHAR: Final = _byte_to_char()
CHAR_TO_BYTE: Final = {char: byte for byte, char in BYTE_TO_CHAR.items()}

# No UTF-8 text holds these, so a vocabulary may lack them and still write every text.
NEVER_IN_UTF8: Final = frozenset({0xC0, 0xC1, *range(0xF5, 0x100)})


def token_to_bytes(token: str) -> bytes:
    """The bytes a byte-level token stands for; text outside the alphabet stands for its own UTF-8."""
    try:
        return bytes(map(CHAR_TO_BYTE.__getitem__, token))
    except KeyError:
        return token.encode()


def hex_token_to_bytes(token: str) -> bytes:
    """The byte of a `<0xAB>` token (type BYTE); anything else is read as a byte-level token."""
    match = HEX_TOKEN.fullmatch(token)
    return bytes([int(match[1], 16)]) if match else token_to_bytes(token)
