"""`minfer-bench neighbour MODEL`: the command line."""

from __future__ import annotations

from typing import Annotated

import typer

from minfer_models.bench.options import Context, InstructionSet, OutputForm, usage_errors
from minfer_models.bench.report.document import Output, written
from minfer_models.cli.options import KvCells, KvType, ModelName, Threads


def neighbour(
    model: ModelName,
    n_gen: Annotated[int, typer.Option("-n", "--n-gen", min=1, help="Tokens to decode in a run.")] = 128,
    rounds: Annotated[int, typer.Option("-r", "--rounds", min=1, help="Timed rounds.")] = 5,
    threads: Threads = None,
    kv: KvType = KvCells.AUTO,
    ctx: Context = None,
    isa: InstructionSet = None,
    output: OutputForm = Output.MD,
) -> None:
    """Decode beside a process that keeps one core busy.

    Starts that process itself and ends it. In turns: the threads that the engine chooses, all of them, and one, beside
    the neighbour; and one alone.
    """
    from minfer_models.bench.loading import EngineChoices, find_model
    from minfer_models.bench.neighbour.compare import compare
    from minfer_models.bench.workload import Workload
    from minfer_models.cli.progress import progress

    with usage_errors():
        choices = EngineChoices(n_ctx=ctx, threads=threads, kv=kv.value, isa=isa)
    path = find_model(model)
    with progress("minfer-bench") as shown:
        report = compare(path, Workload("tg", n_gen), choices, rounds, shown)
    typer.echo(written(report, output), nl=False)
