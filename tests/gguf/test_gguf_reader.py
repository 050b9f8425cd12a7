"""What a valid file gives: values, shapes, zero-copy rows, and clear errors for what it lacks."""

from __future__ import annotations

import os
import struct
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf_bytes import (
    BOOL,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    STRING,
    TENSOR_F32,
    TENSOR_I8,
    TENSOR_Q4_0,
    TENSOR_Q8_0,
    U8,
    U16,
    U32,
    U64,
    array,
    build,
    info,
    kv,
    string,
    u32,
    u64,
)

from minfer_ir.formats import WEIGHT_FORMATS
from minfer_models.gguf import GGUFError, GGUFFile, Metadata, StringArray, open_gguf

TYPED = [
    kv("u8", U8, b"\xff"),
    kv("i8", I8, b"\xff"),
    kv("u16", U16, b"\xfe\xff"),
    kv("i16", I16, b"\xfe\xff"),
    kv("u32", U32, b"\xfd\xff\xff\xff"),
    kv("i32", I32, b"\xfd\xff\xff\xff"),
    kv("u64", U64, u64(2**64 - 4)),
    kv("i64", I64, u64(2**64 - 4)),
    kv("f32", F32, struct.pack("<f", 0.1)),
    kv("f64", F64, struct.pack("<d", 0.1)),
    kv("bool", BOOL, b"\1"),
    kv("string", STRING, string("naïve €")),
    kv("empty", STRING, string("")),
    array("strings", STRING, 3, string("a") + string("") + string("Ġé")),
    array("ints", I32, 2, struct.pack("<ii", -7, 2**31 - 1)),
    array("floats", F32, 2, struct.pack("<ff", 0.5, -2.0)),
    array("bools", BOOL, 3, b"\1\0\1"),
    array("none", U8, 0),
]
VALUES = {
    "u8": 255, "i8": -1, "u16": 65534, "i16": -2, "u32": 2**32 - 3, "i32": -3, "u64": 2**64 - 4, "i64": -4,
    "f32": 0.10000000149011612, "f64": 0.1, "bool": True, "string": "naïve €", "empty": "",
}  # fmt: skip


def opened(tmp_path: Path, content: bytes, **options: Any) -> GGUFFile:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    return open_gguf(path, **options)


@pytest.fixture
def meta(tmp_path: Path) -> Metadata:
    return opened(tmp_path, build(TYPED)).metadata


def test_values_of_every_type(meta: Metadata) -> None:
    assert {key: meta[key] for key in VALUES} == VALUES
    assert {key: type(meta[key]) for key in VALUES} == {key: type(value) for key, value in VALUES.items()}
    assert list(meta)[:4] == ["u8", "i8", "u16", "i16"]
    assert meta.strings("strings") == ["a", "", "Ġé"]
    assert meta.integers("ints") == [-7, 2**31 - 1]
    assert meta.numbers("floats") == [0.5, -2.0]
    assert meta.booleans("bools") == [True, False, True]
    assert meta.integers("none") == []


def test_accessors_give_the_value_or_the_default(meta: Metadata) -> None:
    assert [meta.integer(key) for key in ("u8", "i16", "u64")] == [255, -2, 2**64 - 4]
    assert meta.number("f64") == 0.1
    assert meta.boolean("bool") is True
    assert meta.string("string") == "naïve €"
    assert meta.integer("absent", 5) == 5
    assert meta.integer("u8", 5) == 255
    assert meta.boolean("absent", False) is False
    assert meta.string("absent", "") == ""
    assert meta.number("absent", 0.0) == 0.0
    assert meta.strings("absent", []) == []
    assert meta.integers("absent", [1]) == [1]


