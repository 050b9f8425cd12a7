"""The reader of safetensors headers: what the library writes is read, what contradicts the format is not."""

from __future__ import annotations

import json
import struct
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import safetensors
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from minfer_models.convert.errors import ConvertError
from minfer_models.convert.safetensors import MAX_HEADER, read_tensors

TORCH = {
    "BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "I16": torch.int16, "I32": torch.int32, "I64": torch.int64,
    "F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
}  # fmt: skip
SHAPES = st.lists(st.integers(0, 4), max_size=3)


@settings(max_examples=25)
@given(st.dictionaries(st.text(min_size=1, max_size=8), st.tuples(st.sampled_from(sorted(TORCH)), SHAPES), max_size=5))
def test_what_the_library_writes_is_read(content: dict[str, tuple[str, list[int]]]) -> None:
    content.pop("__metadata__", None)
    tensors = {
        name: torch.arange(torch.Size(shape).numel()).reshape(shape).to(TORCH[dtype])
        for name, (dtype, shape) in content.items()
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.safetensors"
        save_file(tensors, path, metadata={"format": "pt"})
        found = read_tensors(path)
        assert {name: (t.dtype, list(t.shape)) for name, t in found.items()} == content
        for name, tensor in found.items():
            raw = b"".join(piece.tobytes() for piece in tensor.pieces(3, 1))
            assert raw == bytes(tensors[name].flatten().view(torch.uint8).tolist())


def entry(begin: int, end: int, shape: list[Any] | None = None, dtype: Any = "U8") -> dict[str, Any]:
    return {"dtype": dtype, "shape": [end - begin] if shape is None else shape, "data_offsets": [begin, end]}


def file_of(header: bytes | dict[str, Any], data: bytes = b"", length: int | None = None) -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


DAMAGED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "a file of 0 bytes is no safetensors file"),
    "prefix only": (bytes(7), "a file of 7 bytes is no safetensors file"),
    "header length 2^64-1": (
        file_of(b"{}", length=2**64 - 1),
        r"the header is said to have 18446744073709551615 bytes",
    ),
    "header cut off": (file_of(b'{"a": {}}')[:-4], r"header is said to have 9 bytes, in a file of 13 \(incomplete"),
    "no header": (file_of(b""), "the header is not the JSON that is expected"),
    "header is no JSON": (file_of(b"{'a': 1}"), "the header is not the JSON that is expected: Expecting property name"),
    "header is a list": (file_of(b"[]"), "the header is a JSON list, not an object"),
    "header is not UTF-8": (file_of(b'{"\xff": {}}'), "the header is not UTF-8 at byte 2"),
    "header is nested": (file_of(b'{"a":' + b"[" * 200_000), "the header is nested too deeply"),
    "a number of 10,000 digits": (
        file_of(b'{"a":' + b"9" * 10_000 + b"}"),
        "the header is not the JSON that is expected",
    ),
    "NaN": (file_of(b'{"a": NaN}'), "the header is not the JSON that is expected: NaN is no JSON value"),
    "a name twice": (
        file_of(b"{" + b",".join([b'"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}'] * 2) + b"}", b"x"),
        "key 'a' appears twice",
    ),
    "a key twice": (
        file_of(b'{"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}}', b"x"),
        "key 'dtype' appears twice",
    ),
    "no entry": (file_of({"a": 3}), "tensor 'a': has no dtype, shape and data_offsets"),
    "no offsets": (file_of({"a": {"dtype": "U8", "shape": [1]}}), "tensor 'a': has no dtype, shape and data_offsets"),
    "unknown dtype": (file_of({"a": entry(0, 4, dtype="F4")}, bytes(4)), "tensor 'a': is of dtype 'F4', whose size"),
    "dtype is no name": (file_of({"a": entry(0, 4, dtype=[4])}, bytes(4)), r"tensor 'a': is of dtype \[4\]"),
    "negative dimension": (
        file_of({"a": entry(0, 4, [-4])}, bytes(4)),
        r"tensor 'a': its shape is \[-4\], not up to 8",
    ),
    "two negative ones": (file_of({"a": entry(0, 4, [-2, -2])}, bytes(4)), r"tensor 'a': its shape is \[-2, -2\]"),
    "fractional": (file_of({"a": entry(0, 4, [4.0])}, bytes(4)), r"tensor 'a': its shape is \[4.0\]"),
    "true": (file_of({"a": entry(0, 1, [True])}, bytes(1)), r"tensor 'a': its shape is \[True\]"),
    "nine dimensions": (file_of({"a": entry(0, 1, [1] * 9)}, bytes(1)), "tensor 'a': its shape is"),
    "sizes that wrap": (
        file_of({"a": entry(0, 0, [2**32, 2**32])}),
        f"tensor 'a': U8 of shape .* takes {2**64} bytes; its data_offsets .* hold 0",
    ),
    "backwards": (file_of({"a": entry(4, 0, [4])}, bytes(4)), r"tensor 'a': its data_offsets are \[4, 0\], no range"),
    "three offsets": (
        file_of({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1, 1]}}, b"x"),
        r"tensor 'a': its data_offsets are \[0, 1, 1\]",
    ),
    "negative offset": (file_of({"a": entry(-4, 0, [4])}, bytes(4)), r"tensor 'a': its data_offsets are \[-4, 0\]"),
    "shape and offsets differ": (
        file_of({"a": entry(0, 4, [3], "F32")}, bytes(4)),
        r"tensor 'a': F32 of shape \[3\] takes 12 bytes; its data_offsets \[0, 4\] hold 4",
    ),
    "overlap": (
        file_of({"a": entry(0, 4), "b": entry(3, 7)}, bytes(7)),
        "tensor 'b': its bytes from .* overlap those of tensor 'a'",
    ),
    "the same bytes": (
        file_of({"a": entry(0, 4), "b": entry(0, 4)}, bytes(4)),
        "tensor 'b': .* overlap those of tensor 'a'",
    ),
    "a hole": (
        file_of({"a": entry(0, 2), "b": entry(4, 6)}, bytes(6)),
        "tensor 'b': .* leave a hole after those of tensor 'a'",
    ),
    "a hole at the start": (
        file_of({"a": entry(1, 2)}, bytes(2)),
        "tensor 'a': .* leave a hole after those of the header",
    ),
    "cut off": (
        file_of({"a": entry(0, 4), "b": entry(4, 9)}, bytes(6)),
        r"tensor 'b': file is shorter than declared by 3 bytes \(incomplete download\?\)",
    ),
    "far beyond the end": (file_of({"a": entry(0, 2**62)}, bytes(6)), "tensor 'a': file is shorter than declared by"),
    "more than declared": (file_of({"a": entry(0, 4)}, bytes(6)), "2 bytes follow the last tensor"),
    "data without tensors": (file_of({}, bytes(6)), "6 bytes follow the last tensor"),
}


