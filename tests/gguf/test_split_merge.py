"""Cutting into shards and joining again: nothing is lost, nothing is half there, and no source is written over."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader
from gguf_bytes import I32, TENSOR_I8, U16, build, info, kv, u32
from gguf_strategies import RandomTensor, metadatas, tensors
from hostile_files import all_hostile
from hypothesis import given, settings
from hypothesis import strategies as st

from minfer_models.gguf import (
    GGUFError,
    SplitRule,
    TensorSource,
    TypedValue,
    array_source,
    merge_gguf,
    open_gguf,
    split_gguf,
    write_gguf,
)

TWO_EACH = SplitRule(max_tensors=2)


@pytest.fixture(autouse=True, scope="module")
def unflushed() -> Iterator[None]:
    """Waiting for the disk took most of these tests' time, and none of them asks what a power cut leaves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("minfer_models.gguf.writer.os.fsync", lambda _descriptor: None)
        yield


def whole(folder: Path, n_tensors: int = 5, name: str = "whole.gguf") -> Path:
    sources = [array_source(f"t{i}", np.full((3, 5), i, np.float32)) for i in range(n_tensors)]
    return write_gguf(folder / name, {"general.architecture": "x", "k": ["a", "b"]}, sources)[0]


def source(tensor: RandomTensor) -> TensorSource:
    return array_source(tensor.name, tensor.rows, tensor.ggml_type, tensor.shape)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def shard_names(stem: str, count: int) -> list[str]:
    return [f"{stem}-{i:05d}-of-{count:05d}.gguf" for i in range(1, count + 1)]


RULES = st.builds(
    SplitRule,
    max_bytes=st.none() | st.integers(1, 200),
    max_tensors=st.integers(1, 3),
    metadata_alone=st.booleans(),
)


@settings(max_examples=20)
@given(metadatas(), tensors(), RULES)
def test_what_was_split_merges_to_the_same_bytes(
    metadata: dict[str, TypedValue], content: list[RandomTensor], rule: SplitRule
) -> None:
    sources = [source(tensor) for tensor in content]
    if len(rule.groups(sources)) < 2:
        return
    with tempfile.TemporaryDirectory() as folder:
        (path,) = write_gguf(Path(folder) / "a.gguf", metadata, sources)
        paths = split_gguf(path, Path(folder) / "b", rule)
        assert [p.name for p in paths] == shard_names("b", len(rule.groups(sources)))
        merged = merge_gguf(paths[0], Path(folder) / "c.gguf")
        assert merged.read_bytes() == path.read_bytes()


def test_shards_are_what_gguf_split_makes(tmp_path: Path) -> None:
    """split.no from 0 and names from 1, the types that llama.cpp reads, metadata in the first shard only."""
    paths = split_gguf(whole(tmp_path), tmp_path / "s", TWO_EACH)
    readers = [GGUFReader(path) for path in paths]
    for no, reader in enumerate(readers):
        fields = {key: reader.fields[key] for key in ("split.no", "split.count", "split.tensors.count")}
        assert {key: field.contents() for key, field in fields.items()} == {
            "split.no": no,
            "split.count": 3,
            "split.tensors.count": 5,
        }
        assert [field.types[0].name for field in fields.values()] == ["UINT16", "UINT16", "INT32"]
    assert ["k" in reader.fields for reader in readers] == [True, False, False]
    assert [[t.name for t in reader.tensors] for reader in readers] == [["t0", "t1"], ["t2", "t3"], ["t4"]]
    values = {t.name: t.data for reader in readers for t in reader.tensors}
    assert all(np.array_equal(values[f"t{i}"], np.full((3, 5), i, np.float32)) for i in range(5))


def test_metadata_in_a_shard_of_its_own(tmp_path: Path) -> None:
    paths = split_gguf(whole(tmp_path), tmp_path / "s", SplitRule(max_tensors=5, metadata_alone=True))
    assert [len(GGUFReader(path).tensors) for path in paths] == [0, 5]
    assert list(open_gguf(paths[0]).tensors) == [f"t{i}" for i in range(5)]


def test_a_split_file_is_cut_anew(tmp_path: Path) -> None:
    first = split_gguf(whole(tmp_path), tmp_path / "s", TWO_EACH)[0]
    paths = split_gguf(first, tmp_path / "finer", SplitRule(max_tensors=1))
    assert [path.name for path in paths] == shard_names("finer", 5)
    assert merge_gguf(paths[0], tmp_path / "m.gguf").read_bytes() == (tmp_path / "whole.gguf").read_bytes()


