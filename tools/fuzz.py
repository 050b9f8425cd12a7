"""`python -m tools.fuzz`: damaged and hostile model files, to find one that does anything but load or be refused."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import typer

from minfer_models.cli.command import application, reported
from tools import testdata
from tools.fuzzing.cases import Cases
from tools.fuzzing.child import attempt, write_case
from tools.fuzzing.runner import ROOT, Report, run
from tools.fuzzing.seeds import read_seeds, write_seeds

SUITE = 20_000
FULL = 200_000
LOAD_EVERY = 200
CHUNK = 5_000


def fuzz(
    full: Annotated[bool, typer.Option("--full", help=f"{FULL:,} cases instead of {SUITE:,}.")] = False,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="So many cases.")] = None,
    start: Annotated[int, typer.Option(min=0, help="The first case.")] = 0,
    seed: Annotated[int, typer.Option(help="Which cases are drawn; 0 are those of the suite.")] = 0,
    load_every: Annotated[int, typer.Option(min=2, help="One in so many is loaded and run.")] = LOAD_EVERY,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Processes at a time.")] = 1,
    case: Annotated[int | None, typer.Option(help="Try one case, here, and say what it is.")] = None,
    keep: Annotated[Path | None, typer.Option(help="With --case: a folder to leave its files in.")] = None,
    atheris: Annotated[int | None, typer.Option(help="Let coverage guide, for so many seconds.")] = None,
) -> None:
    """Fuzz everything that reads a model file. Exit status 1 when something was found."""
    with tempfile.TemporaryDirectory(prefix="minfer-fuzz-seeds-") as folder:
        seeds = Path(folder) / "seeds"
        write_seeds(seeds, testdata.path(testdata.DEMO))
        if atheris is not None:
            raise typer.Exit(_guided(seeds, atheris, seed))
        if case is not None:
            raise typer.Exit(_one(seeds, seed, case, keep))
        n = count or (FULL if full else SUITE)
        report = _all(seeds, seed, range(start, start + n), load_every, jobs)
    _print(report, seed)
    if report.findings:
        raise typer.Exit(1)


def _all(seeds: Path, seed: int, numbers: range, load_every: int, jobs: int) -> Report:
    """Every case, in chunks: a child that has run for long would hide how much memory a case takes."""
    total = Report()
    chunks = [numbers[at : at + CHUNK] for at in range(0, len(numbers), CHUNK)]
    with ThreadPoolExecutor(jobs) as pool:
        for chunk, part in zip(chunks, pool.map(lambda c: run(seeds, seed, c, load_every), chunks), strict=True):
            total.outcomes += part.outcomes
            total.findings += part.findings
            total.slowest = max(total.slowest, part.slowest)
            total.resident = max(total.resident, part.resident)
            typer.echo(f"to case {chunk.stop}: {len(total.findings)} findings", err=True)
    return total


def _one(seeds: Path, seed: int, number: int, keep: Path | None) -> int:
    """Try a case in this process, as deep as any goes; its exit status."""
    case = Cases(read_seeds(seeds), seed)[number]
    typer.echo(str(case))
    with tempfile.TemporaryDirectory(prefix="minfer-fuzz-") as folder:
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            typer.echo(f"written: {write_case(case, keep)}")
        outcome, finding = attempt(case, Path(folder), load_every=2)
    typer.echo(outcome if finding is None else finding)
    return 0 if finding is None else 1


def _guided(seeds: Path, seconds: int, seed: int) -> int:
    """Run the coverage-guided fuzzer in a process of its own: it ends its process when it's through."""
    command = [sys.executable, "-m", "tools.fuzzing.guided", str(seeds), str(seconds), str(seed)]
    return subprocess.run(command, cwd=ROOT, env=dict(os.environ), check=False).returncode


def _print(report: Report, seed: int) -> None:
    for finding in report.findings:
        typer.echo(finding.report(seed))
    counts = ", ".join(f"{name} {n}" for name, n in sorted(report.outcomes.items()))
    typer.echo(f"{sum(report.outcomes.values())} cases of seed {seed}: {counts}; {len(report.findings)} findings")
    typer.echo(f"slowest: {report.slowest[0]:.2f} s, {report.slowest[1]}; most memory: {report.resident} MiB")


app = application("fuzz", "Try damaged and hostile model files.")
app.command()(reported("fuzz")(fuzz))

if __name__ == "__main__":
    app()
