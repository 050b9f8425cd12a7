"""`minfer perplexity`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_calls import error_line, minfer, usage_error

TEXT = "The rabbit-hole went straight on like a tunnel for some way. " * 5


@pytest.fixture
def text(tmp_path: Path) -> Path:
    file = tmp_path / "text.txt"
    file.write_text(TEXT)
    return file


def test_the_report_and_its_json_agree(tiny: Path, text: Path) -> None:
    found = minfer("perplexity", tiny, text, "-c", 64, "--json").json()
    assert (found["ctx"], found["windows"], found["tokens"], found["read"]) == (64, 4, 4 * 31, 4 * 64)
    lines = minfer("perplexity", tiny, text, "-c", 64).out.splitlines()
    assert lines[0] == f"perplexity {found['ppl']['value']:.4f} +/- {found['ppl']['error']:.5f}"
    assert lines[1].startswith("124 tokens scored in 4 windows, ")
    strided = minfer("perplexity", tiny, text, "-c", 64, "--stride", 32, "--json").json()
    assert (strided["stride"], strided["tokens"]) == (32, 32 * strided["windows"])


def test_the_same_file_under_other_settings(tiny: Path, text: Path) -> None:
    same = minfer("perplexity", tiny, text, "-c", 64, "--against", tiny, "--json").json()
    assert (same["kl_max"], same["same_top1"]["value"]) == (0.0, 1.0)
    other = minfer("perplexity", tiny, text, "-c", 64, "--against", tiny, "--against-kv", "q8_0", "--json").json()
    assert 0 < other["kl"]["value"] < other["kl_p99"] <= other["kl_max"] < 0.1
    assert other["ppl"] == same["ppl"] != other["reference_ppl"]
    shown = minfer("perplexity", tiny, text, "-c", 64, "--against", tiny, "--against-kv", "q8_0").out
    assert f"  mean                {other['kl']['value']:.6f} +/- {other['kl']['error']:.7f}\n" in shown


def test_an_error_that_one_token_has_not_is_null_in_json(tiny: Path, text: Path) -> None:
    outcome = minfer("perplexity", tiny, text, "-c", len(TEXT) - 1, "--stride", 1, "--json")
    found = json.loads(outcome.out, parse_constant=pytest.fail)
    assert (found["tokens"], found["ppl"]["error"]) == (1, None)


def test_what_cannot_be_scored_is_one_line(tiny: Path, text: Path, tmp_path: Path) -> None:
    assert f"the text has {len(TEXT)} tokens" in error_line(minfer("perplexity", tiny, text))
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"ab\xff")
    assert "the text isn't UTF-8: invalid start byte at byte 2" in error_line(minfer("perplexity", tiny, bad))
    said = usage_error(minfer("perplexity", tiny, text, "--against-kv", "f32"))
    assert "they need --against" in said
