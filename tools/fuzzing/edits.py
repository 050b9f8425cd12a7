"""Edits of single fields, listed: what may be wrong with every metadata key, every tensor info and the header."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tools.fuzzing.document import (
    ARRAY,
    BOOL,
    F32,
    F64,
    I32,
    INTEGERS,
    STRING,
    U8,
    U32,
    U64,
    WIDTHS,
    Document,
    Info,
    Key,
    array,
    items_of,
    scalar,
    text,
)
from tools.fuzzing.templates import TEMPLATES

TEMPLATE_KEY = b"tokenizer.chat_template"
EXTREMES = (0, 1, -1, 2, 3, 7, 127, 128, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**62, 2**63 - 1)
FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-45, 1e-38, 1e38, 1e300, float("inf"), float("-inf"), float("nan"), 0.5, 2.0**-149)
LENGTHS = (0, 1, 2**16, 2**31, 2**32, 2**61, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
DIMENSIONS = (0, 1, 2, 3, 31, 33, 63, 65, 2**16, 2**31, 2**32, 2**42 + 1, 2**61, 2**63 - 1, 2**63, 2**64 - 1)
OFFSETS = (1, 8, 16, 31, 32, 64, 2**20, 2**31, 2**32, 2**63 - 64, 2**63, 2**64 - 64, 2**64 - 32, 2**64 - 1)
TYPES = (*range(45), 99, 2**31, 2**32 - 1)
TEXTS = (
    "", " ", "\0", "a\0b", "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\r\n\n", "\u202eevil", "\u2028", "é" * 40, "none",
    "linear", "yarn", "gpt2", "llama", "bert", "default", "qwen2", "llama-bpe", "smollm", "tekken", "{{", "%s%n",
    "../../x", "x" * 70000,
)  # fmt: skip
BAD_UTF8 = (b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"ok\x80", b"\xc0\x80")
COUNTS = (0, 1, 2**16, 2**17, 2**32, 2**62, 2**63, 2**64 - 1)


@dataclass(frozen=True, slots=True)
class Edit:
    """A change with a name; `make` gives the changed document."""

    what: str
    make: Callable[[], Document]


def all_edits(document: Document) -> list[Edit]:
    """Every edit that is known of `document`, in a fixed order."""
    edits = list(_header_edits(document))
    for place in range(len(document.keys)):
        edits += key_edits(document, place)
    for place in range(len(document.infos)):
        edits += info_edits(document, place)
    edits += _order_edits(document)
    return edits


def key_edits(document: Document, place: int) -> Iterator[Edit]:
    """Edits of one metadata entry: its name, type and value, and of an array its elements."""
    key = document.keys[place]

    def edit(what: str, changed: Key) -> Edit:
        return Edit(f"{key.name[:60]!r} {what}", lambda: document.with_key(place, changed))

    yield Edit(f"{key.name!r} left out", lambda: replace(document, keys=_without(document.keys, place)))
    yield Edit(f"{key.name!r} twice", lambda: replace(document, keys=[*document.keys, key]))
    yield from (edit(f"name length {n}", replace(key, length=n)) for n in LENGTHS)
    yield from (edit(f"named {name[:20]!r}", replace(key, name=name)) for name in _names(key.name))
    yield from (edit(f"type id {kind}", replace(key, type=kind)) for kind in (*range(15), 2**31, 2**32 - 1))
    yield from (edit(what, Key(key.name, kind, payload)) for what, kind, payload in _values())
    if key.name == TEMPLATE_KEY:
        yield from (edit(f"template {i}", replace(key, payload=text(t))) for i, t in enumerate(TEMPLATES))
    if key.type == ARRAY:
        yield from (edit(what, replace(key, payload=payload)) for what, payload in _array_values(key.payload))


def info_edits(document: Document, place: int) -> Iterator[Edit]:
    """Edits of one tensor info: name, dimensions, type and offset."""
    info = document.infos[place]

    def edit(what: str, changed: Info) -> Edit:
        return Edit(f"tensor {info.name!r} {what}", lambda: document.with_info(place, changed))

    yield Edit(f"tensor {info.name!r} left out", lambda: replace(document, infos=_without(document.infos, place)))
    yield Edit(f"tensor {info.name!r} twice", lambda: replace(document, infos=[*document.infos, info]))
    yield from (edit(f"name length {n}", replace(info, length=n)) for n in LENGTHS)
    yield from (edit(f"named {name[:20]!r}", replace(info, name=name)) for name in _names(info.name))
    yield from (edit(f"n_dims {n}", replace(info, n_dims=n)) for n in (0, 1, 2, 3, 4, 5, 9, 10**6, 2**32 - 1))
    yield from (edit(f"type {kind}", replace(info, type=kind)) for kind in TYPES)
    yield from (edit(f"offset {n}", replace(info, offset=n)) for n in OFFSETS)
    yield from (edit(f"offset {n} further", replace(info, offset=info.offset + n)) for n in (-64, -32, -1, 1, 32))
    yield edit("transposed", replace(info, ne=info.ne[::-1]))
    yield edit("flat", replace(info, ne=(_product(info.ne),)))
    yield edit("with a fourth dimension", replace(info, ne=(*info.ne, 1, 1, 1)[:4]))
    yield edit("a scalar", replace(info, ne=()))
    for axis, size in enumerate(info.ne):
        for n in (*DIMENSIONS, size - 1, size + 1, size * 2, size // 2, size + 2**32):
            yield edit(f"dimension {axis} of {n}", replace(info, ne=(*info.ne[:axis], n, *info.ne[axis + 1 :])))


def _header_edits(document: Document) -> Iterator[Edit]:
    for magic in (b"FUGG", b"GGML", b"gguf", b"\0\0\0\0", b"PK\3\4"):
        yield Edit(f"magic {magic!r}", lambda magic=magic: replace(document, magic=magic))
    for version in (0, 1, 2, 4, 2**24, 3 << 24, 2**32 - 1):
        yield Edit(f"version {version}", lambda version=version: replace(document, version=version))
    n_keys, n_infos = len(document.keys), len(document.infos)
    for n in (*COUNTS, n_keys - 1, n_keys + 1):
        yield Edit(f"{n} keys declared", lambda n=n: replace(document, n_keys=n))
    for n in (*COUNTS, n_infos - 1, n_infos + 1):
        yield Edit(f"{n} tensors declared", lambda n=n: replace(document, n_infos=n))
    for alignment in (0, 1, 2, 4, 8, 16, 24, 64, 4096, 2**20, 2**21, 2**31):
        key = Key(b"general.alignment", U32, scalar(U32, alignment))
        yield Edit(f"alignment {alignment} stated", lambda k=key: _stated(document, k, document.alignment))
        yield Edit(f"alignment {alignment} kept", lambda k=key: _stated(document, k, None))


def _stated(document: Document, key: Key, pad_to: int | None) -> Document:
    others = [k for k in document.keys if k.name != key.name]
    return replace(document, keys=[*others, key], pad_to=pad_to)


def _order_edits(document: Document) -> Iterator[Edit]:
    yield Edit("keys reversed", lambda: replace(document, keys=document.keys[::-1]))
    yield Edit("tensors reversed", lambda: replace(document, infos=document.infos[::-1]))
    yield Edit("no keys", lambda: replace(document, keys=[]))
    yield Edit("no tensors", lambda: replace(document, infos=[]))
    for i in range(len(document.infos) - 1):
        yield Edit(f"tensors {i} and {i + 1} in each other's place", lambda i=i: _swapped(document, i))
    extra = [Key(f"x.{i}".encode(), U8, b"\1") for i in range(3000)]
    yield Edit("3000 more keys", lambda: replace(document, keys=[*document.keys, *extra]))
    yield Edit("a tensor more", lambda: replace(document, infos=[*document.infos, Info(b"more", (1,), 24, 1 << 16)]))


def _swapped(document: Document, i: int) -> Document:
    a, b = document.infos[i], document.infos[i + 1]
    return document.with_info(i, replace(a, offset=b.offset)).with_info(i + 1, replace(b, offset=a.offset))


def _names(name: bytes) -> tuple[bytes, ...]:
    return (b"", name + b"x", name[:-1], name.upper(), b"\x1b[2J" + name, b"\xff" + name, name + b"\0", b"n" * 64)


def _values() -> Iterator[tuple[str, int, bytes]]:
    """Values of every type, extreme ones among them: what, value type, payload."""
    for kind in INTEGERS:
        for n in EXTREMES[: 8 if WIDTHS[kind] == 1 else None]:
            yield f"type {kind} = {n}", kind, scalar(kind, n)
    for kind in (F32, F64):
        yield from ((f"type {kind} = {x}", kind, scalar(kind, x)) for x in FLOATS)
    yield from ((f"a bool of {raw}", BOOL, bytes([raw])) for raw in (0, 1, 2, 255))
    yield from ((f"text {t[:12]!r}", STRING, text(t)) for t in TEXTS)
    yield from ((f"bytes {raw!r}", STRING, text(raw)) for raw in BAD_UTF8)
    yield from ((f"text of length {n}", STRING, text("abc", n)) for n in LENGTHS)
    for element in (*range(13), 13, 2**31):
        yield f"an empty array of type {element}", ARRAY, array(element, [])
        width = WIDTHS.get(element, 8)
        yield f"two zeros of type {element}", ARRAY, array(element, [bytes(width)] * 2)
    yield from ((f"{n} elements declared", ARRAY, array(U8, [b"\1"], n)) for n in LENGTHS)
    yield from ((f"{n} strings declared", ARRAY, array(STRING, [text("a")], n)) for n in LENGTHS)
    yield "nested arrays", ARRAY, struct.pack("<IQ", ARRAY, 1) * 1000


def _array_values(payload: bytes) -> Iterator[tuple[str, bytes]]:
    """Other lengths, orders and elements of an array."""
    element, items = items_of(payload)
    n = len(items)
    for what, changed in (
        ("empty", []), ("one element", items[:1]), ("half", items[: n // 2]), ("one less", items[:-1]),
        ("one more", [*items, *items[:1]]), ("twice", items * 2), ("reversed", items[::-1]),
        ("all the same", items[:1] * n), ("the last one first", [*items[-1:], *items[:-1]]),
    ):  # fmt: skip
        yield what, array(element, changed)
    yield from ((f"count {count}", array(element, items, count)) for count in (n - 1, n + 1, *LENGTHS))
    strange = [*map(text, (*TEXTS, "a b c", " a", "<0xZZ>", "<|im_end|>", "Ġ" * 300)), *map(text, BAD_UTF8)]
    numbers = (
        [scalar(element, x) for x in (*EXTREMES, *FLOATS[4:11] * (element in (F32, F64)))] if element in WIDTHS else []
    )
    for place in sorted({0, n // 2, n - 1} & set(range(n))):
        for i, item in enumerate(strange if element == STRING else numbers):
            yield f"element {place} strange {i}", array(element, [*items[:place], item, *items[place + 1 :]])
    for other in (STRING, I32, U32, F32, U64, BOOL):
        filler = text("1") if other == STRING else scalar(other, 1)
        yield f"elements of type {other}", array(other, [filler] * n)


def _without(items: list[Any], place: int) -> list[Any]:
    return [*items[:place], *items[place + 1 :]]


def _product(ne: tuple[int, ...]) -> int:
    total = 1
    for n in ne:
        total *= n
    return total
