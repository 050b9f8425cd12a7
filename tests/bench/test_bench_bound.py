"""`minfer-bench sampling --grammar`: what a grammar adds to choices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

Bench = Callable[..., Any]


def test_choices_are_told_with_and_without_the_grammar(tiny: Path, bench: Bench, valid: Callable[[str], Any]) -> None:
    given = ("--grammar", 'root ::= "x"{5} | "y"{5}')
    report = valid(bench("sampling", tiny, "-r", 2, "-t", 1, *given, "-o", "json").stdout)
    assert [s["name"] for s in report["samplers"]] == ["default", "default, bound"]
    assert [s["seconds"]["n"] for s in report["samplers"]] == [8, 8]  # two texts of five tokens, behind the first
    assert report["step"]["n"] == 8


def test_what_cannot_be_measured_is_refused(tiny: Path, bench: Bench) -> None:
    failed = bench("sampling", tiny, "--json-schema", '{"not": {}}')
    assert failed.exit_code == 2
    assert "the keyword 'not' can't be enforced" in failed.stderr
    failed = bench("sampling", tiny, "-r", 1, "--grammar", 'root ::= "a"')
    assert failed.exit_code == 1
    assert "one token long" in failed.stderr
