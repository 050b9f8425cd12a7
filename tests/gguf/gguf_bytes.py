"""GGUF bytes by hand, from the specification alone: valid or broken as a test likes."""

from __future__ import annotations

import struct

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
TENSOR_F32, TENSOR_F16, TENSOR_Q4_0, TENSOR_Q8_0, TENSOR_I8 = 0, 1, 2, 8, 24


def u32(n: int) -> bytes:
    return struct.pack("<I", n)


def u64(n: int) -> bytes:
    return struct.pack("<Q", n)


def string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return u64(len(raw)) + raw


def kv(key: str | bytes, value_type: int, payload: bytes) -> bytes:
    return string(key) + u32(value_type) + payload


def array(key: str, element: int, count: int, payload: bytes = b"") -> bytes:
    return kv(key, ARRAY, u32(element) + u64(count) + payload)


def info(name: str | bytes, ne: tuple[int, ...], type_id: int = TENSOR_F32, offset: int = 0) -> bytes:
    return string(name) + u32(len(ne)) + b"".join(map(u64, ne)) + u32(type_id) + u64(offset)


def prefix(n_tensors: int, n_kv: int, version: int = 3, magic: bytes = b"GGUF") -> bytes:
    return magic + u32(version) + u64(n_tensors) + u64(n_kv)


def build(
    kvs: list[bytes] | tuple[bytes, ...] = (),
    infos: list[bytes] | tuple[bytes, ...] = (),
    data: bytes = b"",
    *,
    version: int = 3,
    alignment: int = 32,
) -> bytes:
    """A file whose counts, padding and data are as given."""
    head = prefix(len(infos), len(kvs), version) + b"".join(kvs) + b"".join(infos)
    if infos:
        head += bytes(-len(head) % alignment)
    return head + data
