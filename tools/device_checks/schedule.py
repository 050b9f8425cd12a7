"""What runs when, each in processes of its own and for so long at most: a fault or a hang costs its part, no more."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

from tools.device_checks.results import Report, Result

ROOT = Path(__file__).resolve().parents[2]
MIXES = ("Q8_0", "Q4_K_M", "F16", "Q4_0")
ARCHITECTURES = ("llama", "qwen2", "qwen3")
SHARDS = 8
"""Processes that the op matrix is spread over: nearly all of its time is the compiler's, on one core each."""
MARGIN_S = 4.0
"""A part is told to end by itself so long before it is ended."""


@dataclass(frozen=True, slots=True)
class Part:
    """Commands that run at once, and the seconds after which those that still run are ended."""

    name: str
    commands: tuple[tuple[str, ...], ...]
    limit_s: float


def parts(dry: bool) -> list[Part]:
    """In the order of how much one wants to know it; the limits add up to less than eight minutes."""
    mixes = MIXES[:1] if dry else MIXES
    shards = 1 if dry else SHARDS
    matrix = tuple(("op-matrix", str(i), str(shards)) for i in range(shards))
    tiny = tuple(("models", architecture) for architecture in (ARCHITECTURES[:1] if dry else ARCHITECTURES))
    warm = tuple(("warm", mix) for mix in mixes)
    return [
        Part("environment", (("environment",),), 30),
        Part("op matrix and compiling", (*warm, *matrix), 110),
        Part("models and capture", (*tiny, ("capture",)), 60),
        Part("attention", (("attention",),), 35),
        *(Part(f"bench {mix}", (("bench", mix),), 42) for mix in mixes),
        Part("matmul", (("matmul",),), 30),
        Part("memcheck", (("memcheck",),), 40),
    ]


@dataclass(frozen=True, slots=True)
class Run:
    """One run of everything: `limit_s` for all of it, `only` parts with this in their name."""

    data: Path
    out: Path
    dry: bool
    limit_s: float
    only: str = ""

    def environment(self) -> dict[str, str]:
        """For the parts: interpreted kernels in a dry run, compiled ones else."""
        kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
        kept["OMP_NUM_THREADS"] = "1" if self.dry else kept.get("OMP_NUM_THREADS", "4")
        return kept | ({"TRITON_INTERPRET": "1"} if self.dry else {})

    def command(self, words: Sequence[str], seconds: float) -> list[str]:
        """One part's process."""
        command = [sys.executable, "-m", "tools.device_checks.part", *words, "--data", str(self.data)]
        command += ["--ceilings", str(self.out / "ceilings.json"), "--seconds", f"{seconds:.0f}"]
        return [*command, "--dry"] if self.dry else command


def run_all(run: Run, report: Report) -> None:
    """Every part in order, as long as there is time; the report has everything at every moment."""
    end = time.monotonic() + run.limit_s
    for part in parts(run.dry):
        if run.only not in part.name and part.name != "environment":
            continue
        left = end - time.monotonic()
        if left < MARGIN_S:
            report.add(Result(part.name, "all of it", "info", detail="left out: out of time"))
            continue
        for result in run_part(run, part, left if run.dry else min(part.limit_s, left)):
            report.add(result)


def run_part(run: Run, part: Part, limit_s: float) -> Iterator[Result]:
    """Results as they come; one more for every process that failed or was ended."""
    start = time.monotonic()
    heard: SimpleQueue[Result] = SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        started = [_Child(run, words, Path(folder) / f"{i}", limit_s) for i, words in enumerate(part.commands)]
        readers = [Thread(target=child.read, args=(heard,), daemon=True) for child in started]
        for reader in readers:
            reader.start()
        while any(reader.is_alive() for reader in readers) and time.monotonic() - start < limit_s:
            try:
                yield heard.get(timeout=0.2)
            except Empty:
                continue
        ended = [child.end() for child in started]
        for reader in readers:
            reader.join(timeout=5)
        while not heard.empty():
            yield heard.get()
        for child, cut in zip(started, ended, strict=True):
            yield from child.verdict(part.name, cut, limit_s)
    yield Result(part.name, "the whole part", "info", time.monotonic() - start, "s")


class _Child:
    """One process of a part."""

    def __init__(self, run: Run, words: Sequence[str], errors: Path, limit_s: float) -> None:
        self.name, self._errors = " ".join(words), errors
        command = run.command(words, max(limit_s - MARGIN_S, 1.0))
        with errors.open("wb") as file:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=run.environment(), stdout=subprocess.PIPE, stderr=file, text=True
            )

    def read(self, heard: SimpleQueue[Result]) -> None:
        """Pass its results on until it ends; lines that are none are somebody's chatter."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                heard.put(Result.from_line(line))
            except ValueError:
                continue

    def end(self) -> bool:
        """End it if it still runs; whether it did."""
        try:
            self._process.wait(timeout=0.5)
            return False
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return True

    def verdict(self, part: str, cut: bool, limit_s: float) -> Iterator[Result]:
        """What there is to say of its end."""
        if cut:
            yield Result(part, self.name, "FAILED", detail=f"ended after {limit_s:.0f} s")
        elif self._process.returncode != 0:
            said = self._errors.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            detail = f"status {self._process.returncode}: {' / '.join(said[-3:])}"
            yield Result(part, self.name, "FAILED", detail=detail[:800])
