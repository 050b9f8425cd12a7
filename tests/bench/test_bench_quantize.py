"""`minfer-bench quantize`: each type's file, its size and what it does to the predictions; nothing is left behind."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minfer_models import load
from minfer_models.gguf import open_gguf, quantize_gguf
from minfer_models.scoring import compare
from minfer_models.synthetic import SyntheticModel, byte_vocabulary, write_model

Bench = Callable[..., Any]
TEXT = "Alice was beginning to get very tired of sitting by her sister on the bank, and of having nothing to do. " * 2


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "m-F32.gguf"
    return write_model(path, SyntheticModel(n_blocks=1, weights="F32", vocabulary=byte_vocabulary(), ffn_width=256))


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_each_type_is_what_quantize_writes_and_compare_says(
    model: Path, text: Path, tmp_path: Path, bench: Bench, valid: Callable[[str], Any]
) -> None:
    (tmp_path / "work").mkdir()
    done = bench(
        "quantize", model, text, "--types", "Q8_0,q4_0,Q8_0", "-c", 64, "--kv", "f32", "--folder", tmp_path / "work",
        "-t", 1, "-o", "json",
    )  # fmt: skip
    report = valid(done.stdout)
    assert list((tmp_path / "work").iterdir()) == []
    assert [row["type"] for row in report["types"]] == ["Q8_0", "Q4_0"]
    assert report["text_sha256"] == hashlib.sha256(TEXT.encode()).hexdigest()
    assert (report["ctx"], report["stride"], report["settings"]["kv"]) == (64, None, "f32")
    with load(model, n_ctx=64, kv="f32", threads=1) as reference:
        for row in report["types"]:
            made = quantize_gguf(model, tmp_path / f"{row['type']}.gguf", row["type"]).path
            with load(made, n_ctx=64, kv="f32", threads=1) as llm:
                wanted = compare(llm, reference, TEXT, 64)
            assert row["bytes"] == made.stat().st_size
            with open_gguf(made) as file:
                bits = 8 * sum(info.nbytes for info in file.tensors.values()) / file.n_elements
            assert row["bits_per_weight"] == pytest.approx(bits)
            found = row["comparison"]
            assert (found["kl"]["value"], found["kl_p99"], found["kl_max"]) == (
                wanted.kl.value, wanted.kl_p99, wanted.kl_max,
            )  # fmt: skip
            assert found["ppl"]["value"] == wanted.ppl.value
            assert report["ppl"]["value"] == wanted.reference_ppl.value
    eight, four = report["types"]
    assert 0 < eight["comparison"]["kl"]["value"] < four["comparison"]["kl"]["value"]
    assert (eight["fallbacks"], four["fallbacks"]) == (0, 0)


def test_the_table_has_the_model_and_every_type(model: Path, text: Path, bench: Bench) -> None:
    lines = bench("quantize", model, text, "--types", "F16,Q4_0", "-c", 32, "--stride", 16).stdout.splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[:5]]
    assert cells[0] == [
        "type", "MiB", "bits a weight", "perplexity", "KL mean", "KL 99 %", "KL max", "same likeliest",
    ]  # fmt: skip
    assert [row[0] for row in cells[2:]] == ["the model", "F16", "Q4_0"]
    assert (cells[2][2], cells[2][4:]) == ("32.00", ["", "", "", ""])
    assert cells[4][7].endswith(" %")
    assert "(windows of 32 tokens, one every 16)" in "\n".join(lines)


def test_csv_is_flat(model: Path, text: Path, bench: Bench) -> None:
    (row,) = csv.DictReader(
        bench("quantize", model, text, "--types", "Q4_0", "-c", 32, "-o", "csv").stdout.splitlines()
    )
    assert (row["type"], row["ctx"], row["model"]) == ("Q4_0", "32", model.name)
    assert float(row["kl"]) > float(row["kl_error"]) > 0


def test_what_is_wrong_is_told_before_anything_is_written(
    model: Path, text: Path, tmp_path: Path, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minfer_models.bench.quantize.measure.write_quantized", None)
    unknown = bench("quantize", model, text, "--types", "Q8_0,Q4_Z")
    assert (unknown.exit_code, "can't be quantized to 'Q4_Z'" in unknown.stderr) == (2, True)
    (tmp_path / "empty").mkdir()
    short = bench("quantize", model, text, "-c", 200, "--folder", tmp_path / "empty")
    assert (short.exit_code, "perplexity over a context of 200 needs at least 400" in short.stderr) == (1, True)
    eight = quantize_gguf(model, tmp_path / "eight.gguf", "Q8_0").path
    again = bench("quantize", eight, text, "--types", "Q4_0", "-c", 32)
    assert (again.exit_code, "is quantized already (Q8_0)" in again.stderr) == (1, True)
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    latin = bench("quantize", model, tmp_path / "latin")
    assert (latin.exit_code, "isn't UTF-8: unexpected end of data at byte 3" in latin.stderr) == (1, True)
    assert list((tmp_path / "empty").iterdir()) == []
