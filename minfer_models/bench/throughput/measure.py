"""Tokens per second of one model, by number of threads."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from minfer_models.bench.conditions import Conditions
from minfer_models.bench.engine_side import EngineSide
from minfer_models.bench.loading import EngineChoices, context_of, load_timed
from minfer_models.bench.machine import peak_bytes, reset_peak
from minfer_models.bench.rounds import Rounds, matched_rounds
from minfer_models.bench.sampler import sampler_text
from minfer_models.bench.throughput.report import Loading, Measured, ThroughputReport
from minfer_models.bench.workload import Workload, require_room
from minfer_models.cli.progress import Progress
from minfer_models.cli.settings_view import settings_of
from minfer_models.sampling import SamplingParams


def measure(
    path: Path,
    tests: Sequence[Workload],
    threads: Sequence[int | None],
    repetitions: int,
    choices: EngineChoices,
    sampling: SamplingParams,
    progress: Progress,
) -> ThroughputReport:
    """Load the model once per thread count and run every test on it.

    Raises BenchError, before a weight is read, when a test doesn't fit the context.
    """
    require_room(tests, context_of(path, choices))
    conditions = Conditions.here(path)
    engines = [_engine(path, tests, repetitions, replace(choices, threads=n), sampling, progress) for n in threads]
    return ThroughputReport(
        conditions=conditions,
        settings=engines[-1].settings,
        sampler=sampler_text(sampling),
        engines=tuple(engine.loading for engine in engines),
        results=tuple(result for engine in engines for result in engine.results),
    )


@dataclass(frozen=True, slots=True)
class _Engine:
    settings: dict[str, Any]
    loading: Loading
    results: list[Measured]


def _engine(
    path: Path,
    tests: Sequence[Workload],
    repetitions: int,
    choices: EngineChoices,
    sampling: SamplingParams,
    progress: Progress,
) -> _Engine:
    """Every test on one engine, which is gone afterwards."""
    gc.collect()  # an engine of another thread count must not count as this one's memory
    reset_peak()
    llm, loaded = load_timed(path, choices, progress)
    with llm:
        settings = settings_of(llm)
        threads = settings.pop("threads", 1)
        side = EngineSide("minfer", llm, sampling)
        rounds = [_rounds(side, test, repetitions, progress) for test in tests]
    return _Engine(
        settings, Loading(threads, loaded, peak_bytes()), [Measured.of(r, "minfer", threads) for r in rounds]
    )


def _rounds(side: EngineSide, test: Workload, repetitions: int, progress: Progress) -> Rounds:
    return matched_rounds([side], test, repetitions, lambda turn: progress.show(turn.text))
