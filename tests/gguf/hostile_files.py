"""Broken and hostile files, each with the error it must give: bytes, length on disk, and a pattern for the message."""

from __future__ import annotations

from dataclasses import dataclass

from gguf_bytes import (
    ARRAY,
    BOOL,
    F32,
    I32,
    STRING,
    TENSOR_F16,
    TENSOR_F32,
    TENSOR_I8,
    TENSOR_Q4_0,
    U8,
    U16,
    U32,
    U64,
    array,
    build,
    info,
    kv,
    prefix,
    string,
    u32,
    u64,
)

HUGE = 2**63 - 1
ALL_ONES = 2**64 - 1
GIB = 1 << 30


@dataclass(frozen=True)
class Hostile:
    content: bytes
    error: str
    length: int | None = None  # of the file; the rest is a hole of zeros

    @property
    def size(self) -> int:
        return len(self.content) if self.length is None else self.length


def _one(content: bytes, error: str, length: int | None = None) -> Hostile:
    return Hostile(content, error, length)


def _tensor(ne: tuple[int, ...], error: str, type_id: int = TENSOR_F32, offset: int = 0, data: bytes = b"") -> Hostile:
    return Hostile(build([], [info("t", ne, type_id, offset)], data), error)


def _key(payload: bytes, error: str, length: int | None = None) -> Hostile:
    return Hostile(prefix(0, 1) + payload, error, length)


def _alignment(value_type: int, payload: bytes, error: str) -> Hostile:
    content = build([kv("general.alignment", value_type, payload)], [info("t", (8,))], bytes(32))
    return Hostile(content, f"key 'general.alignment': {error}")


def dimension_counts() -> dict[str, Hostile]:
    return {
        f"n_dims={n}": _one(prefix(1, 0) + string("t") + u32(n), f"tensor 't': {n} dimensions, more than 4")
        for n in (5, 9, 1_000_000, 0xFFFFFFFF)
    }


