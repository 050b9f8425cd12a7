"""What runs when, each in processes of its own and for so long at most: a fault or a hang costs its part, no more."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
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
SILENCE_S = 15.0
"""After so long without a result a line says what runs."""
DRY_LIMIT_S = 600.0
"""Of a part in the interpreter, on one core."""


@dataclass(frozen=True, slots=True)
class Part:
    """Commands, so many of them at once, and the seconds after which those that still run are ended."""

    name: str
    commands: tuple[tuple[str, ...], ...]
    limit_s: float
    at_once: int = 64


def parts(dry: bool) -> list[Part]:
    """In the order of how much one wants to know it; on a device the limits add up to less than eight minutes."""
    mixes = MIXES[:2] if dry else MIXES
    shards = 1 if dry else SHARDS
    matrix = tuple(("op-matrix", str(i), str(shards)) for i in range(shards))
    tiny = tuple(("models", architecture) for architecture in (ARCHITECTURES[:1] if dry else ARCHITECTURES))
    warm = (*(("warm", mix) for mix in (mixes[:1] if dry else mixes)), ("warm-invariance", MIXES[0]))
    bench = {mix: Part(f"bench {mix}", (("bench", mix),), 40) for mix in mixes}
    found = [
        Part("environment", (("environment",),), 25),
        Part("op matrix and compiling", (*matrix, *warm), 110),
        Part("models and capture", (*tiny, ("capture",)), 50),
        *(bench.pop(mix) for mix in MIXES[:2]),
        Part("attention", (("attention",),), 30),
        Part("invariance", (("invariance", MIXES[0]),), 40),
        *bench.values(),
        Part("matmul", (("matmul",),), 25),
        Part("memcheck", (("memcheck",),), 30),
    ]
    return [replace(part, at_once=1, limit_s=DRY_LIMIT_S) for part in found] if dry else found


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
        command = [sys.executable, "-m", "tools.device_checks.child", *words, "--data", str(self.data)]
        command += ["--ceilings", str(self.out / "ceilings.json"), "--seconds", f"{seconds:.0f}"]
        return [*command, "--dry"] if self.dry else command


def run_all(run: Run, report: Report) -> None:
    """Every part in order, as long as there is time; the report has everything at every moment."""
    end = time.monotonic() + run.limit_s
    chosen = [part for part in parts(run.dry) if run.only in part.name or part.name == "environment"]
    for number, part in enumerate(chosen, 1):
        left = end - time.monotonic()
        if left < MARGIN_S:
            report.add(Result(part.name, "all of it", "info", detail="left out: out of time"))
            continue
        limit_s = min(part.limit_s, left)
        print(f"- {part.name}: part {number} of {len(chosen)}, at most {limit_s:.0f} s", flush=True)
        for result in run_part(run, part, limit_s):
            report.add(result)


def run_part(run: Run, part: Part, limit_s: float) -> Iterator[Result]:
    """Results as they come; one more for every process that failed or was ended."""
    start = time.monotonic()
    heard: SimpleQueue[Result] = SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        children: list[_Child] = []
        try:
            for number, words in enumerate(part.commands):
                yield from _room(children, part.at_once, heard, start, limit_s)
                if left := max(limit_s - (time.monotonic() - start), 0.0):
                    children.append(_Child(run, words, Path(folder) / f"{number}", left, heard))
            yield from _room(children, 1, heard, start, limit_s)
        finally:
            ended = [child.end() for child in children]
        while not heard.empty():
            yield heard.get()
        for child, cut in zip(children, ended, strict=True):
            yield from child.verdict(part.name, cut, limit_s)
        for words in part.commands[len(children) :]:
            yield Result(part.name, " ".join(words), "info", detail="left out: out of time")
    yield Result(part.name, "the whole part", "info", time.monotonic() - start, "s")


def _room(
    children: Sequence[_Child], at_once: int, heard: SimpleQueue[Result], start: float, limit_s: float
) -> Iterator[Result]:
    """Pass results on until fewer than `at_once` run or the time is over; says now and then that it is alive."""
    spoke = time.monotonic()
    while sum(child.runs for child in children) >= at_once and time.monotonic() - start < limit_s:
        with suppress(Empty):
            yield heard.get(timeout=0.2)
            spoke = time.monotonic()
        if time.monotonic() - spoke > SILENCE_S:
            running = ", ".join(child.name for child in children if child.runs)
            print(f"  {time.monotonic() - start:.0f} s: {running}", flush=True)
            spoke = time.monotonic()


class _Child:
    """One process of a part, and the thread that passes on what it says."""

    def __init__(
        self, run: Run, words: Sequence[str], errors: Path, limit_s: float, heard: SimpleQueue[Result]
    ) -> None:
        self.name, self._errors = " ".join(words), errors
        command = run.command(words, max(limit_s - MARGIN_S, 1.0))
        with errors.open("wb") as file:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=run.environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
            )
        self._reader = Thread(target=self._read, args=(heard,), daemon=True)
        self._reader.start()

    @property
    def runs(self) -> bool:
        """Whether there may be more to hear of it."""
        return self._reader.is_alive()

    def _read(self, heard: SimpleQueue[Result]) -> None:
        """Pass its results on until it ends; lines that are none are somebody's chatter."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                heard.put(Result.from_line(line))
            except ValueError:
                continue

    def end(self) -> bool:
        """End it, and whoever it has started, if it still runs; whether it did."""
        assert self._process.stdin is not None
        try:
            self._process.wait(timeout=0.5)
            return False
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return True
        finally:
            self._process.stdin.close()
            self._reader.join(timeout=5)

    def verdict(self, part: str, cut: bool, limit_s: float) -> Iterator[Result]:
        """What there is to say of its end."""
        if cut:
            yield Result(part, self.name, "FAILED", detail=f"ended after {limit_s:.0f} s")
        elif self._process.returncode != 0:
            said = self._errors.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            detail = f"status {self._process.returncode}: {' / '.join(said[-3:])}"
            yield Result(part, self.name, "FAILED", detail=detail[:800])
