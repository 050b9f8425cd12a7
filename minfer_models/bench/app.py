"""The `minfer-bench` command."""

from __future__ import annotations

from enum import StrEnum
from time import perf_counter
from typing import Annotated

import typer

from minfer_models.cli.command import application, reported
from minfer_models.cli.options import KvCells, KvType, ModelName, Threads


class Output(StrEnum):
    """How the result is printed."""

    MD = "md"
    JSON = "json"


def bench(
    model: ModelName,
    n_prompt: Annotated[
        int, typer.Option("-p", "--n-prompt", min=0, help="Tokens of the prefill test; 0 skips it.")
    ] = 512,
    n_gen: Annotated[int, typer.Option("-n", "--n-gen", min=0, help="Tokens of the decode test; 0 skips it.")] = 128,
    repetitions: Annotated[int, typer.Option("-r", "--repetitions", min=1, help="Timed runs of each test.")] = 5,
    threads: Threads = None,
    kv: KvType = KvCells.AUTO,
    output: Annotated[Output, typer.Option("-o", "--output", help="Markdown or JSON.")] = Output.MD,
) -> None:
    """Measure prefill and decode.

    A warm-up that doesn't count, then repetitions, each from an empty context.
    """
    if not n_prompt and not n_gen:
        raise typer.BadParameter("-p 0 and -n 0 leave nothing to measure")
    from minfer_models.bench.machine import Machine, peak_bytes
    from minfer_models.bench.report import Run
    from minfer_models.bench.throughput import measure
    from minfer_models.cli.loading import load_shown
    from minfer_models.cli.progress import progress
    from minfer_models.cli.settings_view import settings_of

    with progress("minfer-bench") as shown:
        start = perf_counter()
        with load_shown(model, shown, threads=threads, kv=kv) as llm:
            loaded = perf_counter() - start
            engine = llm.engine
            measurements = measure(engine, n_prompt, n_gen, repetitions, shown.show)
            run = Run(
                model=engine.model.file.path.name,
                file_bytes=engine.model.file.size,
                settings=settings_of(llm),
                machine=Machine.here(),
                load_seconds=loaded,
                peak_bytes=peak_bytes(),
                measurements=measurements,
            )
    typer.echo(run.to_json() if output is Output.JSON else run.to_markdown())


app = application("minfer-bench", "Measure prefill and decode.")
app.command()(reported("minfer-bench")(bench))
