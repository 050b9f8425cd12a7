"""`minfer convert`, `split` and `merge` as a user meets them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_calls import error_line, minfer, usage_error

from minfer_models.cli.split import parse_size
from minfer_models.gguf import open_gguf

sys.path.append(str(Path(__file__).resolve().parents[1] / "convert"))
from hf_folders import make_model, write_folder


@pytest.fixture(autouse=True, scope="module")
def unflushed() -> Iterator[None]:
    """Waiting for the disk took most of these tests' time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("minfer_models.gguf.writer.os.fsync", lambda _descriptor: None)
        yield


@pytest.fixture(scope="module")
def hf_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("hf") / "tiny-qwen2", make_model("qwen2", intermediate_size=80))


def test_from_a_folder_to_an_answer(hf_folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "m.gguf"
    done = minfer("convert", hf_folder, target)
    assert (done.code, done.err) == (0, "")
    assert done.out == f"{target}: {target.stat().st_size / 2**20:.1f} MiB\n"
    shards = minfer("split", target, tmp_path / "s", "--max-tensors", "12")
    assert shards.out.splitlines()[0].startswith(f"{tmp_path / 's-00001-of-00003.gguf'}: ")
    merged = minfer("merge", tmp_path / "s-00001-of-00003.gguf", tmp_path / "again.gguf")
    assert (merged.code, merged.err) == (0, "")
    assert (tmp_path / "again.gguf").read_bytes() == target.read_bytes()
    quantized = minfer("quantize", target, tmp_path / "q.gguf", "--type", "Q4_0")
    assert quantized.code == 0, quantized.err
    with open_gguf(tmp_path / "q.gguf") as file:
        assert file.tensors["blk.0.attn_q.weight"].type_name == "Q4_0"
    runs = [
        minfer("run", path, "-p", "he who", "-n", "4", "--chat", "--temp", "0", "--json")
        for path in (target, tmp_path / "s-00001-of-00003.gguf", tmp_path / "q.gguf")
    ]
    assert [run.code for run in runs] == [0, 0, 0]
    assert runs[0].json()["token_ids"] == runs[1].json()["token_ids"] != []
    assert len(runs[2].json()["token_ids"]) == 4
    talk = minfer("chat", tmp_path / "q.gguf", "-n", "3", "--temp", "0", stdin=b"he who\n/stats\n")
    assert talk.code == 0
    assert "messages: 2" in talk.err
    assert runs[2].json()["text"].startswith(talk.out.rstrip("\n"))  # the same template, three tokens of the four


def test_rows_that_cannot_have_the_type_are_told(hf_folder: Path, tmp_path: Path) -> None:
    done = minfer("convert", hf_folder, tmp_path / "m.gguf", "--type", "q8_0")
    assert done.err == "minfer: blk.0.ffn_down.weight and 1 more: F16, for rows that aren't whole blocks of q8_0\n"
    with open_gguf(tmp_path / "m.gguf") as file:
        assert {info.type_name for info in file.tensors.values()} == {"Q8_0", "F16", "F32"}


def test_errors_are_one_line(hf_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "there.gguf").write_text("mine")
    assert error_line(minfer("convert", hf_folder, tmp_path / "there.gguf")) == (
        f"minfer: {tmp_path / 'there.gguf'}: exists already; "
        "name another file, or say that it may be replaced (--force)"
    )
    assert minfer("convert", hf_folder, tmp_path / "there.gguf", "--force").code == 0
    assert error_line(minfer("split", tmp_path / "there.gguf", ".", "--max-tensors", 5)) == (
        "minfer: .: names no file: shards are called after it"
    )
    assert "config.json: is missing" in error_line(minfer("convert", tmp_path, tmp_path / "m.gguf"))
    assert "is not split" in error_line(minfer("merge", tmp_path / "there.gguf", tmp_path / "m.gguf"))
    assert "fit in one shard" in error_line(
        minfer("split", tmp_path / "there.gguf", tmp_path / "s", "--max-size", "1G")
    )
    assert [path.name for path in tmp_path.iterdir()] == ["there.gguf"]


def test_wrong_command_lines(hf_folder: Path, tmp_path: Path) -> None:
    assert "say how to cut: --max-size or --max-tensors" in usage_error(minfer("split", "a.gguf", "b"))
    assert "'q4_0' is not one of 'auto', 'f32'" in usage_error(
        minfer("convert", hf_folder, tmp_path / "m.gguf", "--type", "q4_0")
    )
    for size in ("0", "-1", "2T", "1.5G", "M", "1e9"):
        told = usage_error(minfer("split", "a.gguf", "b", f"--max-size={size}"))
        assert f"--max-size {size!r} is not a size such as 500M or 2G" in told


def test_sizes_are_decimal_as_in_gguf_split() -> None:
    assert [parse_size(text) for text in ("7", "3K", "500M", "2g", " 1G ")] == [7, 3000, 500 * 10**6, 2 * 10**9, 10**9]
