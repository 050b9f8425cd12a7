"""`minfer-bench MODEL`: the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from minfer_models.bench.options import (
    ChunkRows,
    Context,
    Depths,
    Generated,
    InstructionSet,
    KeepDepth,
    OutputForm,
    Prompts,
    Repetitions,
    ThreadCounts,
    usage_errors,
)
from minfer_models.bench.report.document import Output, written
from minfer_models.cli.options import DeviceName, FusionsOff, GpuLayers, KvCells, KvType, ModelName, names


def throughput(
    model: ModelName,
    n_prompt: Prompts = "512",
    n_gen: Generated = "128",
    depth: Depths = "0",
    keep_depth: KeepDepth = False,
    repetitions: Repetitions = 5,
    threads: ThreadCounts = "",
    kv: KvType = KvCells.AUTO,
    ctx: Context = None,
    fusions_off: FusionsOff = "",
    isa: InstructionSet = None,
    chunk: ChunkRows = None,
    device: DeviceName = None,
    gpu_layers: GpuLayers = None,
    sampler: Annotated[
        str,
        typer.Option(
            metavar="greedy|default|NAME=VALUE,...",
            help="How decode tests choose tokens: temperature, top_k, top_p, min_p, seed; default: as minfer samples.",
        ),
    ] = "greedy",
    output: OutputForm = Output.MD,
) -> None:
    """Measure prefill and decode.

    A warm-up that doesn't count, then repetitions, each from an empty context.
    """
    from minfer_models.bench.loading import EngineChoices, find_model
    from minfer_models.bench.sampler import parse_sampler
    from minfer_models.bench.throughput.measure import measure
    from minfer_models.bench.workload import parse_counts, workloads
    from minfer_models.cli.progress import progress

    with usage_errors():
        prompts, generated, depths = (
            parse_counts(option, text, 0) for option, text in (("-p", n_prompt), ("-n", n_gen), ("-d", depth))
        )
        tests = workloads(prompts, generated, depths, not keep_depth)
        workers: Sequence[int | None] = parse_counts("-t", threads, 1) if threads else [None]
        choices = EngineChoices(
            n_ctx=ctx,
            kv=kv.value,
            fusions_off=tuple(names(fusions_off)),
            isa=isa,
            chunk=chunk,
            device=device,
            gpu_layers=gpu_layers,
        )
        sampling = parse_sampler("--sampler", sampler)
    path = find_model(model)  # a download draws its own progress, before ours starts
    with progress("minfer-bench") as shown:
        report = measure(path, tests, workers, repetitions, choices, sampling, shown)
    typer.echo(written(report, output), nl=False)