def sizes() -> dict[str, Hostile]:
    short = "file is shorter than declared by {} bytes"
    return {
        "product -2 as int64": _tensor((HUGE, 2), "18446744073709551614 bytes at data offset 0", TENSOR_I8),
        "four dims of 2^31-1": _tensor((2**31 - 1,) * 4, f"{(2**31 - 1) ** 4} bytes", TENSOR_I8),
        "a patched row count": _tensor((64, 2**42 + 1), short.format((2**42 + 1) * 256 - 64), data=bytes(64)),
        "product 0 as u64": _tensor((2**32, 2**32), f"{2**66} bytes at data offset 0"),
        "2^64-1 rows of 2": _tensor((ALL_ONES, 2), f"dimension 0 is {ALL_ONES}"),
        "wraps to 4 MiB": _tensor((2**20, 2**42 + 1), f"{2**64 + 2**22} bytes", data=bytes(2**22)),
        "padding wraps": _tensor((2**32 - 1, 2**32 + 1), f"{2**64 - 1} bytes", TENSOR_I8),
        "just below 2^63": _tensor((HUGE - 96,), short.format(HUGE - 96), TENSOR_I8),
        "zero dimension": _tensor((4, 0), "tensor 't': dimension 1 is 0"),
        "first dimension zero": _tensor((0,), "tensor 't': dimension 0 is 0"),
        "negative dims": _tensor((ALL_ONES,) * 4, f"tensor 't': dimension 0 is {ALL_ONES}"),
        "negative last dim": _tensor((1, 1, 1, 2**63), f"tensor 't': dimension 3 is {2**63}"),
        "partial block": _tensor(
            (33,), "rows of 33 elements are not whole Q4_0 blocks of 32", TENSOR_Q4_0, 0, bytes(64)
        ),
        "1 GiB declared in 64 bytes": _tensor(
            (GIB // 2,),
            f"'t': its {GIB} bytes at data offset 0 do not fit in the 64 bytes .* a file of 128 bytes: file is shorter "
            f"than declared by {GIB - 64} bytes",
            TENSOR_F16,
            0,
            bytes(64),
        ),
        "one byte short": _tensor((16,), short.format(1), data=bytes(63)),
        "ends inside the padding": _tensor(
            (5,), "ends inside the padding .* shorter than declared by 9 ", data=bytes(23)
        ),
        "no data": _tensor((8,), short.format(32)),
    }


def offsets() -> dict[str, Hostile]:
    two = [info("a", (3,), TENSOR_I8, 0), info("b", (3,), TENSOR_I8, 3)]
    half = 0x7FFFFFFFFFFFFFC0
    huge = [info("a", (half,), TENSOR_I8, 0), info("b", (half,), TENSOR_I8, half)]
    over = [info("a", (16,)), info("b", (8,), TENSOR_F32, 32)]
    same = [info("a", (8,)), info("b", (8,))]
    return {
        "offset 2^64-1": _tensor((8,), f"32 bytes at data offset {ALL_ONES}", offset=ALL_ONES, data=bytes(32)),
        "offset 2^64-32": _tensor((8,), f"data offset {2**64 - 32}", offset=2**64 - 32, data=bytes(32)),
        "offset past the end": _tensor((8,), "at data offset 64 do not fit in the 64 bytes", offset=64, data=bytes(64)),
        "unaligned offset": _tensor(
            (8,), "data offset 8 is not a multiple of the alignment 32", offset=8, data=bytes(64)
        ),
        "offsets for alignment 1": _one(
            build([], two, bytes(64)), "'b': data offset 3 is not a multiple of the alignment"
        ),
        "two tensors whose sum wraps": _one(
            build([], huge, bytes(64)), f"'a'.*{half} bytes at data offset 0.* fits in no file"
        ),
        "overlap": _one(
            build([], over, bytes(64)), "'b': its bytes from 128 overlap tensor 'a', which has bytes 96 to 160"
        ),
        "the same bytes": _one(build([], same, bytes(64)), "'b': its bytes from 96 overlap tensor 'a'"),
    }


def strings() -> dict[str, Hostile]:
    left = bytes(20)
    value = string("k") + u32(STRING)
    cases = {}
    for n in (2**63, ALL_ONES, 2**30):
        cases[f"key of {n}"] = _key(
            u64(n) + left, f"the name of key 0 needs {n} bytes, but 20 are left.*\\(at byte 32\\)"
        )
        cases[f"value of {n}"] = _key(value + u64(n) + left, f"key 'k': the value needs {n} bytes, but 20 are left")
    cases["tensor name of 2^64-1"] = _one(prefix(1, 0) + u64(ALL_ONES) + bytes(25), "the name of tensor 0 needs")
    cases["empty key"] = _key(kv("", U8, b"\1") + left, "the name of key 0 has 0 bytes, not 1 to 65535")
    cases["empty tensor name"] = _one(build([], [info("", (8,))], bytes(32)), "the name of tensor 0 has 0 bytes")
    long_key = kv("k" * 65536, U8, b"\1")
    cases["key of 65536"] = _key(long_key, "the name of key 0 has 65536 bytes, not 1 to 65535")
    for n in (64, 100):
        content = build([], [info("x" * n, (8,))], bytes(32))
        cases[f"tensor name of {n}"] = _one(content, f"the name of tensor 0 has {n} bytes, not 1 to 63")
    cases["tensor name of 32 two-byte letters"] = _one(build([], [info("é" * 32, (8,))], bytes(32)), "has 64 bytes")
    cases["key not UTF-8"] = _key(kv(b"k\xff", U8, b"\1"), "the name of key 0 is not valid UTF-8 .*at byte 24")
    cases["value not UTF-8"] = _key(kv("k", STRING, string(b"\xc3")), "key 'k': the value is not valid UTF-8")
    cases["surrogate"] = _key(kv("k", STRING, string(b"\xed\xa0\x80")), "key 'k': the value is not valid UTF-8")
    cases["tensor name not UTF-8"] = _one(build([], [info(b"\x80", (8,))], bytes(32)), "tensor 0 is not valid UTF-8")
    elements = string("a") + string(b"\xff")
    cases["element not UTF-8"] = _key(
        array("k", STRING, 2, elements), "key 'k': string 1 of the array is not valid UTF-8"
    )
    return cases


def arrays() -> dict[str, Hostile]:
    return {
        "u8 array of 2^63": _key(
            array("k", U8, 2**63), rf"'k': the array \({2**63} elements\) needs {2**63} bytes, but 0 are"
        ),
        "string array of 2^60": _key(
            array("k", STRING, 2**60), rf"'k': the array \({2**60} strings\) needs {2**63} bytes"
        ),
        "array of 2^64 / 64": _key(
            array("k", U64, 2**58, bytes(64)), rf"\({2**58} elements\) needs {2**61} bytes, but 64 "
        ),
        "array bytes wrap to 0": _key(array("k", U64, 2**61, bytes(64)), f"needs {2**64} bytes, but 64 are left"),
        "array of 2^64-1": _key(array("k", BOOL, ALL_ONES, bytes(64)), f"needs {ALL_ONES} bytes, but 64 are left"),
        "u8 array past a large file": _key(array("k", U8, 2**31), f"needs {2**31} bytes", GIB),
        "strings enough for a large file": _key(
            array("k", STRING, 2**27 - 8), "an array of .* strings; minfer accepts", GIB
        ),
        "a long element": _key(
            array("k", STRING, 2, string("a") + u64(2**50)), f"string 1 of the array needs {2**50} bytes"
        ),
        "no room for an element": _key(
            array("k", STRING, 2, string("abcdefgh")), "length of string 1 of the array needs 8 byt"
        ),
        "strings in two arrays": _one(
            prefix(0, 2) + array("k", STRING, 8, bytes(64)) + array("j", STRING, 2**21 - 7),
            "key 'j': an array of 2097145 strings; minfer accepts up to 2097152 in all arrays",
            GIB,
        ),
        "nested array": _key(array("k", ARRAY, 1, u32(U8) + u64(1) + b"\1"), "key 'k': an array of arrays"),
        "bool of 2": _key(kv("k", BOOL, b"\2"), "key 'k': a BOOL holds 2, not 0 or 1"),
        "bool array with a 255": _key(
            array("k", BOOL, 3, b"\0\1\xff"), "key 'k': an array of BOOL holds values other than"
        ),
        "unknown element type": _key(array("k", 13, 1, b"\1"), "key 'k': the array's element type is 13, not 0 to 12"),
        "unknown value type": _key(kv("k", 13, b"\1"), "key 'k': the value type is 13, not 0 to 12 .at byte 33"),
        "value type 2^32-1": _key(kv("k", 2**32 - 1, b"\1"), "the value type is 4294967295, not 0 to 12"),
    }


def alignments() -> dict[str, Hostile]:
    cases = {
        f"alignment {n}": _alignment(U32, u32(n), f"alignment {n} is not a power of two from 1 to 1048576")
        for n in (0, 3, 13, 2**21, 2**30, 2**31, 2**32 - 1)
    }
    cases["alignment as INT32"] = _alignment(I32, u32(32), "must be UINT32, found INT32 '32'")
    cases["alignment as UINT16"] = _alignment(U16, b"\x20\0", "must be UINT32, found UINT16 '32'")
    cases["alignment as UINT64"] = _alignment(U64, u64(32), "must be UINT32, found UINT64 '32'")
    cases["alignment as STRING"] = _alignment(STRING, string("32"), "must be UINT32, found STRING '32'")
    cases["alignment as ARRAY"] = _alignment(
        ARRAY, u32(U32) + u64(1) + u32(32), "must be UINT32, found ARRAY of UINT32"
    )
    return cases


def duplicates() -> dict[str, Hostile]:
    tensors = [info("a", (8,)), info("b", (8,), offset=32), info("a", (8,), offset=64)]
    keys = [kv("k", U8, b"\1"), kv("j", U8, b"\1"), kv("k", F32, bytes(4))]
    return {
        "two tensors of a name": _one(build([], tensors, bytes(96)), "tensor 'a': appears twice, first at byte 24 "),
        "two keys of a name": _one(build(keys), "key 'k': appears twice, first at byte 24 .at byte 52"),
    }


def headers() -> dict[str, Hostile]:
    big_endian = b"GGUF" + (3).to_bytes(4, "big") + bytes(16)
    cases = {
        "empty": _one(b"", "the file is empty"),
        "two bytes": _one(b"GG", "not a GGUF file: it starts with b'GG'"),
        "magic FUGG": _one(prefix(0, 0, magic=b"FUGG"), "the magic is b'FUGG', byte-swapped: a big-endian file"),
        "html": _one(b"<!DOCTYPE html><html></html>", "not a GGUF file: it starts with b'<!DO', not b'GGUF'"),
        "big-endian": _one(big_endian, "version 50331648 is 3 byte-swapped: a big-endian file"),
        "only the magic": _one(b"GGUF", "the version needs 4 bytes, but 0 are left"),
        "no counts": _one(b"GGUF" + u32(3), "the header needs 16 bytes, but 0 are left"),
        "2^64-1 tensors": _one(
            prefix(ALL_ONES, 0) + bytes(64), f"{ALL_ONES} tensors are declared in a file of 88 bytes"
        ),
        "2^64-1 keys": _one(
            prefix(0, ALL_ONES) + bytes(64), f"{ALL_ONES} metadata keys are declared in a file of 88 bytes"
        ),
        "tensors wrap to 0": _one(prefix(2**62, 0) + bytes(64), f"{2**62} tensors are declared"),
        "too many tensors": _one(prefix(65537, 0), "65537 tensors are declared .*; minfer accepts up to 65536", GIB),
        "too many keys": _one(prefix(0, 65537), "65537 metadata keys are declared .*; minfer accepts up to 65536", GIB),
        "more keys than there are": _one(
            prefix(0, 3) + kv("k", U8, b"\1") + bytes(28), "the name of key 1 has 0 bytes"
        ),
        "type id COUNT": _tensor((256,), "tensor 't': unknown type 42: its size is not known", 42, 0, bytes(1024)),
        "type id 2^32-1": _tensor((256,), "tensor 't': unknown type 4294967295", 2**32 - 1, 0, bytes(1024)),
        "a removed type": _tensor((256,), r"tensor 't': Q4_0_4_4 \(removed from GGML\): its size", 31, 0, bytes(1024)),
    }
    for version in (0, 1, 4, 2**31):
        cases[f"version {version}"] = _one(
            prefix(0, 0, version), f"GGUF version {version}, but minfer reads .* 2 and 3"
        )
    return cases


def all_hostile() -> dict[str, Hostile]:
    groups = (dimension_counts, sizes, offsets, strings, arrays, alignments, duplicates, headers)
    return {name: case for group in groups for name, case in group().items()}
