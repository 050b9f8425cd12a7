"""Compile many configurations in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import IO

from minfer_kernels.gpu.gate.figures import Figures

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True, slots=True)
class Compiled:
    """What became of one configuration for one target: figures, or why there are none."""

    name: str
    target: str
    figures: Figures | None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Worker:
    """A process that answers one question at a time; `errors` is the file that it complains to."""

    process: subprocess.Popen[str]
    errors: IO[bytes]

    def ask(self, target: str, name: str) -> Compiled:
        """Waits for the answer; a process that is gone is one."""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(f"{target} {name}\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self.errors.seek(0)
            said = self.errors.read().decode(errors="replace").strip()
            return Compiled(name, target, None, f"the compiling process ended: {said[-2000:]}")
        told = json.loads(line)
        figures = Figures.from_json(told["figures"]) if "figures" in told else None
        return Compiled(told["name"], told["target"], figures, told.get("error"))


def compile_all(
    jobs: Sequence[tuple[str, str]], cache: Path, environ: Mapping[str, str], workers: int = 2
) -> Iterator[Compiled]:
    """Compile every (target, configuration name), yielding each when it is done.

    `cache` keeps figures between runs; `environ` is the environment to give to the processes, without what would make
    them interpret.
    """
    workers = min(workers, len(jobs))
    with tempfile.TemporaryDirectory() as scratch:
        clean = {name: value for name, value in environ.items() if name != "TRITON_INTERPRET"}
        clean |= {"TRITON_CACHE_DIR": scratch}
        free: SimpleQueue[Worker] = SimpleQueue()
        with ThreadPoolExecutor(max(1, workers)) as threads, _started(workers, cache, clean, free):
            for job in as_completed([threads.submit(_compiled, free, *one) for one in jobs]):
                yield job.result()


@contextmanager
def _started(workers: int, cache: Path, environ: Mapping[str, str], free: SimpleQueue[Worker]) -> Iterator[None]:
    """Worker processes, in `free`; ended by the end of their input."""
    command = [sys.executable, "-m", "minfer_kernels.gpu.gate.worker", str(cache)]
    with tempfile.TemporaryFile() as errors:
        workers_here = [Worker(_process(command, environ, errors), errors) for _ in range(workers)]
        for worker in workers_here:
            free.put(worker)
        try:
            yield
        finally:
            for worker in workers_here:
                worker.process.communicate()


def _process(command: Sequence[str], environ: Mapping[str, str], errors: IO[bytes]) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, env=dict(environ), text=True, stdin=pipe, stdout=pipe, stderr=errors)


def _compiled(free: SimpleQueue[Worker], target: str, name: str) -> Compiled:
    worker = free.get()
    try:
        return worker.ask(target, name)
    finally:
        free.put(worker)
