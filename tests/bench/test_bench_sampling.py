"""`minfer-bench sampling`: every sampler is told with its share of a step."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

from minfer_models.bench.sampling.cases import CASES

Bench = Callable[..., Any]


def test_every_sampler_is_told(tiny: Path, bench: Bench, valid: Callable[[str], Any]) -> None:
    report = valid(bench("sampling", tiny, "-r", 2, "--vocab", 700, "--history", 40, "-t", 1, "-o", "json").stdout)
    assert (report["kind"], report["vocabulary"], report["history"]) == ("sampling", 700, 40)
    assert [s["name"] for s in report["samplers"]] == [case.name for case in CASES]
    for sampler in report["samplers"]:
        assert sampler["seconds"]["n"] == 2
        assert 0 < sampler["seconds"]["min"] <= sampler["seconds"]["max"]
        assert sampler["share"]["median"] > 0
    assert report["step"]["n"] == 2 * len(CASES)
    stages = {s["name"]: s["stages"] for s in report["samplers"]}
    assert stages["greedy"] == ["greedy"]
    assert stages["a constraint, most tokens"][0] == "constraint"


def test_markdown_and_csv(tiny: Path, bench: Bench) -> None:
    rows = list(csv.DictReader(bench("sampling", tiny, "-r", 1, "--vocab", 700, "-o", "csv").stdout.splitlines()))
    assert [row["sampler"] for row in rows] == [case.name for case in CASES]
    lines = bench("sampling", tiny, "-r", 1, "--vocab", 700).stdout.splitlines()
    assert [line.split("|")[1].strip() for line in lines[2 : 2 + len(CASES)]] == [case.name for case in CASES]


def test_fewer_logits_than_the_model_has_are_refused(tiny: Path, bench: Bench) -> None:
    failed = bench("sampling", tiny, "-r", 1, "--vocab", 9)
    assert failed.exit_code == 1
    assert "--vocab is 9; the model has" in failed.stderr