def test_what_merging_elsewhere_leaves_behind_is_no_obstacle(tmp_path: Path) -> None:
    """gguf-split --merge leaves split.count = 0 in the file."""
    keys = [kv("split.no", U16, bytes(2)), kv("split.count", U16, bytes(2)), kv("split.tensors.count", I32, u32(2))]
    infos = [info(name, (4,), TENSOR_I8, 32 * i) for i, name in enumerate("ab")]
    (tmp_path / "merged.gguf").write_bytes(build(keys, infos, b"aaaa" + bytes(28) + b"bbbb" + bytes(28)))
    paths = split_gguf(tmp_path / "merged.gguf", tmp_path / "s", SplitRule(max_tensors=1))
    assert [GGUFReader(path).fields["split.count"].contents() for path in paths] == [2, 2]
    assert dict(open_gguf(merge_gguf(paths[0], tmp_path / "m.gguf")).metadata) == {}


def test_one_shard_is_no_split(tmp_path: Path) -> None:
    path = whole(tmp_path)
    with pytest.raises(GGUFError, match=r"whole.gguf: all of its 5 tensors \(300 bytes\) fit in one shard"):
        split_gguf(path, tmp_path / "s", SplitRule(max_tensors=5))
    with pytest.raises(GGUFError, match=r"whole.gguf: is not split: there is nothing to merge"):
        merge_gguf(path, tmp_path / "m.gguf")
    assert names(tmp_path) == ["whole.gguf"]


def test_a_file_that_exists_is_kept_unless_asked(tmp_path: Path) -> None:
    path = whole(tmp_path)
    (tmp_path / "s-00002-of-00003.gguf").write_text("mine")
    with pytest.raises(GGUFError, match=r"s-00002-of-00003.gguf: exists already"):
        split_gguf(path, tmp_path / "s", TWO_EACH)
    assert names(tmp_path) == ["s-00002-of-00003.gguf", "whole.gguf"]
    paths = split_gguf(path, tmp_path / "s", TWO_EACH, overwrite=True)
    (tmp_path / "m.gguf").write_text("mine")
    with pytest.raises(GGUFError, match=r"m.gguf: exists already"):
        merge_gguf(paths[0], tmp_path / "m.gguf")
    assert (tmp_path / "m.gguf").read_text() == "mine"
    assert merge_gguf(paths[0], tmp_path / "m.gguf", overwrite=True).read_bytes() == path.read_bytes()


def test_no_source_is_written_over(tmp_path: Path) -> None:
    paths = split_gguf(whole(tmp_path), tmp_path / "s", TWO_EACH)
    before = [path.read_bytes() for path in paths]
    (tmp_path / "link.gguf").symlink_to(paths[1])
    for target in (tmp_path / "link.gguf", tmp_path / "x" / ".." / "link.gguf"):
        (tmp_path / "x").mkdir(exist_ok=True)
        with pytest.raises(GGUFError, match=r"link.gguf: is what is read"):
            merge_gguf(paths[0], target, overwrite=True)
    with pytest.raises(GGUFError, match=r"s-00002-of-00003.gguf: is named like one of 3 shards"):
        merge_gguf(paths[0], paths[1], overwrite=True)
    with pytest.raises(GGUFError, match=r"s-00001-of-00003.gguf: is what is read"):
        split_gguf(paths[0], tmp_path / "s", TWO_EACH, overwrite=True)
    assert [path.read_bytes() for path in paths] == before


@pytest.mark.parametrize("place", ["missing/s", "whole.gguf/s"])
def test_a_folder_that_is_not_there(tmp_path: Path, place: str) -> None:
    path = whole(tmp_path)
    with pytest.raises(GGUFError, match=r"there is no folder"):
        split_gguf(path, tmp_path / place, TWO_EACH)


