"""`python -m tools.ratios`: the table of docs/performance.md, our speed over llama.cpp's, in one command.

Every model is made first (`tools.make_model`, the demo model's re-encodings and random models of Qwen3's shape), then
each is measured by `minfer-bench peer`. Needs the extra `peers`, a quarter of an hour and 4 GB of disk.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from minfer_models.cli.command import application, reported
from minfer_models.hub.demo import fetch_demo
from minfer_models.settings import Settings

SHAPE = "qwen3-0.6b"
DEPTH = 7680
ONE_THREAD = 0.85
"""With one thread the goals are the table's less 15 %."""

PEER = "llama.cpp"


@dataclass(frozen=True, slots=True)
class Row:
    """A model to measure and what its ratios should reach with two threads."""

    model: str
    type_name: str
    tg: float
    pp: float
    depth: int = 0
    kv: str = "auto"
    n_prompt: int = 512
    n_gen: int = 128

    @property
    def title(self) -> str:
        """As the table names it."""
        there = f", pp{self.n_prompt} and tg{self.n_gen} at depth {self.depth} with {self.kv} KV" if self.depth else ""
        return f"{self.model} {self.type_name}{there}"

    def tokens(self, phase: str) -> tuple[str, ...]:
        """The options of one test without the other."""
        prompt, generated = (self.n_prompt, 0) if phase == "pp" else (0, self.n_gen)
        return ("-p", str(prompt), "-n", str(generated))

    @property
    def file_name(self) -> str:
        """Of its model."""
        return f"{self.model}-{self.type_name}.gguf"


SMOLLM2 = "SmolLM2-135M"
ROWS = (
    Row(SMOLLM2, "Q4_1", 2.2, 4.0),
    Row(SMOLLM2, "Q4_0", 2.0, 2.2),
    Row(SMOLLM2, "Q5_0", 1.8, 2.2),
    Row(SMOLLM2, "Q5_1", 1.8, 2.2),
    Row(SMOLLM2, "Q8_0", 1.5, 1.6),
    Row(SMOLLM2, "F16", 1.3, 1.1),
    Row(SHAPE, "Q4_K_M", 1.3, 1.5),
    Row(SHAPE, "Q5_K", 1.25, 2.2),
    Row(SHAPE, "Q6_K", 1.25, 2.2),
    Row(SHAPE, "Q8_0", 1.1, 1.6),
    Row(
        SHAPE, "Q4_K_M", 2.0, 2.0, DEPTH, "q8_0", n_prompt=128, n_gen=32
    ),  # less: llama.cpp takes a minute to get there
)


def ratios(
    models: Annotated[Path, typer.Option("--models", help="Folder of the models; what is missing is made.")],
    threads: Annotated[int, typer.Option("-t", "--threads", min=1, help="Threads of both engines.")] = 2,
    rounds: Annotated[int, typer.Option("-r", "--rounds", min=1, help="Timed rounds of each test.")] = 5,
    only: Annotated[
        str, typer.Option("--only", metavar="TEXT", help="The row with the title TEXT, else all with TEXT in it.")
    ] = "",
    peer_options: Annotated[str, typer.Option("--peer-options", help="As `minfer-bench peer` takes them.")] = "",
    under: Annotated[str, typer.Option("--under", metavar="COMMAND", help="Run each measurement under COMMAND.")] = "",
    kept: Annotated[
        Path | None, typer.Option("--kept", help="Folder for every measurement's JSON; one that's there counts.")
    ] = None,
) -> None:
    """Measure all models and print one markdown table."""
    rows = [row for row in ROWS if row.title == only] or [row for row in ROWS if only in row.title]
    if not rows:
        raise typer.BadParameter(f"no row has {only!r} in its title: {', '.join(row.title for row in ROWS)}")
    found: list[tuple[Row, dict[str, Any]]] = []
    for row in rows:
        path = _model(models, row)
        options = ["-t", str(threads), "-r", str(rounds), *_options(row, peer_options)]
        report: dict[str, Any] = {"results": []}
        for phase in ("pp", "tg"):  # one at a time: what COMMAND holds for it is held shortly
            place = None if kept is None else kept / f"{row.file_name}-d{row.depth}-t{threads}-{phase}.json"
            part = _measured(path, [*options, *row.tokens(phase)], shlex.split(under), place)
            report = {**part, "results": [*report["results"], *part["results"]]}
        found.append((row, report))
        typer.echo(_row_text(row, report, threads), err=True)
    typer.echo(table(found, threads))


