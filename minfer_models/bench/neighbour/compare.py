"""Decoding in turns: with the threads that the engine chooses and with fixed ones, beside a busy core and alone."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from minfer_models.bench.conditions import Conditions
from minfer_models.bench.engine_side import EngineSide
from minfer_models.bench.loading import EngineChoices, context_of, load_timed
from minfer_models.bench.neighbour.busy import Neighbour
from minfer_models.bench.neighbour.report import ALONE, CHOSEN, FIXED, ONE, NeighbourReport, SideResult
from minfer_models.bench.rounds import Turn, matched_rounds
from minfer_models.bench.sides import Sample, Side
from minfer_models.bench.workload import BenchError, Workload, require_room
from minfer_models.cli.progress import Progress
from minfer_models.cli.settings_view import settings_of
from minfer_models.llm import LLM


class BesideSide:
    """A side that runs while the neighbour is busy."""

    def __init__(self, side: Side, neighbour: Neighbour) -> None:
        self._side, self._neighbour = side, neighbour

    @property
    def name(self) -> str:
        """The side's."""
        return self._side.name

    def run(self, workload: Workload) -> Sample:
        """One run of the side."""
        with self._neighbour.busy():
            return self._side.run(workload)


def compare(path: Path, test: Workload, choices: EngineChoices, rounds: int, progress: Progress) -> NeighbourReport:
    """Measure the sides in turns; the threads of `choices` are the most that the chosen side takes.

    Raises BenchError when the test doesn't fit the context, where there is no core for a neighbour, and with one
    thread, which leaves nothing to choose.
    """
    require_room([test], context_of(path, choices))
    conditions = Conditions.here(path)
    with ExitStack() as stack:
        neighbour = Neighbour()
        stack.callback(neighbour.close)
        chosen = _loaded(stack, path, replace(choices, threads_fixed=False), progress)
        settings = settings_of(chosen)
        threads = settings["threads"]
        if threads < 2:
            raise BenchError("with one thread there is nothing to choose; -t is the most that may be taken")
        fixed = _loaded(stack, path, replace(choices, threads=threads), progress)
        one = _loaded(stack, path, replace(choices, threads=1), progress)
        sides = [
            BesideSide(EngineSide(CHOSEN, chosen), neighbour),
            BesideSide(EngineSide(FIXED, fixed), neighbour),
            BesideSide(EngineSide(ONE, one), neighbour),
            EngineSide(ALONE, one),
        ]
        found = matched_rounds(sides, test, rounds, lambda turn: progress.show(_shown(turn)))
        walks = tuple(chosen.cpu.threads.walks[1:]) if chosen.cpu is not None else ()
    results = [SideResult.of(found, side, threads if side in (CHOSEN, FIXED) else 1) for side in found.samples]
    return NeighbourReport.of(conditions, settings, neighbour.cpu, results, walks)


def _loaded(stack: ExitStack, path: Path, choices: EngineChoices, progress: Progress) -> LLM:
    llm, _ = load_timed(path, choices, progress)
    return stack.enter_context(llm)


def _shown(turn: Turn) -> str:
    return f"{turn.text}, {turn.side}" if turn.side else turn.text
