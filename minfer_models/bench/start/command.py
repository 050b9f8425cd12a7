"""`minfer-bench start`: the command line."""

from __future__ import annotations

from typing import Annotated

import typer

from minfer_models.bench.options import OutputForm
from minfer_models.bench.report.document import Output, written
from minfer_models.cli.options import KvCells, KvType, ModelName, Threads


def start(
    model: ModelName,
    repetitions: Annotated[int, typer.Option("-r", "--repetitions", min=1, help="Processes that are started.")] = 9,
    cold: Annotated[
        bool, typer.Option("--cold", help="With an empty kernel cache each time: what the first start ever takes.")
    ] = False,
    threads: Threads = None,
    kv: KvType = KvCells.AUTO,
    output: OutputForm = Output.MD,
) -> None:
    """Measure the time from a process's start to its first token.

    Every start is a `minfer run` of its own; one that doesn't count goes before.
    """
    from minfer_models.bench.loading import find_model
    from minfer_models.bench.start.measure import measure
    from minfer_models.cli.progress import progress

    path = find_model(model)
    options = [*([] if threads is None else ["-t", str(threads)]), "--kv", kv.value]
    with progress("minfer-bench") as shown:
        report = measure(path.resolve(), repetitions, cold, options, shown.show)
    typer.echo(written(report, output), nl=False)
