"""Long arrays of strings: read as a whole where they can be, and with the same result as one by one."""

from __future__ import annotations

from pathlib import Path

import pytest
from gguf_bytes import STRING, U8, array, build, kv, string
from hypothesis import example, given
from hypothesis import strategies as st

from minfer_models.gguf import GGUFError, open_gguf
from minfer_models.gguf.cursor import Cursor
from minfer_models.gguf.strings import StringArray

ODD = ["", "\0", "\0" * 9, "\1", "é", "日本", "x" * 255, "x" * 256]
TEXTS = st.lists(st.one_of(st.text(max_size=12), st.sampled_from(ODD)))


@given(texts=TEXTS)
@example(texts=["a"] * 300)
@example(texts=["\0\0\0\0\0\0\0\0", "b"])
@example(texts=["", "é", ""])
@example(texts=["日" * 85, "x" * 128])
def test_strings_come_back(texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "strings.gguf"
    payload = b"".join(map(string, texts))
    path.write_bytes(build([array("k", STRING, len(texts), payload), kv("after", U8, b"\7")]))
    with open_gguf(path) as file:
        found = file.metadata["k"]
        assert isinstance(found, StringArray)
        assert found.blob == payload
        assert list(found) == texts
        assert [found[i] for i in range(len(found))] == texts
        assert file.metadata["after"] == 7


@pytest.mark.parametrize("halves", [(b"\xc3", b"\xa9"), (b"a\xe6\x97", b"\xa5b")])
def test_a_character_cut_in_two_is_refused(halves: tuple[bytes, bytes], tmp_path: Path) -> None:
    """Both halves together are UTF-8, neither is alone."""
    path = tmp_path / "cut.gguf"
    texts = [b"fine", *halves, b"fine"]
    path.write_bytes(build([array("k", STRING, len(texts), b"".join(map(string, texts)))]))
    with pytest.raises(GGUFError, match="string 1 of the array is not valid UTF-8"):
        open_gguf(path)


def test_a_vocabulary_is_read_as_a_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    texts = [f"Ġtoken{i}" for i in range(1000)]
    path = tmp_path / "whole.gguf"
    path.write_bytes(build([array("k", STRING, len(texts), b"".join(map(string, texts)))]))
    taken: list[bool] = []
    whole = Cursor._short_strings

    def observed(cursor: Cursor, count: int) -> StringArray | None:
        found = whole(cursor, count)
        taken.append(found is not None)
        return found

    monkeypatch.setattr(Cursor, "_short_strings", observed)
    with open_gguf(path) as file:
        assert list(file.metadata["k"]) == texts  # pyright: ignore[reportArgumentType]
    assert taken == [True]
