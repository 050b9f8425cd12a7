"""Split files: the union of the shards, and every way the shards can disagree."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader, GGUFWriter
from gguf_bytes import I32, STRING, TENSOR_I8, U16, U32, array, build, info, kv, string, u32

from minfer_models.gguf import GGUFError, SplitRule, array_source, file_source, open_gguf, write_gguf


def shard(no: int, count: int, n_tensors: int, names: str, extra: tuple[bytes, ...] = ()) -> bytes:
    kvs = [
        *extra,
        kv("split.no", U16, no.to_bytes(2, "little")),
        kv("split.count", U16, count.to_bytes(2, "little")),
        kv("split.tensors.count", I32, u32(n_tensors)),
    ]
    infos = [info(name, (4,), TENSOR_I8, 32 * i) for i, name in enumerate(names)]
    return build(kvs, infos, b"".join(name.encode() * 4 + bytes(28) for name in names))


def three(folder: Path, *, first: bytes = b"", second: bytes = b"", third: bytes = b"") -> Path:
    """Three shards of tensors a b, c, d e, any of them replaced."""
    contents = (
        first or shard(0, 3, 5, "ab", (kv("general.name", STRING, string("whole")),)),
        second or shard(1, 3, 5, "c"),
        third or shard(2, 3, 5, "de"),
    )
    for i, content in enumerate(contents):
        (folder / f"m-0000{i + 1}-of-00003.gguf").write_bytes(content)
    return folder / "m-00001-of-00003.gguf"


def test_the_union_of_the_shards(tmp_path: Path) -> None:
    file = open_gguf(three(tmp_path))
    assert list(file.tensors) == list("abcde")
    assert [file.rows(name).tobytes() for name in "abcde"] == [name.encode() * 4 for name in "abcde"]
    assert dict(file.metadata) == {"general.name": "whole"}
    assert [path.name[2:7] for path in file.paths] == ["00001", "00002", "00003"]
    assert file.tensors["d"].path == file.paths[2]
    assert file.size == sum(path.stat().st_size for path in tmp_path.iterdir())


def test_only_the_first_shard_opens(tmp_path: Path) -> None:
    three(tmp_path)
    with pytest.raises(GGUFError, match=r"shard 2 of 3; open the first one, m-00001-of-00003.gguf") as caught:
        open_gguf(tmp_path / "m-00002-of-00003.gguf")
    assert caught.value.path == tmp_path / "m-00002-of-00003.gguf"


@pytest.mark.parametrize("missing", [[2], [3], [2, 3]])
def test_missing_shards_are_named(tmp_path: Path, missing: list[int]) -> None:
    path = three(tmp_path)
    for no in missing:
        (tmp_path / f"m-0000{no}-of-00003.gguf").unlink()
    with pytest.raises(
        GGUFError, match=rf"{len(missing)} of 3 shards are missing: m-0000{missing[0]}-of-00003"
    ) as caught:
        open_gguf(path)
    assert caught.value.path == tmp_path / f"m-0000{missing[0]}-of-00003.gguf"
    assert caught.value.incomplete
    file = open_gguf(path, allow_incomplete=True)
    assert len(file.problems) == 1
    assert set(file.tensors) == set("abcde") - {name for no in missing for name in ("ab", "c", "de")[no - 1]}
    assert all(file.rows(name).tobytes() == name.encode() * 4 for name in file.tensors)


def test_an_incomplete_shard_is_named(tmp_path: Path) -> None:
    path = three(tmp_path, second=shard(1, 3, 5, "c")[:-30])
    with pytest.raises(GGUFError, match=r"m-00002-of-00003.gguf: tensor 'c'.* shorter than declared by 2 bytes"):
        open_gguf(path)
    file = open_gguf(path, allow_incomplete=True)
    assert file.missing_bytes == 2
    assert [problem.tensor for problem in file.problems] == ["c"]


@pytest.mark.parametrize(
    ("which", "content", "message"),
    [
        ("first", shard(0, 2, 5, "ab"), "m-00001-of-00003.gguf: key 'split.count': is 2, but the file's name says 3"),
        ("first", shard(1, 3, 5, "ab"), r"m-00001.*: key 'split.no': is 1 \(counted from 0\) of 3, but .* name says 1"),
        ("first", build([], [info("a", (4,), TENSOR_I8)], b"aaaa"), "'split.count': is absent, but the .* name says 3"),
        ("first", shard(0, 3, 6, "ab"), "key 'split.tensors.count': is 5, but the first shard says 6"),
        ("second", shard(1, 2, 5, "c"), "m-00002-of-00003.gguf: key 'split.count': is 2, but the file's name says 3"),
        ("second", shard(2, 3, 5, "c"), "m-00002-of-00003.gguf: key 'split.no': is 2 .* name says 2"),
        ("second", shard(1, 3, 7, "c"), "m-00002.*'split.tensors.count': is 7, but the first shard says 5"),
        ("second", shard(1, 3, 5, "b"), "m-00002.*: tensor 'b': appears in two shards, first in m-00001-of-00003.gguf"),
        ("second", build(), "m-00002.*key 'split.count': is absent, but the file's name says 3"),
        ("third", shard(2, 3, 5, "d"), "m-00001.*'split.tensors.count': is 5, but the 3 shards have 4 tensors"),
        ("third", b"not a GGUF file at all", "m-00003-of-00003.gguf: not a GGUF file"),
    ],
)  # fmt: skip
def test_disagreements_name_the_file(tmp_path: Path, which: str, content: bytes, message: str) -> None:
    path = three(tmp_path, **{which: content})
    with pytest.raises(GGUFError, match=message):
        open_gguf(path)


def test_counts_that_need_the_other_keys(tmp_path: Path) -> None:
    path = tmp_path / "m-00001-of-00002.gguf"
    path.write_bytes(build([kv("split.count", U16, b"\2\0"), kv("split.no", U16, b"\0\0")]))
    with pytest.raises(GGUFError, match=r"key 'split.tensors.count': missing from the metadata"):
        open_gguf(path)
    path.write_bytes(build([kv("split.count", STRING, string("2"))]))
    with pytest.raises(GGUFError, match=r"key 'split.count': expected an integer, found STRING '2'"):
        open_gguf(path)
    path.write_bytes(build([array("split.count", U16, 1, b"\2\0")]))
    with pytest.raises(GGUFError, match=r"key 'split.count': expected an integer, found ARRAY"):
        open_gguf(path)
    path.write_bytes(build([kv("split.count", I32, u32(2**32 - 1))]))
    with pytest.raises(GGUFError, match=r"key 'split.count': is -1, but the file's name says 2"):
        open_gguf(path)


def test_a_renamed_shard_cannot_find_its_siblings(tmp_path: Path) -> None:
    shutil.copy(three(tmp_path), tmp_path / "model.gguf")
    with pytest.raises(GGUFError, match=r"one of 3 shards, but its name is not NAME-00001-of-00003.gguf"):
        open_gguf(tmp_path / "model.gguf")


@pytest.mark.parametrize("count", [0, 1])
def test_a_count_below_two_is_one_file(tmp_path: Path, count: int) -> None:
    (tmp_path / "merged.gguf").write_bytes(shard(0, count, 2, "ab"))
    file = open_gguf(tmp_path / "merged.gguf")
    assert list(file.tensors) == ["a", "b"]
    assert file.metadata.integer("split.count") == count


def test_the_alignment_is_each_shards_own(tmp_path: Path) -> None:
    key = kv("general.alignment", U32, u32(1))
    second = build(
        [key, kv("split.no", U16, b"\1\0"), kv("split.count", U16, b"\3\0"), kv("split.tensors.count", I32, u32(5))],
        [info("c", (4,), TENSOR_I8)],
        b"cccc",
        alignment=1,
    )
    assert open_gguf(three(tmp_path, second=second)).rows("c").tobytes() == b"cccc"


def test_what_we_split_is_read_by_gguf_py_and_by_us(tmp_path: Path) -> None:
    arrays = {f"t{i}": np.arange(i, i + 40, dtype=np.float32) for i in range(7)}
    sources = [array_source(name, values) for name, values in arrays.items()]
    metadata = {"general.architecture": "x", "general.alignment": 64, "k": ["a", "b"]}
    paths = write_gguf(tmp_path / "w.gguf", metadata, sources, split=SplitRule(max_tensors=3))
    assert [path.name for path in paths] == [f"w-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    assert sorted(tmp_path.iterdir()) == paths
    assert [len(GGUFReader(path).tensors) for path in paths] == [3, 3, 1]
    for path in paths:
        for tensor in GGUFReader(path).tensors:
            assert np.array_equal(tensor.data, arrays[tensor.name])
    file = open_gguf(paths[0])
    assert list(file.tensors) == list(arrays)
    assert all(np.array_equal(file.rows(name).view("<f4")[0], values) for name, values in arrays.items())
    merged = write_gguf(tmp_path / "merged.gguf", file.metadata, [file_source(file, name) for name in file.tensors])
    whole = write_gguf(tmp_path / "whole.gguf", metadata, sources)
    assert merged[0].read_bytes() == whole[0].read_bytes()


def test_splitting_by_bytes(tmp_path: Path) -> None:
    sizes = [10, 20, 100, 10, 30]
    sources = [array_source(f"t{i}", np.zeros(n, np.int8)) for i, n in enumerate(sizes)]
    paths = write_gguf(tmp_path / "w.gguf", {}, sources, split=SplitRule(max_bytes=40))
    assert [[t.name for t in GGUFReader(path).tensors] for path in paths] == [["t0", "t1"], ["t2"], ["t3", "t4"]]
    assert write_gguf(tmp_path / "one.gguf", {}, sources, split=SplitRule(max_bytes=170)) == [tmp_path / "one.gguf"]


def test_what_gguf_py_splits_is_read_by_us(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "g.gguf", "x", split_max_tensors=2)
    for i in range(5):
        writer.add_tensor(f"t{i}", np.full((3, 4), i, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = open_gguf(tmp_path / "g-00001-of-00003.gguf")
    assert [float(file.rows(f"t{i}").view("<f4").mean()) for i in range(5)] == [0, 1, 2, 3, 4]
    assert dict(file.metadata) == {"general.architecture": "x"}