@pytest.mark.parametrize(
    ("accessor", "key", "message"),
    [
        ("integer", "f32", "key 'f32': expected an integer, found FLOAT32 0.1"),
        ("integer", "bool", "key 'bool': expected an integer, found BOOL True"),
        ("integer", "ints", "key 'ints': expected an integer, found ARRAY of INT32 array"),
        ("number", "i8", "key 'i8': expected a float, found INT8 -1"),
        ("string", "u8", "key 'u8': expected a string, found UINT8 255"),
        ("boolean", "u8", "key 'u8': expected a bool, found UINT8 255"),
        ("strings", "string", "key 'string': expected an array of strings, found STRING 'naïve €'"),
        ("strings", "ints", "key 'ints': expected an array of strings, found ARRAY of INT32"),
        ("integers", "floats", "expected an array of integers, found ARRAY of FLOAT32"),
        ("integers", "bools", "expected an array of integers, found ARRAY of BOOL"),
        ("numbers", "ints", "expected an array of floats, found ARRAY of INT32"),
        ("booleans", "ints", "expected an array of bools, found ARRAY of INT32"),
        ("integer", "absent", "key 'absent': missing from the metadata (an integer is required)"),
        ("strings", "absent", "key 'absent': missing from the metadata (an array of strings is required)"),
    ],
)
def test_accessors_refuse_the_wrong_type(meta: Metadata, accessor: str, key: str, message: str) -> None:
    with pytest.raises(GGUFError) as caught:
        getattr(meta, accessor)(key)
    assert message in str(caught.value)
    assert caught.value.key == caught.value.name == key
    assert caught.value.path == meta.path


def test_a_wrong_type_is_refused_even_with_a_default(meta: Metadata) -> None:
    with pytest.raises(GGUFError, match="expected an integer"):
        meta.integer("string", 3)
    with pytest.raises(GGUFError, match="expected an array of strings"):
        meta.strings("ints", [])


def test_errors_know_their_place(meta: Metadata) -> None:
    error = meta.error("i8", "must be positive")
    assert error.offset == build(TYPED).index(string("i8"))
    assert str(error) == f"{meta.path}: key 'i8': must be positive (at byte {error.offset})"


def test_string_arrays_are_sequences(meta: Metadata) -> None:
    texts = meta["strings"]
    assert isinstance(texts, StringArray)
    assert [texts[0], texts[-1], texts[1:]] == ["a", "Ġé", ["", "Ġé"]]
    assert texts == ["a", "", "Ġé"]
    assert texts != ["a", "", "b"]
    assert len(texts) == 3
    with pytest.raises(IndexError):
        texts[3]


def test_metadata_arrays_are_read_only(meta: Metadata) -> None:
    values = meta["ints"]
    assert isinstance(values, np.ndarray)
    with pytest.raises(ValueError, match="read-only"):
        values[0] = 1


@pytest.mark.parametrize("version", [2, 3])
def test_a_header_without_anything_loads(tmp_path: Path, version: int) -> None:
    with opened(tmp_path, build(version=version)) as file:
        assert (file.version, file.size, len(file.metadata), len(file.tensors)) == (version, 24, 0, 0)
        assert file.complete


def q4_0_row(n_blocks: int, first: int = 0) -> bytes:
    return bytes((first + i) % 251 for i in range(18 * n_blocks))


def test_shapes_and_bytes_of_tensors(tmp_path: Path) -> None:
    infos = [info("a", (64, 3, 2), TENSOR_Q4_0, 0), info("b", (5,), TENSOR_F32, 224), info("s", (), TENSOR_F32, 256)]
    quants, numbers = q4_0_row(2 * 3 * 2), np.arange(5, dtype="<f4")
    data = quants + bytes(224 - len(quants)) + numbers.tobytes() + bytes(12) + struct.pack("<f", 7.0)
    file = opened(tmp_path, build([], infos, data))
    a, b, s = file.tensors["a"], file.tensors["b"], file.tensors["s"]
    assert (a.shape, a.ggml_type, a.nbytes, a.row_bytes) == ((2, 3, 64), GGMLQuantizationType.Q4_0, 216, 36)
    assert (b.shape, s.shape, s.nbytes, a.n_elements, a.n_rows) == ((5,), (), 4, 384, 6)
    assert (a.format, b.format) == (WEIGHT_FORMATS["Q4_0"], WEIGHT_FORMATS["F32"])
    assert file.rows("a").shape == (6, 36)
    assert file.rows("a").tobytes() == quants
    assert file.rows("b").view("<f4").tolist() == [[0, 1, 2, 3, 4]]
    assert file.rows("s").view("<f4").tolist() == [[7.0]]
    assert file.n_elements == 384 + 5 + 1


