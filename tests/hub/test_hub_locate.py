from __future__ import annotations

import re
from pathlib import Path

import pytest

from minfer_models.hub import LocateError, locate
from minfer_models.settings import Settings

NOWHERE = Settings(cache_dir=Path("/nonexistent"), hf_endpoint="http://127.0.0.1:9")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("smollm2-q4.gguf", "qwen3-q8.GGUF", "notes.txt"):
        (tmp_path / name).write_bytes(b"x")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refusal(model: str | Path) -> str:
    with pytest.raises(LocateError) as caught:
        locate(model, NOWHERE)
    return str(caught.value)


def test_a_path_that_exists_is_itself(folder: Path) -> None:
    assert locate("smollm2-q4.gguf", NOWHERE) == Path("smollm2-q4.gguf")
    assert locate(folder / "notes.txt", NOWHERE) == folder / "notes.txt"
    assert locate("./smollm2-q4.gguf", NOWHERE).read_bytes() == b"x"


def test_a_tilde_is_the_home_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder))
    assert locate("~/smollm2-q4.gguf", NOWHERE) == folder / "smollm2-q4.gguf"


def test_a_path_wins_over_a_hub_name(folder: Path) -> None:
    (folder / "acme").mkdir()
    (folder / "acme" / "tiny").write_bytes(b"local")
    assert locate("acme/tiny", NOWHERE).read_bytes() == b"local"


def test_a_misspelled_file_suggests_its_neighbour(folder: Path) -> None:
    assert refusal("smolm2-q4.gguf") == "no such file: smolm2-q4.gguf; did you mean smollm2-q4.gguf?"
    full = folder / "qwen3-q4.gguf"
    assert refusal(full) == f"no such file: {full}; did you mean {folder / 'qwen3-q8.GGUF'}?"


def test_a_misspelled_demo_suggests_demo(folder: Path) -> None:
    assert refusal("demmo") == "no such file: demmo; did you mean demo?"


def test_nothing_near_lists_what_there_is(folder: Path) -> None:
    message = refusal("zzz.bin")
    assert "GGUF files there: qwen3-q8.GGUF, smollm2-q4.gguf" in message
    assert "owner/repo:TAG or demo" in message
    (folder / "empty").mkdir()
    assert f"no GGUF file is in {folder / 'empty'}" in refusal("empty/zzz.gguf")


def test_a_folder_lists_its_models(folder: Path) -> None:
    assert refusal(folder) == (
        f"{folder} is a folder; name one of its GGUF files: {folder / 'qwen3-q8.GGUF'}, {folder / 'smollm2-q4.gguf'}"
    )
    (folder / "empty").mkdir()
    assert refusal("empty") == "empty is a folder without GGUF files; MODEL is a file, owner/repo:TAG or demo"


def test_a_missing_folder_is_named(folder: Path) -> None:
    assert refusal("/no/such/place/a.gguf") == "no such file: /no/such/place/a.gguf (there is no folder /no/such/place)"
    assert refusal("modells/a.gguf") == "no such file: modells/a.gguf (there is no folder modells)"


def test_a_name_without_tag_under_an_existing_folder_is_a_path(folder: Path) -> None:
    (folder / "models").mkdir()
    (folder / "models" / "tiny.gguf").write_bytes(b"x")
    assert refusal("models/tiny") == f"no such file: models/tiny; did you mean {Path('models/tiny.gguf')}?"


def test_a_hub_name_is_asked_for_at_the_hub(folder: Path) -> None:
    assert re.search(
        r"http://127\.0\.0\.1:9 cannot be reached .* nothing of acme/tiny is in", refusal("acme/tiny:Q8_0")
    )
