"""The table of `python -m tools.ratios`: from kept measurements, goals by threads, bold where one is reached."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tools import ratios as tool

ROW = next(row for row in tool.ROWS if row.title == "qwen3-0.6b Q8_0")  # goals: decode 1.1, prefill 1.6


def report(phase: str, ratio: float) -> dict[str, Any]:
    test = {"phase": phase, "ours": {"median": 30.0}, "peer": {"median": 20.0}, "ratio": {"median": ratio, "rounds": 5}}
    source = {"commit": "0123456789abcdef", "dirty": True}
    conditions = {"machine": {"cpu": "Abacus", "cores": 2}, "source": source, "date": "2026-01-02T03:04:05+00:00"}
    about = {"version": "9.9", "system": "BEADS = 1"}
    return {"results": [test], "conditions": conditions, "peer": {"about": about}, "kl": {"mean": 0.0025}}


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder where the row's model lies already."""
    (tmp_path / ROW.file_name).touch()
    monkeypatch.setattr(tool, "fetch_demo", lambda _: tmp_path / "demo.gguf")
    return tmp_path


def keep(folder: Path, threads: int, pp: float, tg: float) -> None:
    for phase, ratio in (("pp", pp), ("tg", tg)):
        (folder / f"{ROW.file_name}-d0-t{threads}-{phase}.json").write_text(json.dumps(report(phase, ratio)))


@pytest.mark.parametrize(
    ("threads", "pp", "tg", "decode", "prefill"),
    [
        (2, 1.5, 1.2, "**1.20** | 1.10", "1.50 | 1.60"),
        (1, 1.37, 0.93, "0.93 | 0.94", "**1.37** | 1.36"),  # 15 % less: 0.935 and 1.36
    ],
)
def test_kept_measurements_become_the_table(
    made: Path, threads: int, pp: float, tg: float, decode: str, prefill: str
) -> None:
    keep(made, threads, pp, tg)
    arguments = ["--models", str(made), "--kept", str(made), "--only", ROW.title, "-t", str(threads)]
    result = CliRunner().invoke(tool.app, arguments, catch_exceptions=False)
    line = f"| {ROW.title} | 30.0 | 20.0 | {decode} | 30.0 | 20.0 | {prefill} | 2.5e-03 |"
    assert [text for text in result.stdout.splitlines() if text.startswith(f"| {ROW.title}")] == [line]
    assert "Abacus (2 cores), 2026-01-02, minfer 0123456789ab with changes," in result.stdout
    assert "llama.cpp 9.9: BEADS = 1" in result.stdout


def test_what_is_missing_is_measured_one_test_at_a_time_under_the_command(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        calls.append(command)
        phase = "pp" if command[command.index("-n") + 1] == "0" else "tg"
        return subprocess.CompletedProcess(command, 0, json.dumps(report(phase, 2.0)))

    monkeypatch.setattr(tool.subprocess, "run", run)
    arguments = ["--models", str(made), "--kept", str(made / "kept"), "--only", ROW.title, "--under", "chrt --idle 0"]
    result = CliRunner().invoke(tool.app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    assert [c[c.index("-p") + 1 : c.index("-p") + 4] for c in calls] == [["512", "-n", "0"], ["0", "-n", "128"]]
    assert all(c[:3] == ["chrt", "--idle", "0"] and c[-2:] == ["-o", "json"] for c in calls)
    assert len(list((made / "kept").glob("*.json"))) == 2
    CliRunner().invoke(tool.app, arguments, catch_exceptions=False)
    assert len(calls) == 2  # what is kept counts


def test_a_measurement_that_fails_and_an_unknown_row(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = subprocess.CompletedProcess[str]([], 1, "")
    monkeypatch.setattr(tool.subprocess, "run", lambda *_args, **_kwargs: failed)
    result = CliRunner().invoke(tool.app, ["--models", str(made), "--only", ROW.title])
    assert result.exit_code == 1
    assert "exited with 1 (see above)" in result.stderr
    unknown = CliRunner().invoke(tool.app, ["--models", str(made), "--only", "gpt2"])
    assert unknown.exit_code == 2