STRICTER = ("a name twice", "nine dimensions")
"""The library takes the last of two equal names; no model needs nine dimensions."""


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files_are_refused_with_the_place(tmp_path: Path, name: str) -> None:
    content, message = DAMAGED[name]
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(ConvertError, match=message) as caught:
        read_tensors(path)
    assert caught.value.path == path
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < len(str(path)) + 500
    if name not in STRICTER:
        with pytest.raises(safetensors.SafetensorError):  # the library agrees that it is none
            safetensors.safe_open(path, "pt").keys()


@settings(max_examples=150)
@given(st.data())
def test_whatever_is_accepted_is_what_the_library_reads(data: st.DataObject) -> None:
    """Bytes of a good file changed, dropped or repeated: our error, or the library's own reading."""
    header = {"a": entry(0, 12, [3], "F32"), "b": entry(12, 16, [2, 2]), "__metadata__": {"k": "v"}}
    content = bytearray(file_of(header, bytes(range(16))))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        with_what = data.draw(st.sampled_from([b"", b"0", b"-", b"9", b'"', b"[", b"}", b",", b"\xff", b"e3", b".5"]))
        content[at : at + data.draw(st.integers(0, 2))] = with_what
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.safetensors"
        path.write_bytes(content)
        try:
            found = read_tensors(path)
        except ConvertError as error:
            assert str(error).isprintable()
            return
        with safetensors.safe_open(path, "pt") as theirs:
            assert sorted(theirs.keys()) == sorted(found)
            for name, tensor in found.items():
                view = theirs.get_slice(name)
                assert (view.get_dtype(), tuple(view.get_shape())) == (tensor.dtype, tensor.shape)


def test_a_header_that_would_need_gigabytes_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", MAX_HEADER + 1))
        file.truncate(MAX_HEADER + 100)
    tracemalloc.start()
    try:
        with pytest.raises(ConvertError, match=f"a header of {MAX_HEADER + 1} bytes, more than the {MAX_HEADER}"):
            read_tensors(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_file_that_shrinks_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(file_of({"a": entry(0, 10**6)}, bytes(10**6)))
    tensor = read_tensors(path)["a"]
    pieces = tensor.pieces(300_000, 1)
    next(pieces)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(size - 600_000)
    with pytest.raises(ConvertError, match=rf"tensor 'a': the file now ends at byte {size - 600_000}"):
        list(pieces)


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConvertError, match=r"gone.safetensors: is missing"):
        read_tensors(tmp_path / "gone.safetensors")
    (tmp_path / "folder.safetensors").mkdir()
    with pytest.raises(ConvertError, match=r"folder.safetensors: not a regular file"):
        read_tensors(tmp_path / "folder.safetensors")
