"""Matched rounds: who runs when, from which context, and that no plan is built on the clock."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from minfer_models import load
from minfer_models.bench import runner
from minfer_models.bench.ab.report import Compared
from minfer_models.bench.engine_side import EngineSide
from minfer_models.bench.report.markdown import busy_lines
from minfer_models.bench.rounds import MOST_REPEATS, Rounds, Turn, matched_rounds
from minfer_models.bench.runner import Runner
from minfer_models.bench.sides import Sample
from minfer_models.bench.workload import BenchError, Workload, parse_counts, workloads
from minfer_models.engine import TokenSequence
from minfer_models.llm import LLM


class Scripted:
    """A side that notes its turns; `built` are the plans that its next runs build."""

    def __init__(self, name: str, log: list[str], built: tuple[int, ...] = ()) -> None:
        self.name, self._log, self._built = name, log, list(built)

    def run(self, workload: Workload) -> Sample:
        self._log.append(self.name)
        return Sample(float(len(self._log)), built=self._built.pop(0) if self._built else 0)


class CountedWork:
    """Our engine with a clock that counts forwards, so that a side's slowness is exact."""

    def __init__(self, name: str, llm: LLM) -> None:
        self.name = name
        self._runner = Runner(llm, lambda: float(llm.engine.resources.probe.counts["split.run"]))

    def run(self, workload: Workload) -> Sample:
        timed = self._runner.run(workload.phase, workload.tokens, workload.depth)
        return Sample(timed.seconds, timed.inside, timed.built or 0)


def test_sides_take_turns_and_the_order_turns_every_round() -> None:
    log: list[str] = []
    turns: list[Turn] = []
    sides = [Scripted(name, log) for name in "abc"]
    rounds = matched_rounds(sides, Workload("pp", 6), 3, turns.append)
    assert "".join(log) == "abc" + "abc" + "cba" + "abc"
    assert rounds.first == ("a", "c", "a")
    assert rounds.seconds("a") == [4.0, 9.0, 10.0]
    assert rounds.rates("c") == [6 / 6, 6 / 7, 6 / 12]
    assert [t.text for t in turns if t.side == "b"] == ["pp6: warm-up", "pp6: 1 of 3", "pp6: 2 of 3", "pp6: 3 of 3"]
    complete = [t.samples for t in turns if t.samples is not None]
    assert [{name: s.seconds for name, s in samples.items()} for samples in complete] == [
        {"a": 4.0, "b": 5.0, "c": 6.0},
        {"a": 9.0, "b": 8.0, "c": 7.0},
        {"a": 10.0, "b": 11.0, "c": 12.0},
    ]


def test_a_run_that_built_a_plan_is_run_again() -> None:
    log: list[str] = []
    rounds = matched_rounds([Scripted("a", log, built=(3, 0, 1))], Workload("tg", 1), 2)
    assert len(log) == 4
    assert rounds.seconds("a") == [2.0, 4.0]
    with pytest.raises(BenchError, match=f"a: tg1 built plans in each of {MOST_REPEATS} runs behind its warm-up"):
        matched_rounds([Scripted("a", [], built=(1,) * 9)], Workload("tg", 1), 1)


def test_two_sides_of_one_name_and_no_rounds_are_refused() -> None:
    with pytest.raises(BenchError, match="same name: a, a"):
        matched_rounds([Scripted("a", []), Scripted("a", [])], Workload("tg", 1), 1)
    with pytest.raises(BenchError, match="at least 1 round, got 0"):
        matched_rounds([Scripted("a", [])], Workload("tg", 1), 0)


@pytest.fixture
def fed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """(position, number of tokens) of everything that sequences are given, in order."""
    seen: list[tuple[int, int]] = []
    for name in ("feed", "next_logits"):
        method = getattr(TokenSequence, name)

        def watched(self: TokenSequence, ids: list[int], method: Any = method) -> Any:
            seen.append((self.length, len(ids)))
            return method(self, ids)

        monkeypatch.setattr(TokenSequence, name, watched)
    return seen


