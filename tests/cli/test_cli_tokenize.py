"""`minfer tokenize`: ids, pieces and kinds of a text."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from cli_calls import MINFER, error_line, minfer, usage_error

from minfer_models.gguf import open_gguf, write_gguf
from minfer_models.synthetic import byte_vocabulary
from minfer_models.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a byte vocabulary whose BOS is a control token, and no tensors at all."""
    path = tmp_path_factory.mktemp("models") / "vocabulary.gguf"
    bos = {"tokenizer.ggml.bos_token_id": 256, "tokenizer.ggml.add_bos_token": True}
    write_gguf(path, {"general.architecture": "llama", **byte_vocabulary(), **bos}, [])
    return path


def test_a_line_for_every_token(vocabulary: Path) -> None:
    outcome = minfer("tokenize", vocabulary, "-p", 'a"é\n')
    assert outcome.code == 0
    assert outcome.out.splitlines() == [
        '    256  "<|endoftext|>"  control',
        '     97  "a"              normal',
        '     34  "\\""             normal',
        "    195  <c3>             normal",
        "    169  <a9>             normal",
        '     10  "\\n"             normal',
        "6 tokens",
    ]


def test_escapes_are_not_interpreted(vocabulary: Path) -> None:
    ids = minfer("tokenize", vocabulary, "--json", "--no-bos", "-p", r"a\n").json()["ids"]
    assert bytes(ids) == b"a\\n"


def test_json_agrees_with_the_tokenizer(smollm2: Path) -> None:
    text = "Hello 🦙<|im_end|>\r\n\0"
    result = minfer("tokenize", smollm2, "--json", "-p", "-", stdin=text.encode()).json()
    with open_gguf(smollm2) as file:
        tokenizer = Tokenizer.from_metadata(file.metadata)
    assert result["ids"] == [token["id"] for token in result["tokens"]] == tokenizer.encode(text)
    assert result["n_tokens"] == len(result["ids"])
    assert b"".join(bytes.fromhex(token["bytes"]) for token in result["tokens"]) == text.encode()
    assert [token["text"] for token in result["tokens"]][:1] == ["Hello"]
    assert None in [token["text"] for token in result["tokens"]]


def test_special_tokens_are_recognized_on_request(smollm2: Path) -> None:
    plain = minfer("tokenize", smollm2, "--json", "-p", "<|im_end|>").json()
    special = minfer("tokenize", smollm2, "--json", "--special", "-p", "<|im_end|>").json()
    assert {token["kind"] for token in plain["tokens"]} == {"normal"}
    assert special["tokens"] == [{"id": 2, "text": "<|im_end|>", "bytes": b"<|im_end|>".hex(), "kind": "control"}]


@pytest.mark.parametrize(("options", "first"), [((), 256), (("--bos",), 256), (("--no-bos",), 97)])
def test_bos_is_as_the_file_says_or_as_asked(vocabulary: Path, options: tuple[str, ...], first: int) -> None:
    assert minfer("tokenize", vocabulary, "--json", "-p", "a", *options).json()["ids"][0] == first


def test_a_file_is_read(vocabulary: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"ab\n")
    outcome = minfer("tokenize", vocabulary, "--json", "--no-bos", "-f", tmp_path / "text")
    assert outcome.json()["ids"] == [97, 98, 10]
    (tmp_path / "text").write_bytes(b"\xff")
    assert "isn't UTF-8" in error_line(minfer("tokenize", vocabulary, "-f", tmp_path / "text"))


def test_no_text_is_no_token(vocabulary: Path) -> None:
    assert minfer("tokenize", vocabulary, "--no-bos", "-p", "").out == "0 tokens\n"
    assert minfer("tokenize", vocabulary, "-p", "").out.splitlines()[-1] == "1 token"


def test_without_a_text_the_ways_are_named(vocabulary: Path) -> None:
    assert "-p TEXT" in usage_error(minfer("tokenize", vocabulary))


def test_a_vocabulary_that_cannot_be_run_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t5.gguf"
    write_gguf(path, {**byte_vocabulary(), "general.architecture": "llama", "tokenizer.ggml.model": "t5"}, [])
    assert "'t5' (SentencePiece Unigram)" in error_line(minfer("tokenize", path, "-p", "x"))


def test_json_loses_nothing_where_stdout_has_few_letters(smollm2: Path) -> None:
    command = [*MINFER, "tokenize", str(smollm2), "--json", "-p", "la llama é"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, timeout=120, check=True, env=environment)
    assert "".join(token["text"] for token in json.loads(done.stdout)["tokens"]) == "la llama é"
