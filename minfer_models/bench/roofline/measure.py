"""Measuring: ceilings and tests in the same rounds, then where the median repetition's time went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from minfer_ir.costs import step_costs
from minfer_kernels.cpu.runner.timing import Clock, TapeTimes
from minfer_models.bench.conditions import Conditions
from minfer_models.bench.loading import EngineChoices, context_of, load_timed
from minfer_models.bench.roofline.attribution import Attribution, Limits, Spans, attribute
from minfer_models.bench.roofline.ceilings import CeilingMeter, Ceilings
from minfer_models.bench.roofline.report import RooflineReport
from minfer_models.bench.roofline.results import PhaseResult
from minfer_models.bench.roofline.steps import Forward, TimedRunner, cpu_backend, cpu_times, program_of
from minfer_models.bench.roofline.timeline import Track
from minfer_models.bench.runner import Runner
from minfer_models.bench.stats import Ratio, matched_ratio
from minfer_models.bench.workload import Workload, require_room
from minfer_models.cli.progress import Progress
from minfer_models.cli.settings_view import settings_of
from minfer_models.llm import LLM


@dataclass(frozen=True, slots=True)
class Measurement:
    """The report, and what the timeline draws: the forwards of the median repetition of each phase."""

    report: RooflineReport
    tracks: tuple[Track, ...]


def measure(
    path: Path,
    tests: Sequence[Workload],
    threads: Sequence[int | None],
    repetitions: int,
    choices: EngineChoices,
    progress: Progress,
) -> Measurement:
    """Load the model once per thread count; every round measures each ceiling and each test once.

    Raises BenchError, before a weight is read, when a test doesn't fit the context, and for a model that doesn't run
    on the cpu backend alone; ClockError where instructions can't be timed.
    """
    require_room(tests, context_of(path, choices))
    conditions = Conditions.here(path)
    ceilings: list[Ceilings] = []
    phases: list[PhaseResult] = []
    tracks: list[Track] = []
    settings: dict[str, Any] = {}
    for wanted in threads:
        llm, _ = load_timed(path, replace(choices, threads=wanted), progress)
        with llm:
            settings = settings_of(llm)
            workers = settings.pop("threads", 1)
            one = _ThreadCount(llm, tests, conditions.machine.memory, progress)
            one.rounds(repetitions)
            ceilings.append(one.meter.result())
            for test in tests:
                phase, track = one.phase(test, workers)
                phases.append(phase)
                tracks.append(track)
    return Measurement(RooflineReport(conditions, settings, tuple(ceilings), tuple(phases)), tuple(tracks))


class _ThreadCount:
    """Everything about one engine."""

    def __init__(self, llm: LLM, tests: Sequence[Workload], memory: int | None, progress: Progress) -> None:
        backend = cpu_backend(llm)
        self._tests, self._show = tests, progress.show
        self.clock = Clock(backend.library)
        self._runner, self._plain = TimedRunner(llm, cpu_times), Runner(llm)
        warm = {test: self._warm_up(test) for test in tests}
        swept = {test: max(_resident(f) for f in forwards) for test, forwards in warm.items()}
        decoded = [n for test, n in swept.items() if test.phase == "tg"]
        values = {test.name: max(_value_bytes(f) for f in forwards) for test, forwards in warm.items()}
        self.meter = CeilingMeter(backend.threads, max(decoded or swept.values()), values, memory)
        self.runs: dict[Workload, list[list[Forward[TapeTimes]]]] = {test: [] for test in tests}
        self.untimed: dict[Workload, list[float]] = {test: [] for test in tests}

    def rounds(self, repetitions: int) -> None:
        """Measure everything `repetitions` times, in turns; every test once without times taken and once with."""
        for number in range(1, repetitions + 1):
            self._show(f"ceilings: {number} of {repetitions}")
            self.meter.sample()
            for test in self._tests:
                self._show(f"{test.name}: {number} of {repetitions}")
                self.untimed[test].append(self._plain.run(test.phase, test.tokens, test.depth).seconds)
                self.runs[test].append(self._runner.run(test))

    def phase(self, test: Workload, threads: int) -> tuple[PhaseResult, Track]:
        """The result of one test, and its median repetition's forwards."""
        ceilings = self.meter.result()
        seconds = [sum(f.seconds for f in run) for run in self.runs[test]]
        forwards = self.runs[test][sorted(range(len(seconds)), key=lambda i: seconds[i])[(len(seconds) - 1) // 2]]
        limits = Limits(
            ceilings.weights.rate.median,
            ceilings.values[test.name].rate.median,
            ceilings.int8.rate.median,
            ceilings.f32.rate.median,
        )
        found = attribute(forwards, self.clock, limits)
        untimed = self.untimed[test]
        result = PhaseResult.of(test, threads, untimed, seconds, found, _of_bandwidth(test, found, untimed, ceilings))
        return result, Track(result.title, tuple((f, Spans.of(f, self.clock)) for f in forwards))

    def _warm_up(self, test: Workload) -> list[Forward[TapeTimes]]:
        self._show(f"{test.name}: warm-up")
        return self._runner.run(test)


def _of_bandwidth(test: Workload, found: Attribution, seconds: Sequence[float], ceilings: Ceilings) -> Ratio | None:
    """Bytes of weights and KV per second over the bandwidth of the same round; None for a prefill."""
    if test.phase != "tg":
        return None
    resident = sum(part.cost.resident for part in found.parts)
    return matched_ratio([resident / s for s in seconds], ceilings.weights.rates)


def _resident(forward: Forward[TapeTimes]) -> int:
    """Bytes of weights and KV that a forward reads."""
    stored = {leaf: w.buffer.nbytes for leaf, w in program_of(forward.executable).packed_weights().items()}
    return sum(c.resident for c in step_costs(forward.executable.graph, forward.inputs, stored).values())


def _value_bytes(forward: Forward[TapeTimes]) -> int:
    """Bytes of the buffers that a graph's values share."""
    return sum(buffer.nbytes for buffers in forward.executable.plan.buffers.values() for buffer in buffers)