def test_alignment_moves_the_data(tmp_path: Path) -> None:
    for alignment in (1, 2, 8, 64, 4096, 1 << 20):
        key = kv("general.alignment", U32, u32(alignment))
        infos = [info("a", (3,), TENSOR_I8, 0), info("b", (2,), TENSOR_I8, max(3, alignment))]
        data = b"\1\2\3" + bytes(max(3, alignment) - 3 if alignment > 1 else 0) + b"\4\5"
        if alignment == 2:
            infos[1] = info("b", (2,), TENSOR_I8, 4)
            data = b"\1\2\3\0\4\5"
        file = opened(tmp_path, build([key], infos, data, alignment=alignment))
        assert file.alignment == alignment
        assert [file.rows(name).tolist() for name in "ab"] == [[[1, 2, 3]], [[4, 5]]]
        assert file.tensors["a"].offset % alignment == 0


def test_gaps_between_tensors_and_trailing_bytes_are_allowed(tmp_path: Path) -> None:
    infos = [info("b", (4,), TENSOR_I8, 64), info("a", (4,), TENSOR_I8, 0)]
    file = opened(tmp_path, build([], infos, b"aaaa" + bytes(60) + b"bbbb" + bytes(28) + b"more"))
    assert [file.rows(name).tobytes() for name in "ab"] == [b"aaaa", b"bbbb"]


def test_a_file_may_end_at_its_last_tensor_or_after_its_padding(tmp_path: Path) -> None:
    for end in (20, 32):
        assert opened(tmp_path, build([], [info("t", (5,))], bytes(end))).complete
    for end in (21, 31):
        with pytest.raises(GGUFError, match=rf"shorter than declared by {32 - end} bytes \(incomplete download"):
            opened(tmp_path, build([], [info("t", (5,))], bytes(end)))


