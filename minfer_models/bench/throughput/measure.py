"""Tokens per second of one model, by number of threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from minfer_models.bench.conditions import Conditions
from minfer_models.bench.engine_side import EngineSide
from minfer_models.bench.loading import EngineChoices, context_of, load_timed
from minfer_models.bench.machine import peak_bytes
from minfer_models.bench.rounds import Rounds, matched_rounds
from minfer_models.bench.throughput.report import Loading, Measured, ThroughputReport
from minfer_models.bench.workload import Workload, require_room
from minfer_models.cli.progress import Progress
from minfer_models.cli.settings_view import settings_of


def measure(
    path: Path,
    tests: Sequence[Workload],
    threads: Sequence[int | None],
    repetitions: int,
    choices: EngineChoices,
    progress: Progress,
) -> ThroughputReport:
    """Load the model once per thread count and run every test on it.

    Raises BenchError, before a weight is read, when a test doesn't fit the context.
    """
    require_room(tests, context_of(path, choices))
    conditions = Conditions.here(path)
    loads: list[Loading] = []
    results: list[Measured] = []
    settings: dict[str, Any] = {}
    for wanted in threads:
        llm, loaded = load_timed(path, replace(choices, threads=wanted), progress)
        with llm:
            settings = settings_of(llm)
            workers = settings.pop("threads", 1)
            side = EngineSide("minfer", llm)
            rounds = [_rounds(side, test, repetitions, progress) for test in tests]
        results += [Measured.of(r, "minfer", workers) for r in rounds]
        loads.append(Loading(workers, loaded, peak_bytes()))
    return ThroughputReport(conditions, settings, tuple(loads), tuple(results))


def _rounds(side: EngineSide, test: Workload, repetitions: int, progress: Progress) -> Rounds:
    return matched_rounds([side], test, repetitions, lambda turn: progress.show(turn.text))
