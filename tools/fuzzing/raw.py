"""Mutations of bytes: flips, sets, extreme numbers over fields, cuts, insertions, pieces of other files."""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random

from tools.fuzzing.document import Span

INTERESTING = (0, 1, 0x7F, 0x80, 0xFF, 0x1B, 0x0A, 0x20)
WORDS = (
    0,
    1,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x7C00,
    0x7E00,
    2**31 - 1,
    2**31,
    2**32 - 1,
    0x7F800000,
    0x7FC00000,
    2**63,
    2**64 - 1,
)


def cuts(spans: list[Span], size: int) -> list[int]:
    """Lengths to cut a file to: the start, middle and end of every field, in order, each once."""
    places = {p for span in spans for p in (span.start, (span.start + span.end) // 2, span.end, span.end - 1)}
    return sorted(p for p in places if 0 <= p < size)


def mutated(random: Random, content: bytes, spans: list[Span], other: bytes) -> tuple[str, bytes]:
    """Some damage to `content`, and its name; `other` is another file to take pieces from."""
    kind = random.choice(KINDS)
    return kind.__name__, kind(random, content, spans, other)


def bit_flips(random: Random, content: bytes, spans: list[Span], other: bytes) -> bytes:
    """One to eight flipped bits."""
    data = bytearray(content)
    for _ in range(random.choice((1, 1, 1, 2, 8))):
        place = _place(random, spans, len(data))
        data[place] ^= 1 << random.randrange(8)
    return bytes(data)


def bytes_set(random: Random, content: bytes, spans: list[Span], other: bytes) -> bytes:
    """One to four bytes set to extreme values."""
    data = bytearray(content)
    for _ in range(random.choice((1, 1, 2, 4))):
        data[_place(random, spans, len(data))] = random.choice(INTERESTING)
    return bytes(data)


def extreme_word(random: Random, content: bytes, spans: list[Span], other: bytes) -> bytes:
    """A field, or what begins with it, overwritten with an extreme number."""
    span = random.choice(spans)
    word, width = random.choice(WORDS), random.choice((2, 4, 8, span.end - span.start))
    raw = struct.pack("<Q", word)[: min(8, max(1, width))]
    return content[: span.start] + raw + content[span.start + len(raw) :]


def cut(random: Random, content: bytes, spans: list[Span], other: bytes) -> bytes:
    """A file that ends at a field's start, middle or end, or anywhere."""
    if random.random() < 0.3:
        return content[: random.randrange(len(content))]
    return content[: random.choice(cuts([random.choice(spans)], len(content)) or [0])]


def piece_out(random: Random, content: bytes, spans: list[Span], other: bytes) -> bytes:
    """A field, or a few bytes, left out: everything behind moves."""
    span = random.choice(spans)
    end = random.choice((span.end, span.start + 1, span.start + 8))
    return content[: span.start] + content[end:]


def piece_twice(random: Random, content: bytes, spans: list[Span], other: bytes) -> bytes:
    """A field a second time."""
    span = random.choice(spans)
    return content[: span.end] + content[span.start : span.end] * random.choice((1, 1, 2, 9)) + content[span.end :]


def noise_in(random: Random, content: bytes, spans: list[Span], other: bytes) -> bytes:
    """Random bytes where a field begins."""
    start = random.choice(spans).start
    return content[:start] + random.randbytes(random.choice((1, 2, 4, 8, 64))) + content[start:]


def piece_of_another(random: Random, content: bytes, spans: list[Span], other: bytes) -> bytes:
    """Bytes of another file over these."""
    start, length = random.choice(spans).start, random.choice((8, 64, 1024))
    origin = random.randrange(max(1, len(other) - length))
    return content[:start] + other[origin : origin + length] + content[start + length :]


def two_fields_changed_over(random: Random, content: bytes, spans: list[Span], other: bytes) -> bytes:
    """Two fields in each other's place."""
    a, b = sorted(random.sample(spans, 2), key=lambda span: span.start)
    if a.end > b.start:
        return content[: b.start]
    parts = (content[: a.start], content[b.start : b.end], content[a.end : b.start], content[a.start : a.end])
    return b"".join(parts) + content[b.end :]


Mutation = Callable[[Random, bytes, list[Span], bytes], bytes]
KINDS: tuple[Mutation, ...] = (
    bit_flips, bit_flips, bytes_set, extreme_word, extreme_word, cut, piece_out, piece_twice, noise_in,
    piece_of_another, two_fields_changed_over,
)  # fmt: skip


def _place(random: Random, spans: list[Span], size: int) -> int:
    """A byte of a random field, so that long arrays and weights don't take all of them; sometimes any byte."""
    if random.random() < 0.2:
        return random.randrange(size)
    span = random.choice(spans)
    return min(random.randrange(span.start, max(span.end, span.start + 1)), size - 1)