def big_file(tmp_path: Path, n_bytes: int) -> Path:
    path = tmp_path / "big.gguf"
    path.write_bytes(build([], [info("t", (n_bytes // 4, 4), TENSOR_I8), info("u", (8,), TENSOR_F32, n_bytes)]))
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + n_bytes + 32)
    return path


def test_rows_are_views_of_the_file(tmp_path: Path) -> None:
    path = big_file(tmp_path, 64 << 20)
    tracemalloc.start()
    file = open_gguf(path)
    rows = file.rows("t")
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
    assert rows.shape == (4, 16 << 20)
    assert not rows.flags.writeable
    assert not rows.flags.owndata
    file.close()
    assert int(rows.sum(dtype=np.int64)) == 0
    with pytest.raises(GGUFError, match="tensor 't': the file is closed"):
        file.rows("t")


def open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def test_close_without_views_releases_the_map(tmp_path: Path) -> None:
    n_before = open_files()
    with open_gguf(big_file(tmp_path, 1 << 20)):
        assert open_files() > n_before
    assert open_files() == n_before


def test_a_refused_file_is_closed(tmp_path: Path) -> None:
    n_before = open_files()
    for content in (build(version=9), build([], [info("t", (8,))], bytes(31))):
        with pytest.raises(GGUFError):
            opened(tmp_path, content)
    assert open_files() == n_before


def test_a_file_truncated_after_opening_is_an_error_not_a_signal(tmp_path: Path) -> None:
    path = big_file(tmp_path, 1 << 20)
    file = open_gguf(path)
    os.truncate(path, 1 << 19)
    with pytest.raises(
        GGUFError, match="tensor 't': its 1048576 bytes at 128 are no longer in the file, which now has 524288"
    ):
        file.rows("t")


def test_a_file_replaced_after_opening_keeps_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(build([], [info("t", (4,), TENSOR_I8)], b"old!"))
    file = open_gguf(path)
    (tmp_path / "new").write_bytes(build())
    (tmp_path / "new").replace(path)
    assert file.rows("t").tobytes() == b"old!"


def test_listing_an_incomplete_file(tmp_path: Path) -> None:
    infos = [info("a", (4,), TENSOR_I8, 0), info("b", (1024,), TENSOR_Q8_0, 32), info("c", (64,), TENSOR_F32, 1120)]
    content = build([kv("k", U8, b"\5")], infos, bytes(1376))
    file = opened(tmp_path, content[:-900], allow_incomplete=True)
    assert not file.complete
    assert file.missing_bytes == 900
    (problem,) = file.problems
    assert problem.incomplete
    assert problem.tensor == "b"
    assert "shorter than declared by 900 bytes (incomplete download?)" in str(problem)
    assert (list(file.tensors), file.metadata.integer("k")) == (["a", "b", "c"], 5)
    assert file.rows("a").shape == (1, 4)
    with pytest.raises(GGUFError, match="tensor 'b': its 1088 bytes"):
        file.rows("b")


def test_a_header_cut_short_is_reported_as_incomplete(tmp_path: Path) -> None:
    content = build([array("k", STRING, 2, string("a" * 40) + string("b" * 40))])
    for allow in (False, True):
        with pytest.raises(GGUFError, match="shorter than declared by 5 bytes or more") as caught:
            opened(tmp_path, content[:-5], allow_incomplete=allow)
        assert caught.value.incomplete


def test_unknown_types_are_listed_but_not_read(tmp_path: Path) -> None:
    infos = [info("x", (256,), 99, 0), info("a", (4,), TENSOR_I8, 1024)]
    file = opened(tmp_path, build([], infos, bytes(1056)), allow_incomplete=True)
    x = file.tensors["x"]
    assert (x.type_name, x.ggml_type, x.nbytes) == ("unknown type 99", None, 0)
    assert [problem.tensor for problem in file.problems] == ["x"]
    assert not file.problems[0].incomplete
    for read in (file.rows, file.weight):
        with pytest.raises(GGUFError, match=r"tensor 'x': is of .*unknown type 99"):
            read("x")


def test_types_minfer_does_not_implement_open_and_copy_but_do_not_load(tmp_path: Path) -> None:
    assert "TQ1_0" not in WEIGHT_FORMATS
    tq1_0 = GGMLQuantizationType.TQ1_0
    file = opened(tmp_path, build([], [info("x", (256, 2), tq1_0)], bytes(range(108)) + bytes(20)))
    assert (file.tensors["x"].format, file.tensors["x"].nbytes) == (None, 108)
    assert file.rows("x").tobytes() == bytes(range(108))
    with pytest.raises(
        GGUFError, match=r"tensor 'x': is of type TQ1_0, which minfer does not implement; it has .*Q4_0"
    ):
        file.weight("x")


def test_every_format_has_its_ggml_geometry(tmp_path: Path) -> None:
    """The two sources of geometry agree, so the rows that `weight` gives are whole rows of the format."""
    for fmt in WEIGHT_FORMATS.values():
        type_id = GGMLQuantizationType[fmt.name]
        file = opened(tmp_path, build([], [info("t", (512, 3), type_id)], bytes(3 * fmt.row_bytes(512))))
        got, rows = file.weight("t")
        assert got is fmt
        assert rows.shape == (3, fmt.row_bytes(512))


def test_missing_tensors_and_wrong_shapes_are_named(tmp_path: Path) -> None:
    file = opened(tmp_path, build([], [info("ffn", (8, 4))], bytes(128)))
    assert file.tensor("ffn", (4, 8)).name == "ffn"
    with pytest.raises(GGUFError, match=r"tensor 'ffn': has the shape \(4, 8\); the metadata needs \(8, 4\)"):
        file.tensor("ffn", (8, 4))
    with pytest.raises(GGUFError, match=r"tensor 'up': missing from the file, which needs the shape \(8, 4\)"):
        file.tensor("up", (8, 4))
    with pytest.raises(GGUFError, match="tensor 'up': missing from the file"):
        file.rows("up")


def test_a_vocabulary_costs_three_calls_a_token(tmp_path: Path) -> None:
    n = 150_000
    tokens = [f"token{i}" for i in range(n)]
    types = np.arange(n, dtype="<i4")
    content = build(
        [array("tokens", STRING, n, b"".join(map(string, tokens))), array("types", I32, n, types.tobytes())]
    )
    path = tmp_path / "v.gguf"
    path.write_bytes(content)
    n_calls = 0

    def count(frame: object, event: str, arg: object) -> None:
        nonlocal n_calls
        n_calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        file = open_gguf(path)
    finally:
        sys.setprofile(None)
    assert n_calls < 3 * n + 1_000
    assert file.metadata.strings("tokens") == tokens
    assert file.metadata.integers("types") == types.tolist()


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_gguf(tmp_path / "absent.gguf")
    with pytest.raises(GGUFError, match="not a regular file"):
        open_gguf(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(GGUFError, match="not a regular file"):
        open_gguf(tmp_path / "pipe")
