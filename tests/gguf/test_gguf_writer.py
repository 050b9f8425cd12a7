"""The writer: what it refuses, that it streams, and that a failure leaves nothing behind."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFValueType
from gguf_bytes import I32, STRING, TENSOR_F32, U8, array, build, info, kv, string

from minfer_models.gguf import (
    GGUFError,
    SplitRule,
    TensorSource,
    TypedValue,
    array_source,
    file_source,
    open_gguf,
    write_gguf,
)

Q4_0, Q8_0, F32 = GGMLQuantizationType.Q4_0, GGMLQuantizationType.Q8_0, GGMLQuantizationType.F32


def vector(name: str, n: int = 8) -> TensorSource:
    return array_source(name, np.arange(n, dtype=np.float32))


def test_the_bytes_are_those_of_the_specification(tmp_path: Path) -> None:
    values = np.arange(6, dtype="<f4").reshape(2, 3)
    (path,) = write_gguf(
        tmp_path / "w.gguf",
        {"k": TypedValue(GGUFValueType.UINT8, 7), "s": ["a", "é"], "n": [1, -2]},
        [array_source("t", values), array_source("u", values[:1])],
    )
    kvs = [
        kv("k", U8, b"\7"),
        array("s", STRING, 2, string("a") + string("é")),
        array("n", I32, 2, b"\1\0\0\0\xfe\xff\xff\xff"),
    ]
    infos = [info("t", (3, 2), TENSOR_F32, 0), info("u", (3, 1), TENSOR_F32, 32)]
    data = values.tobytes() + bytes(8) + values[:1].tobytes() + bytes(20)
    assert path.read_bytes() == build(kvs, infos, data)


def test_nothing_is_a_file_too(tmp_path: Path) -> None:
    (path,) = write_gguf(tmp_path / "w.gguf", {}, [])
    assert path.read_bytes() == build()
    assert len(open_gguf(path).tensors) == 0


@pytest.mark.parametrize(
    ("value", "type_name"),
    [
        ("x", "STRING"),
        (True, "BOOL"),
        (0, "UINT32"),
        (2**32 - 1, "UINT32"),
        (-1, "INT32"),
        (2**32, "INT64"),
        (-(2**31) - 1, "INT64"),
        (2**63, "UINT64"),
        (0.5, "FLOAT32"),
        (["a"], "ARRAY of STRING"),
        ([True, False], "ARRAY of BOOL"),
        ([1, -2], "ARRAY of INT32"),
        ([1, 2**40], "ARRAY of INT64"),
        ([2**63], "ARRAY of UINT64"),
        ([1.5], "ARRAY of FLOAT32"),
        (np.array([1, 2], np.uint16), "ARRAY of UINT16"),
        (np.array([True]), "ARRAY of BOOL"),
        (np.array([0.1]), "ARRAY of FLOAT64"),
    ],
)
def test_plain_values_get_their_usual_type(tmp_path: Path, value: Any, type_name: str) -> None:
    (path,) = write_gguf(tmp_path / "w.gguf", {"k": value}, [])
    got = open_gguf(path).metadata.typed("k")
    assert got.type_name == type_name
    if got.element is None:
        assert got.value == value
    else:
        assert list(got.value) == list(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (TypedValue(GGUFValueType.UINT8, 256), "256 cannot be written as UINT8"),
        (TypedValue(GGUFValueType.UINT32, -1), "-1 cannot be written as UINT32"),
        (TypedValue(GGUFValueType.UINT32, 1.0), "1.0 cannot be written as UINT32"),
        (TypedValue(GGUFValueType.UINT32, True), "True cannot be written as UINT32: a bool"),
        (TypedValue(GGUFValueType.BOOL, 1), "1 cannot be written as BOOL"),
        (TypedValue(GGUFValueType.STRING, 1), "1 cannot be written as STRING"),
        (TypedValue(GGUFValueType.FLOAT32, 1e300), "1e\\+300 cannot be written as FLOAT32"),
        (TypedValue(GGUFValueType.FLOAT32, "x"), "'x' cannot be written as FLOAT32"),
        (TypedValue(GGUFValueType.STRING, "\udc80"), "cannot be written as STRING"),
        (TypedValue(GGUFValueType.ARRAY, [1, 300], GGUFValueType.UINT8), "an element cannot be written as UINT8"),  # type: ignore[arg-type]
        (
            TypedValue(GGUFValueType.ARRAY, np.array([300]), GGUFValueType.UINT8),
            "an element cannot be written as UINT8",
        ),
        (TypedValue(GGUFValueType.ARRAY, ["a", 1], GGUFValueType.STRING), "an element cannot be written as STRING"),  # type: ignore[arg-type]
        (TypedValue(GGUFValueType.ARRAY, [[1]], GGUFValueType.ARRAY), "ARRAY of ARRAY of .* cannot be written"),  # type: ignore[arg-type]
        (TypedValue(GGUFValueType.ARRAY, 3, GGUFValueType.UINT8), "ARRAY of UINT8 of 3 cannot be written"),
        (2**64, "18446744073709551616 fits no GGUF integer type"),
        (-(2**63) - 1, "fits no GGUF integer type"),
        ([], "no elements.* has no one GGUF type; give a TypedValue"),
        (["a", 1], r"\['int', 'str'\] has no one GGUF type"),
        ([[1]], r"\['list'\] has no one GGUF type"),
        (np.array([1j]), "no GGUF element type holds a numpy complex128 array"),
    ],
)
def test_values_that_do_not_fit_are_refused(tmp_path: Path, value: Any, message: str) -> None:
    with pytest.raises(GGUFError, match=rf"w\.gguf: key 'k': .*{message}"):
        write_gguf(tmp_path / "w.gguf", {"k": value}, [])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("metadata", "tensors", "message"),
    [
        ([("k", 1), ("k", 2)], [], "key 'k': given twice"),
        ({"": 1}, [], "a key of 0 bytes"),
        ({"k" * 65536: 1}, [], "a key of 65536 bytes, not 1 to 65535"),
        ({}, [vector("t"), vector("u"), vector("t")], "tensor 't': given twice"),
        ({}, [vector("")], "a name of 0 bytes, not 1 to 63"),
        ({}, [vector("t" * 64)], "a name of 64 bytes, not 1 to 63"),
        ({}, [vector("é" * 32)], "a name of 64 bytes"),
        ({}, [vector("\udc80")], "cannot be written as UTF-8"),
        ({}, [vector("t", 0)], r"shape \(0,\) has a dimension that is not positive"),
        ({}, [array_source("t", np.zeros((1, 1, 1, 1, 1), np.float32))], "more than 4 dimensions"),
        ({}, [TensorSource("t", (4, 33), Q4_0, lambda: ())], "rows of 33 elements are not whole Q4_0 blocks of 32"),
        ({"general.alignment": 48}, [], "key 'general.alignment': alignment 48 is not a power of two"),
        ({"general.alignment": 0}, [], "alignment 0 is not a power of two"),
        ({"general.alignment": 2**21}, [], "alignment 2097152 is not a power of two from 1 to 1048576"),
        ({"general.alignment": -32}, [], "key 'general.alignment': must be UINT32, not INT32"),
        ({"general.alignment": "32"}, [], "key 'general.alignment': must be UINT32, not STRING"),
    ],
)
def test_content_a_reader_would_refuse_is_refused(
    tmp_path: Path, metadata: Any, tensors: list[TensorSource], message: str
) -> None:
    with pytest.raises(GGUFError, match=message):
        write_gguf(tmp_path / "w.gguf", metadata, tensors)
    assert list(tmp_path.iterdir()) == []


def test_names_at_the_limit_are_written(tmp_path: Path) -> None:
    (path,) = write_gguf(tmp_path / "w.gguf", {"k" * 65535: 1}, [vector("t" * 63), vector("é" * 31)])
    assert list(open_gguf(path).tensors) == ["t" * 63, "é" * 31]


def test_split_keys_belong_to_the_writer(tmp_path: Path) -> None:
    with pytest.raises(GGUFError, match=r"key 'split.count': the writer sets this key when it splits"):
        write_gguf(tmp_path / "w.gguf", {"split.count": 1}, [vector("t"), vector("u")], split=SplitRule(max_tensors=1))


def test_arrays_that_do_not_say_their_type_are_refused() -> None:
    with pytest.raises(GGUFError, match="tensor 't': a uint8 array has no GGUF type of its own"):
        array_source("t", np.zeros(18, np.uint8))
    with pytest.raises(GGUFError, match="tensor 't': rows of 19 bytes are not whole Q4_0 blocks of 18 bytes"):
        array_source("t", np.zeros((2, 19), np.uint8), Q4_0)
    assert array_source("t", np.zeros((2, 36), np.uint8), Q4_0).shape == (2, 64)


def chunks_of(*arrays: np.ndarray[Any, Any]) -> Callable[[], Iterator[np.ndarray[Any, Any]]]:
    return lambda: iter(arrays)


def failing_chunks() -> Iterator[np.ndarray[Any, Any]]:
    yield np.zeros((1, 34), np.uint8)
    raise KeyboardInterrupt


ROW = np.ones((1, 34), np.uint8)
BAD_DATA = {
    "too few rows": (chunks_of(ROW), GGUFError, "tensor 't': its data ends 34 bytes short of 68"),
    "no rows": (chunks_of(), GGUFError, "its data ends 68 bytes short of 68"),
    "too many rows": (
        chunks_of(ROW, ROW, ROW),
        GGUFError,
        "a chunk of 34 bytes; rows have 34 bytes and 0 bytes remain",
    ),
    "part of a row": (chunks_of(ROW, ROW[:, :30]), GGUFError, "a chunk of 30 bytes; rows have 34 bytes and 34 bytes"),
    "another type": (chunks_of(np.zeros(17, np.float32)), GGUFError, "a chunk of float32 for Q8_0"),
    "interrupted": (failing_chunks, KeyboardInterrupt, "^$"),
}


@pytest.mark.parametrize("name", BAD_DATA)
@pytest.mark.parametrize("split", [None, SplitRule(max_tensors=1)])
def test_a_failure_leaves_nothing_behind(tmp_path: Path, name: str, split: SplitRule | None) -> None:
    chunks, error, message = BAD_DATA[name]
    target = tmp_path / "w.gguf"
    target.write_bytes(b"what was there")
    tensors = [vector("first"), TensorSource("t", (2, 32), Q8_0, chunks), vector("last")]
    with pytest.raises(error, match=message):
        write_gguf(target, {"k": 1}, tensors, split=split)
    assert [path.name for path in tmp_path.iterdir()] == ["w.gguf"]
    assert target.read_bytes() == b"what was there"


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_gguf(tmp_path / "w.gguf", {}, [vector("t")])
    assert list(tmp_path.iterdir()) == []


def test_a_file_can_be_rewritten_onto_itself(tmp_path: Path) -> None:
    (path,) = write_gguf(tmp_path / "w.gguf", {"k": 1}, [vector("t"), vector("u")])
    file = open_gguf(path)
    write_gguf(path, {"k": 2}, [file_source(file, "u")])
    assert file.rows("t").view("<f4")[0].tolist() == list(range(8))
    assert list(open_gguf(path).tensors) == ["u"]


def test_tensors_are_streamed(tmp_path: Path) -> None:
    rows, n_tensors = 64, 8
    alive: list[int] = []

    def make(i: int) -> Callable[[], Iterator[np.ndarray[Any, Any]]]:
        def chunks() -> Iterator[np.ndarray[Any, Any]]:
            alive.append(i)
            for row in range(rows):
                yield np.full((1, 1 << 14), i * rows + row, np.float32)

        return chunks

    tensors = [TensorSource(f"t{i}", (rows, 1 << 14), F32, make(i)) for i in range(n_tensors)]
    tracemalloc.start()
    (path,) = write_gguf(tmp_path / "w.gguf", {}, tensors)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert alive == list(range(n_tensors))
    assert path.stat().st_size > 32 << 20
    assert peak < 1 << 20
    assert [float(row[0]) for row in open_gguf(path).rows("t7").view("<f4")] == [7 * rows + i for i in range(rows)]


def test_unaligned_and_strided_chunks_are_written_in_order(tmp_path: Path) -> None:
    values = np.arange(24, dtype=np.float32).reshape(4, 6)
    turned = TensorSource("t", (6, 4), F32, chunks_of(values.T[:2], values.T[2:]))
    (path,) = write_gguf(tmp_path / "w.gguf", {}, [turned])
    assert np.array_equal(open_gguf(path).rows("t").view("<f4"), values.T)