def test_all_shards_or_none_when_a_name_cannot_be_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = whole(tmp_path)
    given_names: list[str] = []
    replace = Path.replace

    def failing(self: Path, target: Path) -> Path:
        if len(given_names) == 2:
            raise OSError(28, "No space left on device")
        given_names.append(target.name)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", failing)
    with pytest.raises(OSError, match="No space left"):
        split_gguf(path, tmp_path / "s", TWO_EACH)
    assert given_names == shard_names("s", 3)[:2]
    assert names(tmp_path) == ["whole.gguf"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_nothing_is_left_of_a_copy_that_stops(tmp_path: Path, error: type[BaseException]) -> None:
    path = whole(tmp_path)
    seen: list[str] = []

    def hear(tensor: str, nbytes: int) -> None:
        seen.append(tensor)
        if tensor == "t3":
            assert any(name.endswith(".tmp") for name in names(tmp_path))
            raise error

    with pytest.raises(error):
        split_gguf(path, tmp_path / "s", TWO_EACH, hear=hear)
    assert seen == ["t0", "t1", "t2", "t3"]
    assert names(tmp_path) == ["whole.gguf"]


def test_a_full_disk_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    path = whole(tmp_path)
    monkeypatch.setattr("minfer_models.gguf.writer.os.fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        split_gguf(path, tmp_path / "s", TWO_EACH)
    assert caught.value.filename == str(tmp_path / "s-00001-of-00003.gguf")
    assert names(tmp_path) == ["whole.gguf"]


def _without(paths: Sequence[Path]) -> str:
    paths[1].unlink()
    return r"s-00002-of-00003.gguf: 1 of 3 shards are missing"


def _cut_short(paths: Sequence[Path]) -> str:
    paths[2].write_bytes(paths[2].read_bytes()[:-40])
    return r"s-00003-of-00003.gguf: tensor 't4': .*shorter than declared by 36 bytes \(incomplete download\?\)"


def _swapped(paths: Sequence[Path]) -> str:
    shutil.copy(paths[2], paths[1])
    return r"s-00002-of-00003.gguf: key 'split.no': is 2 \(counted from 0\) of 3, but the file's name says 2"


def _of_another(paths: Sequence[Path]) -> str:
    (paths[0].parent / "other").mkdir()
    other = split_gguf(whole(paths[0].parent / "other", 6), paths[0].parent / "other" / "s", TWO_EACH)
    shutil.copy(other[1], paths[1])
    return r"s-00002-of-00003.gguf: key 'split.tensors.count': is 6, but the first shard says 5"


@pytest.mark.parametrize("damage", [_without, _cut_short, _swapped, _of_another])
def test_a_shard_that_lacks_or_disagrees_is_named(tmp_path: Path, damage: object) -> None:
    paths = split_gguf(whole(tmp_path), tmp_path / "s", TWO_EACH)
    message = damage(paths)  # type: ignore[operator]
    with pytest.raises(GGUFError, match=message):
        merge_gguf(paths[0], tmp_path / "m.gguf")
    assert not any(name.startswith(("m.gguf", ".m.gguf")) for name in names(tmp_path))


def test_another_shard_than_the_first(tmp_path: Path) -> None:
    paths = split_gguf(whole(tmp_path), tmp_path / "s", TWO_EACH)
    with pytest.raises(GGUFError, match=r"shard 2 of 3; open the first one, s-00001-of-00003.gguf"):
        merge_gguf(paths[1], tmp_path / "m.gguf")


def test_hostile_files_leave_no_shard(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    for name, hostile in all_hostile().items():
        path = tmp_path / "h.gguf"
        path.write_bytes(hostile.content)
        if hostile.size > len(hostile.content):
            with path.open("r+b") as file:
                file.truncate(hostile.size)
        with pytest.raises(GGUFError):
            split_gguf(path, tmp_path / "out" / "s", SplitRule(max_tensors=1))
        assert names(tmp_path / "out") == [], name


def test_pages_are_let_go_while_a_large_file_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minfer_models.gguf.copying.PIECE_BYTES", 40)
    monkeypatch.setattr("minfer_models.gguf.copying.RELEASE_EVERY", 100)
    released: list[None] = []
    monkeypatch.setattr("minfer_models.gguf.reader.GGUFFile.release_pages", lambda _file: released.append(None))
    path = whole(tmp_path)
    heard: list[tuple[str, int]] = []
    paths = split_gguf(path, tmp_path / "s", TWO_EACH, hear=lambda *piece: heard.append(piece))
    assert heard[:3] == [("t0", 40), ("t0", 20), ("t1", 40)]
    assert len(released) == 300 // 120
    assert merge_gguf(paths[0], tmp_path / "m.gguf").read_bytes() == path.read_bytes()
