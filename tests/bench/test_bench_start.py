"""`minfer-bench start`: what it counts, its forms, and runs that fail."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minfer_models.bench.start.report import PARTS, StartRun
from minfer_models.bench.start.watched_run import Watch

Bench = Callable[..., Any]


def test_every_start_is_told_with_its_parts(tiny: Path, bench: Bench, valid: Callable[[str], Any]) -> None:
    report = valid(bench("start", tiny, "-r", 2, "-t", 1, "-o", "json").stdout)
    assert (report["kind"], report["cold"], len(report["runs"])) == ("start", False, 2)
    for run in report["runs"]:
        assert list(run["parts"]) == list(PARTS)
        assert min(run["parts"].values()) > 0
        assert 0 < sum(run["parts"].values()) <= run["seconds"] + 0.05
        assert run["compiled"] == 0
        assert run["peak_bytes"] > tiny.stat().st_size


def test_csv_and_markdown_have_the_parts(tiny: Path, bench: Bench) -> None:
    (row,) = csv.DictReader(bench("start", tiny, "-r", 1, "-o", "csv").stdout.splitlines())
    assert (row["start"], row["cold"], row["model"]) == ("1", "False", tiny.name)
    parts = sum(float(row[f"{part}_seconds"]) for part in PARTS)
    assert parts == pytest.approx(float(row["seconds"]), abs=0.05)
    lines = bench("start", tiny, "-r", 1).stdout.splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:8]] == [
        *(said for _, said in PARTS.values()),
        "to the first token",
    ]


def test_a_run_that_fails_is_an_error_with_its_last_words(tiny: Path, tmp_path: Path, bench: Bench) -> None:
    broken = tmp_path / "broken.gguf"
    data = bytearray(tiny.read_bytes())
    start = data.index(b"tokenizer.ggml.pre")
    data[start : start + 18] = b"tokenizer.ggml.xre"
    broken.write_bytes(data)
    failed = bench("start", broken, "-r", 1)
    assert failed.exit_code == 1
    assert "tokenizer.ggml.pre" in failed.stderr
    assert failed.stdout == ""


def test_parts_end_with_the_first_text_of_a_stage() -> None:
    watch = Watch()
    for text in (
        "opening m.gguf",
        "taking in the weights",
        "taking in the weights",
        "compiling kernels: a",
        "planning 3",
    ):
        watch.show(text)
    watch.stop()
    marks = watch.marks
    run = StartRun.of(9.0, marks["began"] - 1, {"marks": marks, "compiled": watch.compiled, "peak_bytes": 5})
    assert run.compiled == 1
    assert run.parts["python"] == pytest.approx(1)
    assert sum(run.parts.values()) == pytest.approx(marks["first"] - marks["began"] + 1)


def test_a_stage_that_never_came_takes_no_time() -> None:
    run = StartRun.of(3.0, 0.0, {"marks": {"began": 1.0, "first": 3.0}, "compiled": 0, "peak_bytes": 0})
    assert run.parts == {"python": 1.0, "imports": 0.0, "plan": 0.0, "weights": 0.0, "token": 2.0}
