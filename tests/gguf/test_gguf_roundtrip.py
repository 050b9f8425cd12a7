"""Random content through the writer and the reader, with gguf-py as the independent reader and writer."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, GGUFValueType, GGUFWriter
from gguf_strategies import RandomTensor, metadatas, tensors
from hypothesis import given, settings

from minfer_models.gguf import TensorSource, TypedValue, array_source, file_source, open_gguf, write_gguf

EXAMPLES = settings(max_examples=60, deadline=None)


def source(tensor: RandomTensor) -> TensorSource:
    return array_source(tensor.name, tensor.rows, tensor.ggml_type, tensor.shape)


def plain(value: Any) -> Any:
    """Values as Python's own, floats by their exact digits (so that -0.0 differs from 0.0)."""
    if isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value.hex()
    return [plain(item) for item in (value.tolist() if isinstance(value, np.ndarray) else value)]


@EXAMPLES
@given(metadatas(), tensors())
def test_write_read_write_is_the_identity(metadata: dict[str, TypedValue], content: list[RandomTensor]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (path,) = write_gguf(Path(folder) / "a.gguf", metadata, map(source, content))
        file = open_gguf(path)
        assert list(file.metadata) == list(metadata)
        for key, entry in metadata.items():
            got = file.metadata.typed(key)
            assert (got.type, got.element) == (entry.type, entry.element)
            assert plain(got.value) == plain(entry.value)
        assert list(file.tensors) == [tensor.name for tensor in content]
        for tensor in content:
            info = file.tensors[tensor.name]
            assert (info.shape, info.ggml_type) == (tensor.shape, tensor.ggml_type)
            assert np.array_equal(file.rows(tensor.name), tensor.rows)
        again = write_gguf(Path(folder) / "b.gguf", file.metadata, [file_source(file, name) for name in file.tensors])
        assert again[0].read_bytes() == path.read_bytes()


@EXAMPLES
@given(metadatas(), tensors())
def test_gguf_py_reads_what_we_write(metadata: dict[str, TypedValue], content: list[RandomTensor]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (path,) = write_gguf(Path(folder) / "a.gguf", metadata, map(source, content))
        reader = GGUFReader(path)
        fields = {key: field for key, field in reader.fields.items() if not key.startswith("GGUF.")}
        assert list(fields) == list(metadata)
        for key, entry in metadata.items():
            assert fields[key].types[0] == entry.type
            if not isinstance(entry.value, list):
                assert plain(fields[key].contents()) == plain(entry.value)
            elif entry.value:  # gguf-py cannot give the contents of an empty array
                assert fields[key].types == [GGUFValueType.ARRAY, entry.element]
                assert plain(fields[key].contents()) == plain(entry.value)
        assert [tensor.name for tensor in reader.tensors] == [tensor.name for tensor in content]
        for got, tensor in zip(reader.tensors, content, strict=True):
            assert tuple(got.shape.tolist()) == tensor.shape[::-1]
            assert got.tensor_type == tensor.ggml_type
            assert np.ascontiguousarray(got.data).tobytes() == tensor.rows.tobytes()


@EXAMPLES
@given(metadatas(), tensors())
def test_we_read_what_gguf_py_writes(metadata: dict[str, TypedValue], content: list[RandomTensor]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.gguf"
        writer = GGUFWriter(path, "x")
        metadata.pop("general.architecture", None)
        metadata = {key: entry for key, entry in metadata.items() if entry.value != []}  # gguf-py refuses empty arrays
        for key, entry in metadata.items():
            writer.add_key_value(key, entry.value, entry.type, entry.element)
        alignment = metadata.get("general.alignment")
        writer.data_alignment = 32 if alignment is None else int(alignment.value)  # type: ignore[arg-type]
        for tensor in content:
            writer.add_tensor(tensor.name, tensor.rows.reshape(*tensor.shape[:-1], -1), raw_dtype=tensor.ggml_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        file = open_gguf(path)
        assert list(file.metadata) == ["general.architecture", *metadata]
        for key, entry in metadata.items():
            assert plain(file.metadata[key]) == plain(entry.value)
            assert file.metadata.typed(key).type == entry.type
        for tensor in content:
            info = file.tensors[tensor.name]
            assert (info.shape, info.ggml_type) == (tensor.shape, tensor.ggml_type)
            assert info.n_elements == math.prod(tensor.shape)
            assert np.array_equal(file.rows(tensor.name), tensor.rows)
