"""The choice of threads, on simulated looks at the cores and on simulated /proc/stat files."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minfer_kernels.cpu.runner import free_cores as module
from minfer_kernels.cpu.runner.free_cores import INTERVAL, STALE, FreeCores, Look, ThreadChoice, free_cores, look_at


class Clocks:
    """Wall, busy and own seconds that go on as they are told."""

    def __init__(self) -> None:
        self.look = Look(100.0, 5000.0, 7.0)

    def pass_time(self, seconds: float, others: float, own: float) -> Look:
        at, busy, mine = self.look.at, self.look.busy, self.look.own
        self.look = Look(at + seconds, busy + (others + own) * seconds, mine + own * seconds)
        return self.look


def choices(most: int, cores: int, demands: Sequence[float]) -> list[int]:
    """The choice in every interval: others want `demands` cores, and all get their share of what there is."""
    clocks, choice = Clocks(), ThreadChoice(most, cores)
    choice.see(clocks.look)
    seen: list[int] = []
    for demand in demands:
        share = min(1.0, cores / (demand + choice.threads))
        seen.append(choice.see(clocks.pass_time(0.2, demand * share, choice.threads * share)))
    return seen


def test_alone_all_threads_walk() -> None:
    assert choices(2, 2, [0.0] * 5) == [2] * 5
    assert choices(8, 16, [0.1, 0.3, 7.9, 0.0]) == [8] * 4


def test_a_busy_neighbour_takes_one_thread_until_it_has_gone() -> None:
    assert choices(2, 2, [0, 1, 1, 1, 1, 0, 0, 0, 0]) == [2, 1, 1, 1, 1, 1, 2, 2, 2]
    assert choices(8, 8, [3] * 6)[-1] == 5
    assert choices(4, 4, [9] * 6)[-1] == 1


def test_a_short_or_slight_neighbour_changes_nothing_for_long() -> None:
    assert choices(2, 2, [0.2] * 6) == [2] * 6
    assert choices(2, 2, [1, 0, 0, 0]) == [1, 1, 2, 2]
    assert choices(2, 2, [1, 0, 1, 0, 1, 0]) == [1] * 6


@given(st.lists(st.floats(0, 6), min_size=1, max_size=30), st.integers(1, 4), st.integers(1, 4))
def test_it_stays_within_bounds_and_settles(demands: list[float], most: int, cores: int) -> None:
    assert all(1 <= n <= most for n in choices(most, cores, demands))
    settled = choices(most, cores, [*demands, *demands[-1:] * 20])[-10:]
    assert len(set(settled)) == 1
    assert settled[0] == 1 or settled[0] <= cores - demands[-1] / 2 + module.GIVE_UP


def test_what_others_did_while_we_rested_says_nothing() -> None:
    clocks, choice = Clocks(), ThreadChoice(2, 2)
    choice.see(clocks.look)
    assert choice.see(clocks.pass_time(1.0, 2.0, 0.05)) == 2
    assert choice.see(clocks.pass_time(0.2, 1.0, 0.5)) == 1


def test_what_happened_long_ago_or_at_no_time_says_nothing() -> None:
    clocks, choice = Clocks(), ThreadChoice(2, 2)
    choice.see(clocks.look)
    assert choice.see(clocks.pass_time(STALE + 1, 1.0, 0.5)) == 2
    assert choice.see(clocks.look) == 2
    assert choice.see(clocks.pass_time(0.2, 1.0, 0.5)) == 1


def test_the_cores_are_looked_at_once_an_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    now, looks, clocks = [50.0], [0], Clocks()

    def look() -> Look:
        looks[0] += 1
        return clocks.pass_time(INTERVAL, 1.0, 1.0)

    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    cores = FreeCores(2, look, 2)
    assert [cores.threads() for _ in range(4)] == [2] * 4
    assert looks == [1]
    now[0] += INTERVAL
    assert [cores.threads() for _ in range(4)] == [1] * 4
    assert looks == [2]


def test_a_look_that_fails_changes_nothing() -> None:
    def look() -> Look:
        raise OSError(24, "too many open files")

    assert FreeCores(3, look, 4).threads() == 3


STAT = """cpu  9 9 9 9 9 9 9 9 9 9
cpu0 100 20 30 1000 40 5 6 70 8 9
cpu1 200 40 60 2000 80 10 12 140 16 18
cpu10 1000 0 0 0 0 0 0 0 0 0
intr 5
"""


@pytest.mark.parametrize(
    ("cpus", "niced", "ticks"), [({0}, 0, 141), ({0, 1}, 0, 423), ({1}, 10, 322), ({10}, -5, 1000)]
)
def test_busy_is_what_neither_idles_nor_yields_nor_is_the_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cpus: set[int], niced: int, ticks: int
) -> None:
    stat = tmp_path / "stat"
    stat.write_text(STAT)
    monkeypatch.setattr(os, "getpriority", lambda _which, _who: niced)
    look: Callable[[], Look] = lambda: look_at(cpus, stat)  # noqa: E731
    assert look().busy == pytest.approx(ticks / os.sysconf("SC_CLK_TCK"))
    assert look().at <= look().at and look().own <= look().own


def test_nothing_is_chosen_for_one_thread_or_where_the_system_does_not_tell(tmp_path: Path) -> None:
    assert free_cores(1) is None
    assert free_cores(2, tmp_path / "none") is None
    (tmp_path / "stat").write_text(STAT)
    chosen = free_cores(2, tmp_path / "stat")
    assert chosen is None or chosen.threads() == 2
