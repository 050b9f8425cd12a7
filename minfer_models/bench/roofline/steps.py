"""Running a workload with the times of every part of its programs taken."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from time import perf_counter
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from minfer_ir.runtime.executable import Executable
from minfer_kernels.cpu.backend import CpuBackend, CpuProgram
from minfer_kernels.cpu.runner.timing import TapeTimes
from minfer_models.bench.runner import Runner
from minfer_models.bench.workload import BenchError, Workload
from minfer_models.engine import Engine, Rows, TokenSequence
from minfer_models.llm import LLM
from minfer_models.sampling import Sampler, SamplingParams

T = TypeVar("T")

Inputs = Mapping[str, NDArray[np.int32]]


TimesT = TypeVar("TimesT")


@dataclass(frozen=True, slots=True)
class Forward(Generic[TimesT]):
    """One forward: what ran, what it was filled with, and when, in seconds of `perf_counter`.

    `times` are those of its program's parts, as its backend takes them. `began` and `ended` span all of it, the choice
    of the next token included.
    """

    executable: Executable
    inputs: Inputs
    times: TimesT
    began: float
    ended: float

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.ended - self.began


Timed = Callable[[Executable], AbstractContextManager[list[TimesT]]]
"""What has a graph's program take times: while it is open, every run adds one to the list."""


def cpu_times(executable: Executable) -> AbstractContextManager[list[TapeTimes]]:
    """Of a graph on the CPU, instruction by instruction."""
    return program_of(executable).timed()


def cpu_backend(llm: LLM) -> CpuBackend:
    """The CPU backend; BenchError when the model runs elsewhere too."""
    backends = list(llm.engine.resources.backends)
    if llm.cpu is None or len(backends) != 1:
        raise BenchError(f"only programs of the cpu backend alone can be timed, and this model runs on {backends}")
    return llm.cpu


def program_of(executable: Executable) -> CpuProgram:
    """The only program of a graph; BenchError for a graph in several parts."""
    program = executable.programs[0]
    if len(executable.programs) != 1 or not isinstance(program, CpuProgram):
        raise BenchError(f"only a graph in one part can be timed, this one has {len(executable.programs)}")
    return program


class TimedRunner(Generic[TimesT]):
    """Runs workloads on a loaded model, each from an empty context."""

    def __init__(self, llm: LLM, timed: Timed[TimesT]) -> None:
        self._engine, self._prompt, self._timed = llm.engine, Runner(llm).prompt, timed
        self._sampler = llm.sampler(SamplingParams(temperature=0.0))

    def run(self, workload: Workload) -> list[Forward[TimesT]]:
        """Fill the workload's depth untimed, then run it; its forwards in order."""
        ids = self._prompt(workload.depth + (workload.tokens if workload.phase == "pp" else 1))
        with TokenSequence(self._engine, workload.cells) as sequence, ExitStack() as stack:
            if workload.depth:
                sequence.feed(ids[: workload.depth])
            work = _Work(self._engine, self._sampler, sequence, stack, self._timed)
            return work.prefill(ids[workload.depth :]) if workload.phase == "pp" else work.decode(ids[-1], workload)


class _Work(Generic[TimesT]):
    """One sequence's forwards, as generation makes them; `stack` keeps programs timed until all are through."""

    def __init__(
        self, engine: Engine, sampler: Sampler, sequence: TokenSequence, stack: ExitStack, timed: Timed[TimesT]
    ) -> None:
        self._engine, self._sampler, self._sequence, self._stack = engine, sampler, sequence, stack
        self._take = timed
        self._timed: dict[int, list[TimesT]] = {}

    def prefill(self, ids: Sequence[int]) -> list[Forward[TimesT]]:
        """The prompt, in chunks."""
        chunk = self._engine.chunk
        return [self._forward(ids[i : i + chunk], self._sequence.feed)[0] for i in range(0, len(ids), chunk)]

    def decode(self, token: int, workload: Workload) -> list[Forward[TimesT]]:
        """Tokens one by one, each chosen from the logits before."""
        forwards: list[Forward[TimesT]] = []
        for _ in range(workload.tokens):
            forward, token = self._forward([token], self._next)
            forwards.append(forward)
        return forwards

    def _next(self, ids: Sequence[int]) -> int:
        return self._sampler.sample(self._sequence.next_logits(ids))

    def _forward(self, ids: Sequence[int], work: Callable[[Sequence[int]], T]) -> tuple[Forward[TimesT], T]:
        rows = Rows.of(self._sequence.id, ids, self._sequence.length)
        params, inputs = self._engine.prepare(rows, "last")
        executable = self._engine.executable(params)
        runs = self._runs(executable)
        began = perf_counter()
        made = work(ids)
        ended = perf_counter()
        kept = {name: np.array(values) for name, values in inputs.items()}
        return Forward(executable, kept, runs[-1], began, ended), made

    def _runs(self, executable: Executable) -> list[TimesT]:
        """Where the program's times go."""
        if id(executable) not in self._timed:
            self._timed[id(executable)] = self._stack.enter_context(self._take(executable))
        return self._timed[id(executable)]
