"""A GGUF file taken apart into fields that can be edited one by one, and put together again.

It knows the format from the specification alone (ggml/docs/gguf.md) and shares no code with the reader that it tests:
`parse` of a file that the reader accepts is a second opinion on what is in it. It checks nothing but bounds.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
WIDTHS = {U8: 1, I8: 1, U16: 2, I16: 2, U32: 4, I32: 4, F32: 4, BOOL: 1, U64: 8, I64: 8, F64: 8}
INTEGERS = (U8, I8, U16, I16, U32, I32, U64, I64)
_CODES = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q", I64: "q", F64: "d"}
ALIGNMENT = b"general.alignment"


class DocumentError(ValueError):
    """Bytes that are no GGUF file, or one that is cut off."""


@dataclass(frozen=True, slots=True)
class Span:
    """A field of the file: bytes `start` to `end`, and what they are."""

    start: int
    end: int
    what: str


@dataclass(frozen=True, slots=True)
class Key:
    """A metadata entry. `payload` are the bytes behind the value type; `length` replaces the name's own."""

    name: bytes
    type: int
    payload: bytes
    length: int | None = None

    def encoded(self) -> bytes:
        """As it stands in a file."""
        return _string(self.name, self.length) + struct.pack("<I", self.type & 0xFFFFFFFF) + self.payload


@dataclass(frozen=True, slots=True)
class Info:
    """A tensor info; `ne` in GGUF order. `n_dims` and `length` replace the true counts."""

    name: bytes
    ne: tuple[int, ...]
    type: int
    offset: int
    n_dims: int | None = None
    length: int | None = None

    def encoded(self) -> bytes:
        """As it stands in a file."""
        n_dims = len(self.ne) if self.n_dims is None else self.n_dims
        dims = b"".join(_u64(n) for n in self.ne)
        return _string(self.name, self.length) + _u32(n_dims) + dims + _u32(self.type) + _u64(self.offset)


@dataclass(frozen=True, slots=True)
class Document:
    """A whole file; `n_keys` and `n_infos` replace the true counts in the header."""

    keys: list[Key]
    infos: list[Info]
    data: bytes
    magic: bytes = b"GGUF"
    version: int = 3
    n_keys: int | None = None
    n_infos: int | None = None
    pad_to: int | None = None
    spans: list[Span] = field(default_factory=list, compare=False)

    @property
    def alignment(self) -> int:
        """What the file says, or the default."""
        return self.pad_to or next((alignment_of(key) for key in self.keys if key.name == ALIGNMENT), 32)

    def head(self) -> bytes:
        """Everything before the tensor data, padding included."""
        n_infos = len(self.infos) if self.n_infos is None else self.n_infos
        n_keys = len(self.keys) if self.n_keys is None else self.n_keys
        parts = [self.magic, _u32(self.version), _u64(n_infos), _u64(n_keys)]
        parts += [entry.encoded() for entry in (*self.keys, *self.infos)]
        head = b"".join(parts)
        return head + bytes(-len(head) % self.alignment) if self.infos else head

    def encoded(self) -> bytes:
        """The bytes of the file."""
        return self.head() + self.data

    def key(self, name: str) -> int | None:
        """The place of a key among `keys`."""
        return next((i for i, key in enumerate(self.keys) if key.name == name.encode()), None)

    def with_key(self, place: int, key: Key) -> Document:
        """With another key in this place."""
        return replace(self, keys=[*self.keys[:place], key, *self.keys[place + 1 :]])

    def with_info(self, place: int, info: Info) -> Document:
        """With another tensor info in this place."""
        return replace(self, infos=[*self.infos[:place], info, *self.infos[place + 1 :]])


def alignment_of(key: Key) -> int:
    """A power of two to pad with, whatever the key holds."""
    value = int.from_bytes(key.payload[:4], "little") if key.type == U32 else 32
    return value if value and value & (value - 1) == 0 and value <= 1 << 20 else 32


def scalar(kind: int, value: float) -> bytes:
    """A number as a value of type `kind`, wrapped into its width."""
    if kind in (F32, F64):
        try:
            return struct.pack(f"<{_CODES[kind]}", value)
        except OverflowError:
            return struct.pack(f"<{_CODES[kind]}", float("inf"))
    return (int(value) & (1 << 8 * WIDTHS[kind]) - 1).to_bytes(WIDTHS[kind], "little")


