"""`minfer-bench sampling`: the command line."""

from __future__ import annotations

from typing import Annotated

import typer

from minfer_models.bench.options import OutputForm
from minfer_models.bench.report.document import Output, written
from minfer_models.cli.options import ModelName, Threads


def sampling(
    model: ModelName,
    repetitions: Annotated[int, typer.Option("-r", "--repetitions", min=1, help="Choices of every sampler.")] = 50,
    vocabulary: Annotated[
        int, typer.Option("--vocab", min=2, help="Logits to choose from; what the model lacks is added.")
    ] = 151_936,
    history: Annotated[int, typer.Option("--history", min=0, help="Tokens that penalties look at.")] = 512,
    threads: Threads = None,
    output: OutputForm = Output.MD,
) -> None:
    """Measure what choosing a token costs, next to a decode step of the model in the same run."""
    from minfer_models.bench.loading import EngineChoices, find_model
    from minfer_models.bench.sampling.measure import measure
    from minfer_models.cli.progress import progress

    path = find_model(model)
    with progress("minfer-bench") as shown:
        report = measure(path, vocabulary, history, repetitions, EngineChoices(threads=threads), shown)
    typer.echo(written(report, output), nl=False)