def test_the_engine_starts_empty_fills_the_depth_and_builds_nothing_on_the_clock(
    tiny: Path, fed: list[tuple[int, int]]
) -> None:
    with load(tiny, threads=1, chunk=16) as llm:
        side, graphs = EngineSide("minfer", llm), llm.engine.graphs
        builds: list[tuple[int, int]] = []
        for workload in (Workload("pp", 20, 5), Workload("tg", 3, 17)):
            for _ in range(2):
                before = graphs.builds
                sample = side.run(workload)
                builds.append((sample.built, graphs.builds - before))
                assert sample.inside is not None
                assert 0 < sample.inside < sample.seconds
    assert fed == [(0, 5), (5, 20)] * 2 + [(0, 17), (17, 1), (18, 1), (19, 1)] * 2
    assert builds[1] == builds[3] == (0, 0)
    assert builds[0] == (2, 3)  # the depth's plan isn't on the clock


def test_a_kept_depth_is_filled_once_and_cut_back_to(tiny: Path, fed: list[tuple[int, int]]) -> None:
    with load(tiny, threads=1, chunk=16) as llm:
        one = Runner(llm)
        for phase, tokens, depth in (("pp", 4, 20), ("tg", 2, 20), ("pp", 4, 20), ("tg", 1, 5)):
            one.run(phase, tokens, depth, refill=False)
        assert fed == [(0, 20), (20, 4), (20, 1), (21, 1), (20, 4), (0, 5), (5, 1)]
        fed.clear()
        one.run("pp", 4, 5)
        one.run("pp", 4, 5)
        assert fed == [(0, 5), (5, 4)] * 2
        one.run("tg", 1, 300, refill=False)
        assert len(one.continuation(4, 600).token_ids) == 508  # the kept depth made room


def test_the_side_that_does_more_is_the_slower_one(tiny: Path) -> None:
    """b reads its prompt in four forwards where a needs one, on a clock that counts forwards."""
    with load(tiny, threads=1, chunk=64) as one, load(tiny, threads=1, chunk=16) as four:
        sides = [CountedWork("a", one), CountedWork("b", four)]
        compared = Compared.of(matched_rounds(sides, Workload("pp", 64), 5))
        turned = Compared.of(matched_rounds([CountedWork("b", one), CountedWork("a", four)], Workload("pp", 64), 5))
        equal = Compared.of(matched_rounds(sides, Workload("tg", 2), 5))
    assert (compared.a.median, compared.b.median) == (64.0, 16.0)
    assert (compared.ratio.median, compared.ratio.low, compared.ratio.high) == (0.25, 0.25, 0.25)
    assert compared.verdict == "b is slower"
    assert (turned.ratio.median, turned.verdict) == (4.0, "b is faster")
    assert (equal.ratio.median, equal.verdict) == (1.0, "no difference shown")


def test_what_others_had_is_what_the_machine_did_and_this_process_did_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = tmp_path / "stat"
    monkeypatch.setattr(runner, "PROC_STAT", stat)
    monkeypatch.setattr(runner, "process_time", lambda: 4.0)
    tick = os.sysconf("SC_CLK_TCK")
    #                 user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice
    stat.write_text(f"cpu  {5 * tick} {tick} {2 * tick} 900 800 {tick} {tick} {3 * tick} 700 600\ncpu0 1 2\n")
    assert runner.others_seconds() == 5 + 1 + 2 + 1 + 1 + 3 - 4
    stat.unlink()
    assert runner.others_seconds() is None


def test_a_busy_machine_is_called_one() -> None:
    samples = {"a": (Sample(2.0, others=1.0), Sample(2.0, others=0.2)), "b": (Sample(1.0), Sample(4.0, others=0.8))}
    assert Rounds(Workload("pp", 4), samples, ("a", "b")).others == pytest.approx(2.0 / 8.0)
    assert Rounds(Workload("pp", 4), {"b": (Sample(1.0),)}, ("b",)).others is None
    assert Rounds(Workload("pp", 4), {"b": (Sample(0.1, others=0.05),)}, ("b",)).others is None
    (line,) = busy_lines([("pp4", 0.26), ("tg1", None), ("tg2", 0.2), ("pp8", 1.0)])
    assert line.startswith("- NOT ALONE: other processes had 0.3 CPUs in pp4, 1.0 CPUs in pp8;")
    assert busy_lines([("pp4", 0.1)]) == []


def test_workloads_cross_counts_and_depths() -> None:
    tests = workloads([512, 0], [128], [0, 4096])
    assert [t.name for t in tests] == ["pp512", "tg128", "pp512 @ d4096", "tg128 @ d4096"]
    assert [t.cells for t in tests] == [512, 128, 4608, 4224]
    assert parse_counts("-p", "8, 4,8", 0) == [8, 4]
    with pytest.raises(BenchError, match="-d is '1,', expected whole numbers from 0"):
        parse_counts("-d", "1,", 0)
