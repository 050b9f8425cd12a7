"""Damaged and hostile files: every one is refused by us in one line, or loads; a process that dies is a finding."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.fuzz import FULL, LOAD_EVERY, SUITE
from tools.fuzzing.cases import Cases
from tools.fuzzing.runner import run
from tools.fuzzing.seeds import read_seeds, write_seeds

RANDOM_SEED = 0
CHUNK = 10_000
LEAST = {"refused": 0.3, "unreadable": 0.08, "no text": 0.05, "good": 0.08}
"""Shares of the outcomes: were nearly everything refused at the first byte, nothing else would be tested."""


@pytest.fixture(scope="session")
def seeds(tmp_path_factory: pytest.TempPathFactory, smollm2: Path) -> Path:
    folder = tmp_path_factory.mktemp("fuzz") / "seeds"
    write_seeds(folder, smollm2)
    return folder


def check(seeds: Path, numbers: range) -> None:
    report = run(seeds, RANDOM_SEED, numbers, LOAD_EVERY)
    assert not report.findings, "\n".join(finding.report(RANDOM_SEED) for finding in report.findings)
    assert report.outcomes.total() == len(numbers)
    for outcome, share in LEAST.items():
        assert report.outcomes[outcome] >= share * len(numbers), report.outcomes
    assert report.outcomes["ran"] > 0


@pytest.mark.parametrize("chunk", range(SUITE // CHUNK))
def test_it_loads_or_is_refused(seeds: Path, chunk: int) -> None:
    # every so-manyth, so that each chunk has some of the listed and of the drawn cases
    check(seeds, range(chunk, SUITE, SUITE // CHUNK))


@pytest.mark.full
@pytest.mark.parametrize("chunk", range(SUITE // CHUNK, FULL // CHUNK))
def test_it_loads_or_is_refused_at_length(seeds: Path, chunk: int) -> None:
    check(seeds, range(chunk * CHUNK, (chunk + 1) * CHUNK))


def test_a_case_is_the_same_whenever_it_is_made(seeds: Path) -> None:
    first, second = (Cases(read_seeds(seeds), RANDOM_SEED) for _ in range(2))
    numbers = (0, 5_000, first.n_listed - 1, first.n_listed, SUITE - 1, FULL - 1)
    for n in numbers:
        assert first[n] == second[n]
    assert len({first[n].content for n in numbers}) == len(numbers)
    assert Cases(read_seeds(seeds), RANDOM_SEED + 1)[FULL - 1] != first[FULL - 1]


def test_the_suite_has_every_single_edit_and_cut(seeds: Path) -> None:
    assert 5_000 < Cases(read_seeds(seeds), RANDOM_SEED).n_listed < SUITE // 2
