"""`minfer-bench sampling`: the command line."""

from __future__ import annotations

from typing import Annotated

import typer

from minfer_models.bench.options import OutputForm
from minfer_models.bench.report.document import Output, written
from minfer_models.cli.grammar_options import GrammarText, JsonSchema, grammar_request
from minfer_models.cli.options import ModelName, Threads


def sampling(
    model: ModelName,
    repetitions: Annotated[int, typer.Option("-r", "--repetitions", min=1, help="Choices of every sampler.")] = 50,
    vocabulary: Annotated[
        int, typer.Option("--vocab", min=2, help="Logits to choose from; what the model lacks is added.")
    ] = 151_936,
    history: Annotated[int, typer.Option("--history", min=0, help="Tokens that penalties look at.")] = 512,
    grammar: GrammarText = None,
    json_schema: JsonSchema = None,
    threads: Threads = None,
    output: OutputForm = Output.MD,
) -> None:
    """Measure what choosing a token costs.

    Next to a decode step of the model in the same run. With a grammar or a schema: what it adds, over --repetitions
    texts that it binds.
    """
    bound = grammar_request(grammar, json_schema, False)
    from minfer_models.bench.loading import EngineChoices, find_model
    from minfer_models.bench.sampling.bound import measure_bound
    from minfer_models.bench.sampling.measure import measure
    from minfer_models.cli.progress import progress

    path = find_model(model)
    with progress("minfer-bench") as shown:
        choices = EngineChoices(threads=threads)
        if bound:
            report = measure_bound(path, bound, repetitions, choices, shown)
        else:
            report = measure(path, vocabulary, history, repetitions, choices, shown)
    typer.echo(written(report, output), nl=False)
