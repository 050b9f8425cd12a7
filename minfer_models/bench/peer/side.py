"""Another engine as a side of a measurement, in a process of its own."""

from __future__ import annotations

import os
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
    """How the peer is set up. `options` are its own: None of them means its defaults."""

    n_ctx: int
    threads: int
    kv: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


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
    """A side whose runs start once the other side's threads have gone to sleep, and that sees whether they stay so.

    `idle_seconds` says how much CPU time the other side's process has used so far, None where that can't be known.
    `shares` are, run by run, what it used meanwhile, as a share of the run's seconds.
    """

    def __init__(self, side: Side, idle_seconds: Callable[[], float | None], settle: float = SETTLE_SECONDS) -> None:
        self._side, self._idle_seconds, self._settle = side, idle_seconds, settle
        self.shares: list[float] = []

    @property
    def name(self) -> str:
        """The side's."""
        return self._side.name

    def run(self, workload: Workload) -> Sample:
        """One run, a moment later."""
        sleep(self._settle)
        before, start = self._idle_seconds(), perf_counter()
        sample = self._side.run(workload)
        after, seconds = self._idle_seconds(), perf_counter() - start
        if before is not None and after is not None:
            self.shares.append((after - before) / seconds)
        return sample


def cpu_seconds(pid: int, proc: Path = Path("/proc")) -> float | None:
    """CPU time that a process has used, its threads included, to a hundredth of a second; None where unknown."""
    try:
        fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def _load_arguments(choices: PeerChoices) -> dict[str, Any]:
    return {"n_ctx": choices.n_ctx, "threads": choices.threads, "kv": choices.kv, **choices.options}
