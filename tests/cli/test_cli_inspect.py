"""`minfer inspect`: what a file holds, what it needs, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest
from cli_calls import error_line, minfer

from minfer_models import load
from minfer_models.engine import TokenSequence
from minfer_models.gguf import open_gguf, write_gguf
from minfer_models.synthetic import byte_vocabulary


def test_text_shows_the_model_its_metadata_types_and_memory(tiny: Path) -> None:
    outcome = minfer("inspect", tiny, "--n-ctx", 128)
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert lines[0].startswith("tiny-Q4_0.gguf: GGUF v3, ")
    assert "architecture: llama, 2 blocks, width 256, feed-forward 512" in lines
    assert "attention: 4 heads, 2 KV heads of 64, rope base 10000" in lines
    assert "supported: yes" in lines
    assert "memory on cpu at n_ctx 128, KV cells f16, forwards of 1 and 128 rows" in lines
    tokens = next(line for line in lines if line.split()[:1] == ["tokenizer.ggml.tokens"])
    n_vocab = len(byte_vocabulary()["tokenizer.ggml.tokens"])
    assert tokens.endswith(f", ... {n_vocab} in all]")


def test_json_agrees_with_the_gguf_package(smollm2: Path) -> None:
    result = minfer("inspect", smollm2, "--json").json()
    reader = gguf.GGUFReader(smollm2)
    by_type: dict[str, int] = {}
    for tensor in reader.tensors:
        by_type[tensor.tensor_type.name] = by_type.get(tensor.tensor_type.name, 0) + int(tensor.n_bytes)
    assert {t["type"]: t["nbytes"] for t in result["types"]} == by_type
    assert {t["name"]: (t["type"], t["shape"], t["bytes"]) for t in result["tensors"]} == {
        t.name: (t.tensor_type.name, [int(n) for n in t.shape[::-1]], int(t.n_bytes)) for t in reader.tensors
    }
    assert result["parameters"] == sum(int(t.n_elements) for t in reader.tensors)
    assert set(result["metadata"]) == {name for name in reader.fields if not name.startswith("GGUF.")}
    tokens = result["metadata"]["tokenizer.ggml.tokens"]["value"]
    assert (tokens["n"], len(tokens["first"])) == (49152, 4)
    assert (result["incomplete"], result["supported"], result["reasons"]) == (False, True, [])


def test_the_context_is_called_as_everywhere(tiny: Path) -> None:
    calls = [minfer("inspect", tiny, "--json", option, 64).json()["memory"] for option in ("--n-ctx", "--ctx", "-c")]
    assert [memory["n_ctx"] for memory in calls] == [64] * 3


@pytest.mark.parametrize("n_ctx", [512, 200])
def test_the_memory_foretold_is_what_an_engine_holds(tiny: Path, n_ctx: int) -> None:
    foretold = minfer("inspect", tiny, "--json", "--n-ctx", n_ctx, "--kv", "f32").json()["memory"]
    with load(tiny, n_ctx=n_ctx, kv="f32", threads=1) as llm, TokenSequence(llm.engine) as sequence:
        sequence.feed([1] * llm.engine.chunk)
        (report,) = llm.engine.memory()
    assert (foretold["weights"], foretold["kv"], foretold["pool"]) == (report.weights, report.kv, report.pool)
    assert foretold["total"] == report.total


def test_short_data_is_incomplete_with_its_header_shown(tiny: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(tiny.read_bytes()[:-1000])
    outcome = minfer("inspect", cut)
    assert outcome.code == 3
    assert any(line.startswith("INCOMPLETE: ") and "1000 bytes" in line for line in outcome.out.splitlines())
    assert "architecture: llama, 2 blocks, width 256, feed-forward 512" in outcome.out
    result = minfer("inspect", cut, "--json").json()
    assert (result["incomplete"], result["missing_bytes"], result["supported"]) == (True, 1000, True)
    assert result["memory"] == minfer("inspect", tiny, "--json").json()["memory"]


def test_a_cut_header_is_incomplete_on_one_line(tiny: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(tiny.read_bytes()[:900])
    outcome = minfer("inspect", cut)
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (3, "", 1)
    assert outcome.err.startswith("minfer: INCOMPLETE, the header is cut off: ")


def test_what_is_no_gguf_file_is_one_line(tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    other.write_bytes(b"PK\x03\x04" * 100)
    assert "not a GGUF file" in error_line(minfer("inspect", other))


def test_a_model_that_can_t_be_run_says_why(tiny: Path, tmp_path: Path) -> None:
    unknown = tmp_path / "unknown.gguf"
    with open_gguf(tiny) as file:
        entries = {**dict(file.metadata), "general.architecture": "mamba"}
    write_gguf(unknown, {k: entries[k] for k in ("general.architecture", "tokenizer.ggml.model")}, [])
    outcome = minfer("inspect", unknown)
    assert outcome.code == 0
    assert "supported: no" in outcome.out
    assert "key 'general.architecture': is 'mamba'; known: llama, qwen2, qwen3" in outcome.out
    assert minfer("inspect", unknown, "--json").json()["memory"] is None


def test_tensors_lists_every_tensor(tiny: Path) -> None:
    listed = minfer("inspect", tiny, "--tensors").out
    with open_gguf(tiny) as file:
        assert all(f"  {name} " in listed for name in file.tensors)