def table(found: Sequence[tuple[Row, dict[str, Any]]], threads: int) -> str:
    """The reports as one table, with what they were taken on below."""
    phases = [f"{what}: minfer | {PEER} | ratio | goal" for what in ("decode tg128", "prefill pp512")]
    lines = [
        f"| model | {' | '.join(phases)} | KL |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        *(_row_text(row, report, threads) for row, report in found),
        "",
        *_conditions(found[0][1], threads),
    ]
    return "\n".join(lines)


def _model(folder: Path, row: Row) -> Path:
    """The row's file, made if need be."""
    demo = fetch_demo(Settings.from_env())
    if (row.model, row.type_name) == (SMOLLM2, "Q4_1"):
        return demo
    path = folder / row.file_name
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    origin = ["--from", str(demo)] if row.model == SMOLLM2 else ["--shape", row.model]
    subprocess.run([sys.executable, "-m", "tools.make_model", str(path), *origin, "--type", row.type_name], check=True)
    return path


def _options(row: Row, peer_options: str) -> Iterator[str]:
    if row.depth:
        yield from ("-d", str(row.depth), "--keep-depth")
    if row.kv != "auto":
        yield from ("--kv", row.kv)
    if peer_options:
        yield from ("--peer-options", peer_options)


def _measured(path: Path, options: Sequence[str], under: Sequence[str], place: Path | None) -> dict[str, Any]:
    if place is not None and place.exists():
        return json.loads(place.read_text())
    command = [*under, sys.executable, "-m", "minfer_models.bench.main", "peer", str(path), "--peer", PEER, *options]
    run = subprocess.run([*command, "-o", "json"], stdout=subprocess.PIPE, text=True, check=False)
    if run.returncode:
        raise RuntimeError(f"`{shlex.join(command)}` exited with {run.returncode} (see above)")
    if place is not None:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(run.stdout)
    return json.loads(run.stdout)


def _row_text(row: Row, report: dict[str, Any], threads: int) -> str:
    share = ONE_THREAD if threads == 1 else 1.0
    tests = {test["phase"]: test for test in report["results"]}
    cells = [row.title]
    for phase, goal in (("tg", row.tg * share), ("pp", row.pp * share)):
        test = tests[phase]
        reached = "**" if test["ratio"]["median"] >= goal else ""
        cells += [f"{test['ours']['median']:.1f}", f"{test['peer']['median']:.1f}"]
        cells += [f"{reached}{test['ratio']['median']:.2f}{reached}", f"{goal:.2f}"]
    return f"| {' | '.join(cells)} | {report['kl']['mean']:.1e} |"


def _conditions(report: dict[str, Any], threads: int) -> Iterator[str]:
    conditions, peer = report["conditions"], report["peer"]
    machine, source = conditions["machine"], conditions["source"]
    commit = (source["commit"] or "without a commit")[:12]
    changes = " with changes" if source["dirty"] else ""
    yield f"Tokens per second, medians of {report['results'][0]['ratio']['rounds']} matched rounds, {threads} threads;"
    yield "a ratio in bold reaches its goal; KL(llama.cpp || minfer) is a mean in nats a token over a fixed text."
    yield f"{machine['cpu']} ({machine['cores']} cores), {conditions['date'][:10]}, minfer {commit}{changes},"
    yield f"{PEER} {peer['about'].get('version')}: {peer['about'].get('system')}"


app = application("ratios", "Measure our speed over llama.cpp's on a set of models.")
app.command()(reported("ratios")(ratios))

if __name__ == "__main__":
    app()
