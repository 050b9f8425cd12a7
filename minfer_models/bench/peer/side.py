"""Another engine as a side of a measurement, in a process of its own."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import numpy as np

from minfer_models.bench.child import Child
from minfer_models.bench.sides import Sample, Side
from minfer_models.bench.workload import BenchError, Workload
from minfer_models.engine import Logits

SETTLE_SECONDS = 0.05
"""OpenMP's threads spin for some milliseconds after a run before they sleep; the next side's run starts behind that."""


DISTURBED = 0.1
"""A tenth of one core to others: two threads on two cores then wait for each other at every barrier."""

MOST_TRIES = 4

CpuClocks = Callable[[], tuple[float, float, float] | None]
"""CPU seconds so far: of the waiting side's process, of the running side's, of the whole machine; None: unknown."""


@dataclass(frozen=True, slots=True)
class PeerProgram:
    """An engine that can be asked: `command` starts its worker, `options` are what its `load` takes beyond ours."""

    name: str
    command: tuple[str, ...]
    options: tuple[str, ...] = ()


PEERS = {
    "llama.cpp": PeerProgram(
        "llama.cpp",
        (sys.executable, "-P", str(Path(__file__).with_name("llama_cpp_worker.py"))),
        ("flash", "repack", "batch"),
    )
}


def peer_named(name: str) -> PeerProgram:
    """Raises BenchError naming the known ones."""
    if name not in PEERS:
        raise BenchError(f"no peer is called {name!r}; there is {', '.join(PEERS)}")
    return PEERS[name]


@dataclass(frozen=True, slots=True)
class PeerChoices:
    """How the peer is set up. `options` are its own, none of them its defaults. `gpu`: it runs everything there."""

    n_ctx: int
    threads: int
    kv: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    gpu: int | None = None


class PeerSide:
    """A peer with the model loaded; close it when done. Raises BenchError for whatever goes wrong in it."""

    def __init__(self, program: PeerProgram, model: Path, choices: PeerChoices) -> None:
        self.name = program.name
        self.child = Child(program.command, program.name)
        self.about: dict[str, Any] = self.child.ready
        try:
            loaded = self.child.ask("load", model=str(model.resolve()), **_load_arguments(choices))
        except BaseException:
            self.child.close()
            raise
        self.load_seconds: float = loaded["seconds"]
        self.settings: dict[str, Any] = loaded["settings"]
        self.n_vocab: int = loaded["n_vocab"]

    def run(self, workload: Workload) -> Sample:
        """One run from an empty context."""
        return Sample(self.child.ask("run", **asdict(workload))["seconds"])

    def logits(self, ids: Sequence[int]) -> Logits:
        """The logits behind every token of `ids`: float32 `[n_tokens, n_vocab]`."""
        with tempfile.TemporaryDirectory(prefix="minfer-peer-") as folder:
            path = Path(folder) / "logits"
            rows, width = self.child.ask("logits", ids=list(ids), path=str(path))["shape"]
            return np.fromfile(path, np.float32).reshape(rows, width)

    def close(self) -> None:
        """End its process."""
        self.child.close()


class Watched:
    """A side whose runs start once the other side's threads sleep, and that sees who else used the CPU meanwhile.

    `waiting` is CPU time that the waiting side used, `others` what everything else on the machine used (a hypervisor's
    steal included), each as a share of the run's seconds, run by run; empty where the system doesn't say. A run that
    others disturbed by more than DISTURBED is taken again, MOST_TRIES times at most; `repeated` counts them.
    """

    def __init__(self, side: Side, clocks: CpuClocks, settle: float = SETTLE_SECONDS) -> None:
        self._side, self._clocks, self._settle = side, clocks, settle
        self.waiting: list[float] = []
        self.others: list[float] = []
        self.repeated = 0

    @property
    def name(self) -> str:
        """The side's."""
        return self._side.name

    def run(self, workload: Workload) -> Sample:
        """One run, a moment later."""
        for left in reversed(range(MOST_TRIES)):
            sample, shares = self._once(workload)
            if shares is None:
                return sample
            waiting, others = shares
            if others <= DISTURBED or not left:
                self.waiting.append(waiting)
                self.others.append(others)
                return sample
            self.repeated += 1
        raise AssertionError("the last try returns")

    def _once(self, workload: Workload) -> tuple[Sample, tuple[float, float] | None]:
        sleep(self._settle)
        before, start = self._clocks(), perf_counter()
        sample = self._side.run(workload)
        after, seconds = self._clocks(), perf_counter() - start
        if before is None or after is None:
            return sample, None
        waiting, running, machine = (b - a for a, b in zip(before, after, strict=True))
        return sample, (waiting / seconds, max(0.0, machine - waiting - running) / seconds)


def _load_arguments(choices: PeerChoices) -> dict[str, Any]:
    place = {} if choices.gpu is None else {"gpu": choices.gpu}
    return {"n_ctx": choices.n_ctx, "threads": choices.threads, "kv": choices.kv, **choices.options, **place}