def number(kind: int, payload: bytes) -> int | float:
    """The inverse of `scalar`."""
    return struct.unpack(f"<{_CODES[kind]}", payload)[0]


def text(value: str | bytes, length: int | None = None) -> bytes:
    """A STRING's payload; `length` replaces the true one."""
    return _string(value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value, length)


def array(element: int, items: list[bytes], count: int | None = None) -> bytes:
    """An ARRAY's payload; `count` replaces the true one."""
    return _u32(element) + _u64(len(items) if count is None else count) + b"".join(items)


def items_of(payload: bytes) -> tuple[int, list[bytes]]:
    """Element type and encoded elements of an ARRAY's payload."""
    element, count = struct.unpack_from("<IQ", payload)
    if element == STRING:
        walk = _Walk(payload, 12)
        return element, [_string(walk.string("an element")) for _ in range(count)]
    width = WIDTHS[element]
    return element, [payload[at : at + width] for at in range(12, 12 + count * width, width)]


def parse(content: bytes) -> Document:
    """Take a file apart; raises DocumentError where it is cut off or has no such structure."""
    walk = _Walk(content)
    magic, version = walk.take(4, "the magic"), walk.u32("the version")
    n_infos, n_keys = walk.u64("the tensor count"), walk.u64("the key count")
    keys = [walk.key() for _ in walk.times(n_keys, 13)]
    infos = [walk.info() for _ in walk.times(n_infos, 24)]
    parsed = Document(keys, infos, b"", magic, version, spans=walk.spans)
    start = -(-walk.pos // parsed.alignment) * parsed.alignment if infos else walk.pos
    walk.spans += [Span(walk.pos, start, "the padding")]
    walk.spans += [Span(start + i.offset, start + i.offset + 64, f"data of {i.name!r}") for i in infos]
    return replace(parsed, data=content[start:])


class _Walk:
    """Reads fields and remembers where they lie."""

    def __init__(self, content: bytes, pos: int = 0) -> None:
        self.content, self.pos = content, pos
        self.spans: list[Span] = []

    def take(self, n: int, what: str) -> bytes:
        if n > len(self.content) - self.pos:
            raise DocumentError(f"{what} ends at {self.pos + n}, the file at {len(self.content)}")
        taken = self.content[self.pos : self.pos + n]
        self.spans.append(Span(self.pos, self.pos + n, what))
        self.pos += n
        return taken

    def times(self, count: int, least: int) -> Iterator[int]:
        if count * least > len(self.content) - self.pos:
            raise DocumentError(f"{count} entries in {len(self.content)} bytes")
        yield from range(count)

    def u32(self, what: str) -> int:
        return int.from_bytes(self.take(4, what), "little")

    def u64(self, what: str) -> int:
        return int.from_bytes(self.take(8, what), "little")

    def string(self, what: str) -> bytes:
        return self.take(self.u64(f"the length of {what}"), what)

    def key(self) -> Key:
        name = self.string("a key")
        kind = self.u32(f"the type of {name!r}")
        start, what = self.pos, f"the value of {name!r}"
        if kind == ARRAY:
            self._array(what)
        elif kind == STRING:
            self.string(what)
        elif kind in WIDTHS:
            self.take(WIDTHS[kind], what)
        else:
            raise DocumentError(f"{what} has type {kind}")
        return Key(name, kind, self.content[start : self.pos])

    def _array(self, what: str) -> None:
        element, count = self.u32(f"the element type of {what}"), self.u64(f"the count of {what}")
        if element == STRING:
            for _ in self.times(count, 8):
                self.string(f"an element of {what}")
        elif element in WIDTHS:
            self.take(count * WIDTHS[element], f"the elements of {what}")
        else:
            raise DocumentError(f"{what} has elements of type {element}")

    def info(self) -> Info:
        name = self.string("a tensor's name")
        n_dims = self.u32(f"n_dims of {name!r}")
        ne = tuple(self.u64(f"a dimension of {name!r}") for _ in self.times(n_dims, 8))
        return Info(name, ne, self.u32(f"the type of {name!r}"), self.u64(f"the offset of {name!r}"))


def _string(raw: bytes, length: int | None = None) -> bytes:
    return _u64(len(raw) if length is None else length) + raw


def _u32(value: int) -> bytes:
    return struct.pack("<I", value & 0xFFFFFFFF)


def _u64(value: int) -> bytes:
    return struct.pack("<Q", value & 0xFFFFFFFFFFFFFFFF)
