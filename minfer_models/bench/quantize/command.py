"""`minfer-bench quantize MODEL TEXT`: the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from minfer_models.bench.options import InstructionSet, OutputForm, usage_errors
from minfer_models.bench.report.document import Output, written
from minfer_models.cli.options import DeviceName, KvCells, KvType, ModelName, Threads


def quantize(
    model: ModelName,
    file: Annotated[Path, typer.Argument(metavar="TEXT", help="A UTF-8 text that the model predicts.")],
    types: Annotated[
        str, typer.Option("--types", metavar="TYPE,TYPE", help="What `minfer quantize --type` takes; all: every type.")
    ] = "all",
    ctx: Annotated[int, typer.Option("-c", "--ctx", "--n-ctx", min=4, help="Tokens of a window.")] = 512,
    stride: Annotated[
        int | None, typer.Option(min=1, help="Start a window every so many tokens and score its last ones.")
    ] = None,
    allow_requantize: Annotated[
        bool, typer.Option("--allow-requantize", help="Take a model whose matrices are quantized already.")
    ] = False,
    folder: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where each file is, one at a time; unset: a temporary place.")
    ] = None,
    device: DeviceName = None,
    threads: Threads = None,
    kv: KvType = KvCells.AUTO,
    isa: InstructionSet = None,
    output: OutputForm = Output.MD,
) -> None:
    """What each quantized type costs: size, perplexity, and the divergence from the model itself.

    MODEL, best in F16, BF16 or F32, is quantized to one type after another. Each file is scored over TEXT beside MODEL
    and removed.
    """
    from minfer_models.bench.loading import EngineChoices, find_model
    from minfer_models.bench.quantize.measure import Text, measure, types_named
    from minfer_models.cli.progress import progress
    from minfer_models.settings import without_blas_threads
    from minfer_models.text_input import read_utf8

    if device in (None, "auto", "cpu"):
        without_blas_threads()
    with file.open("rb") as opened:
        text = Text(file.name, read_utf8(opened, str(file), "the text"), ctx, stride)
    with usage_errors():
        wanted = types_named(types, allow_requantize)
        choices = EngineChoices(n_ctx=text.length, threads=threads, kv=kv.value, isa=isa, device=device)
    path = find_model(model)
    with progress("minfer-bench") as shown:
        report = measure(path, text, wanted, choices, folder, shown)
    typer.echo(written(report, output), nl=False)
