"""`minfer-bench`: its JSON and its table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from minfer_models.bench.app import app


def measured(*args: object) -> Any:
    return CliRunner().invoke(app, [str(a) for a in args], catch_exceptions=False)


def test_json_has_every_repetition_and_what_they_were_taken_on(tiny: Path) -> None:
    result = measured(tiny, "-p", 20, "-n", 4, "-r", 3, "-t", 1, "-o", "json")
    run = json.loads(result.stdout)
    assert set(run) == {"model", "file_bytes", "settings", "machine", "load_seconds", "peak_bytes", "measurements"}
    assert (run["model"], run["file_bytes"]) == (tiny.name, tiny.stat().st_size)
    assert run["settings"]["threads"] == 1
    assert [m["name"] for m in run["measurements"]] == ["pp20", "tg4"]
    for m in run["measurements"]:
        assert len(m["seconds"]) == len(m["rates"]) == 3
        assert m["rates"] == pytest.approx([m["tokens"] / s for s in m["seconds"]])
        assert m["median_rate"] == sorted(m["rates"])[1]
        assert 0 <= m["outside"] < 1


def test_markdown_has_a_row_per_test(tiny: Path) -> None:
    lines = measured(tiny, "-p", 0, "-n", 4, "-r", 1).stdout.splitlines()
    assert lines[0] == "| test | tokens/s (median) | spread | outside the programs |"
    assert [line.split(" | ")[0] for line in lines[2:3]] == ["| tg4"]
    assert any(line.startswith("- settings: threads ") for line in lines)
    assert not any("pp" in line.split(" | ")[0] for line in lines[2:4])


def test_what_can_t_be_measured_is_one_line(tiny: Path) -> None:
    result = measured(tiny, "-p", 600)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "minfer-bench: a test of 600 tokens exceeds the available context size of 512\n"


def test_no_test_at_all_is_a_wrong_command_line(tiny: Path) -> None:
    result = measured(tiny, "-p", 0, "-n", 0)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "-p 0 and -n 0 leave nothing to measure" in result.stderr
