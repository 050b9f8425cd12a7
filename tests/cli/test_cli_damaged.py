"""Files that are cut or lie about their size: every command says how much is missing, and writes nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cli_calls import error_line, minfer

from minfer_models.gguf import SplitRule, file_source, open_gguf, write_gguf
from minfer_models.loading import load
from minfer_models.synthetic import SyntheticModel, write_model
from tools.fuzzing.document import Document, Info, parse

READERS: dict[str, tuple[str, ...]] = {
    "run": ("run", "IN", "-p", "hi"),
    "trace": ("trace", "IN", "-p", "hi"),
    "dump": ("dump", "IN", "--stage", "build"),
    "quantize": ("quantize", "IN", "OUT", "--type", "Q4_0"),
    "split": ("split", "IN", "OUT", "--max-tensors", "3"),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Untied, so that the head is a tensor of its own, the last but the blocks'."""
    model = SyntheticModel(n_blocks=1, width=64, ffn_width=64, tied=False, weights="F16", n_ctx_train=64)
    return write_model(tmp_path_factory.mktemp("whole") / "whole.gguf", model)


def refusal(command: str, path: Path, folder: Path) -> str:
    """The one line of a command that fails; nothing new lies in the folder afterwards."""
    before = sorted(folder.iterdir())
    words = {"IN": str(path), "OUT": str(folder / "out.gguf")}
    line = error_line(minfer(*(words.get(word, word) for word in READERS[command])))
    assert sorted(folder.iterdir()) == before
    return line


@pytest.mark.parametrize("command", READERS)
def test_a_download_that_stopped(command: str, whole: Path, tmp_path: Path) -> None:
    content, path = whole.read_bytes(), tmp_path / "cut.gguf"
    for kept in (len(content) - 1, len(content) * 9 // 10, len(content) // 200 + 40):
        path.write_bytes(content[:kept])
        line = refusal(command, path, tmp_path)
        assert "file is shorter than declared by" in line
        assert "(incomplete download?)" in line
    path.write_bytes(content[:-1])
    assert "file is shorter than declared by 1 bytes (incomplete download?)" in refusal(command, path, tmp_path)


@pytest.mark.parametrize("command", READERS)
def test_half_of_a_split_download(command: str, whole: Path, tmp_path: Path) -> None:
    """As browsers and hubs cut files: no shards of ours, only bytes."""
    path = tmp_path / "model.gguf.part1of2"
    path.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    assert "(incomplete download?)" in refusal(command, path, tmp_path)
    path.write_bytes(whole.read_bytes()[whole.stat().st_size // 2 :])
    assert "not a GGUF file" in refusal(command, path, tmp_path)


@pytest.mark.parametrize("command", READERS)
def test_a_tensor_past_the_end_is_never_read(command: str, whole: Path, tmp_path: Path) -> None:
    """A gigabyte declared over 64 bytes: what lies behind the mapping must not get into a new file."""
    document = parse(whole.read_bytes())
    lying = Document(document.keys, [Info(b"token_embd.weight", (64, 1 << 23), 1, 0)], bytes(64))
    path = tmp_path / "lying.gguf"
    path.write_bytes(lying.encoded())
    line = refusal(command, path, tmp_path)
    assert f"its {1 << 30} bytes at data offset 0 do not fit in the 64 bytes of tensor data" in line
    flat = Document(document.keys, [Info(b"token_embd.weight", (64, 0), 0, 0)], bytes(64))
    path.write_bytes(flat.encoded())
    assert "tensor 'token_embd.weight': dimension 1 is 0" in refusal(command, path, tmp_path)


def test_a_head_in_another_shard_is_found(whole: Path, tmp_path: Path) -> None:
    """What a model has is asked of all shards together, not of the first."""
    with open_gguf(whole) as file:
        names = [name for name in file.tensors if name != "output.weight"] + ["output.weight"]
        sources = [file_source(file, name) for name in names]
        shards = write_gguf(tmp_path / "m.gguf", file.metadata, sources, split=SplitRule(max_tensors=len(names) - 1))
    with load(whole, device="numpy") as one, load(shards[0], device="numpy") as split:
        assert len(shards) == 2
        assert np.array_equal(one.logits([1, 2, 3]), split.logits([1, 2, 3]))
    shards[1].unlink()
    assert "1 of 2 shards are missing: m-00002-of-00002.gguf" in refusal("run", shards[0], tmp_path)
