"""`minfer-bench neighbour`: who runs beside the busy process, that it is gone afterwards, and what is reported."""

from __future__ import annotations

import csv
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from minfer_models.bench.neighbour import busy, compare
from minfer_models.bench.neighbour.busy import Neighbour
from minfer_models.bench.neighbour.compare import BesideSide
from minfer_models.bench.sides import Sample
from minfer_models.bench.workload import BenchError, Workload

Bench = Callable[..., Any]


@pytest.fixture
def neighbour() -> Iterator[Neighbour]:
    found = Neighbour()
    yield found
    found.close()


def stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def cpu_ticks(pid: int) -> int:
    return int(stat(pid)[11]) + int(stat(pid)[12])


def state(pid: int) -> str:
    return stat(pid)[0]


def awaited(pid: int, wanted: str) -> str:
    """The state, once the signal has been taken."""
    for _ in range(10_000):
        if state(pid) in wanted:
            break
        os.sched_yield()
    return state(pid)


def test_it_works_on_its_core_only_while_it_may(neighbour: Neighbour) -> None:
    assert os.sched_getaffinity(neighbour.pid) == {neighbour.cpu}
    assert neighbour.cpu in os.sched_getaffinity(0)
    assert awaited(neighbour.pid, "T") == "T"
    asleep = cpu_ticks(neighbour.pid)
    with neighbour.busy():
        end = time.monotonic() + 30
        while cpu_ticks(neighbour.pid) < asleep + 3 and time.monotonic() < end:
            os.sched_yield()
        assert cpu_ticks(neighbour.pid) >= asleep + 3
    assert awaited(neighbour.pid, "T") == "T"


def test_it_sleeps_again_when_a_run_fails(neighbour: Neighbour) -> None:
    with pytest.raises(KeyError), neighbour.busy():
        raise KeyError
    assert awaited(neighbour.pid, "T") == "T"


def test_a_neighbour_that_is_gone_is_an_error_not_a_quiet_core(neighbour: Neighbour) -> None:
    neighbour.close()
    assert not Path(f"/proc/{neighbour.pid}").exists()
    with pytest.raises(BenchError, match="ended with -9"), neighbour.busy():
        pytest.fail("ran alone")


def test_its_side_runs_while_it_is_busy(neighbour: Neighbour) -> None:
    states: list[str] = []

    class Recorder:
        name = "recorder"

        def run(self, workload: Workload) -> Sample:
            states.append(awaited(neighbour.pid, "R"))
            return Sample(float(workload.tokens))

    side = BesideSide(Recorder(), neighbour)
    assert (side.name, side.run(Workload("tg", 3)).seconds) == ("recorder", 3.0)
    assert states == ["R"]


def test_one_core_has_no_room_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(busy.os, "sched_getaffinity", lambda _pid: {5})
    with pytest.raises(BenchError, match=r"may run on 1$"):
        Neighbour()


def test_the_report(tiny: Path, bench: Bench, valid: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Neighbour] = []

    def kept() -> Neighbour:
        made.append(Neighbour())
        return made[-1]

    monkeypatch.setattr(compare, "Neighbour", kept)
    args = ("neighbour", tiny, "-n", 3, "-r", 3, "-t", 2)
    found = valid(bench(*args, "-o", "json").stdout)
    assert not Path(f"/proc/{made[0].pid}").exists()
    sides = {r["side"]: r for r in found["results"]}
    assert {name: (r["threads"], r["neighbour"]) for name, r in sides.items()} == {
        "chosen": (2, True), "fixed": (2, True), "one": (1, True), "one alone": (1, False),
    }  # fmt: skip
    assert found["settings"]["threads_fixed"] is False
    assert all(r["rates"] == pytest.approx([3 / s for s in r["seconds"]]) for r in sides.values())
    for name, ratio in found["against"].items():
        ratios = [a / b for a, b in zip(sides["chosen"]["rates"], sides[name]["rates"], strict=True)]
        assert ratio["median"] == pytest.approx(median(ratios))
    # Four runs of the side that chooses, with the warm-up; loading walks tapes too.
    assert len(found["walks"]) == 2 and sum(found["walks"]) >= 12
    assert found["cpu"] == max(os.sched_getaffinity(0))


def test_its_table_and_csv(tiny: Path, bench: Bench) -> None:
    args = ("neighbour", tiny, "-n", 2, "-r", 1, "-t", 2)
    lines = bench(*args).stdout.splitlines()
    assert lines[0].startswith("- beside a busy core, decoding keeps ")
    assert [line.split("|")[1].strip() for line in lines[2:8] if line] == [
        "decode", "---------", "chosen", "fixed", "one", "one alone",
    ]  # fmt: skip
    rows = list(csv.DictReader(bench(*args, "-o", "csv").stdout.splitlines()))
    assert [r["side"] for r in rows] == ["chosen", "fixed", "one", "one alone"]
    assert [r["neighbour"] for r in rows] == ["True", "True", "True", "False"]


def test_one_thread_is_refused(tiny: Path, bench: Bench) -> None:
    run = bench("neighbour", tiny, "-n", 2, "-t", 1)
    assert run.exit_code == 1
    assert "nothing to choose" in run.stderr
