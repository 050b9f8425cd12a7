"""`minfer-bench roofline MODEL`: the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from minfer_models.bench.options import (
    ChunkRows,
    Context,
    Depths,
    Generated,
    InstructionSet,
    OutputForm,
    Prompts,
    Repetitions,
    ThreadCounts,
    usage_errors,
)
from minfer_models.bench.report.document import Output, written
from minfer_models.cli.options import DeviceName, FusionsOff, KvCells, KvType, ModelName, names

if TYPE_CHECKING:
    from minfer_models.bench.loading import EngineChoices
    from minfer_models.bench.workload import Workload
    from minfer_models.devices import DeviceChoice


def roofline(
    model: ModelName,
    n_prompt: Prompts = "512",
    n_gen: Generated = "32",
    depth: Depths = "0",
    repetitions: Repetitions = 5,
    threads: ThreadCounts = "",
    kv: KvType = KvCells.AUTO,
    ctx: Context = None,
    fusions_off: FusionsOff = "",
    isa: InstructionSet = None,
    chunk: ChunkRows = None,
    device: DeviceName = None,
    output: OutputForm = Output.MD,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE.svg", help="Draw the rooflines and where the time goes.")
    ] = None,
    timeline: Annotated[
        Path | None, typer.Option("--timeline", metavar="FILE", help="Write a trace that ui.perfetto.dev opens.")
    ] = None,
) -> None:
    """See where the time goes, against what this machine can do.

    Reads memory and multiplies as fast as the machine can, on the threads that run the model and in the same rounds;
    counts the bytes and operations of every op; and compares. On a GPU (--device cuda) every launch is timed by the
    device's clock, and held against its data sheet, or what a copy and a product of torch's reach.
    """
    from minfer_models.bench.loading import EngineChoices, find_model
    from minfer_models.bench.roofline.measure import measure
    from minfer_models.bench.roofline.place import place_of, require_none_given
    from minfer_models.bench.workload import parse_counts, workloads
    from minfer_models.cli.progress import progress
    from minfer_models.devices import GPU
    from minfer_models.text_files import require_place, write_text

    with usage_errors():
        prompts, generated, depths = (
            parse_counts(option, text, 0) for option, text in (("-p", n_prompt), ("-n", n_gen), ("-d", depth))
        )
        tests = workloads(prompts, generated, depths)
        workers: Sequence[int | None] = parse_counts("-t", threads, 1) if threads else [None]
        choices = EngineChoices(
            n_ctx=ctx, kv=kv.value, fusions_off=tuple(names(fusions_off)), isa=isa, chunk=chunk, device=device
        )
    place = place_of(device)
    if place.backend == GPU:
        with usage_errors():
            require_none_given({"-t": threads or None, "--isa": isa, "--plot": plot, "--timeline": timeline}, place)
        _on_device(model, tests, repetitions, choices, place, output)
        return
    for option, file in (("--plot", plot), ("--timeline", timeline)):
        if file is not None:
            require_place(file, option)
    path = find_model(model)
    with progress("minfer-bench") as shown:
        found = measure(path, tests, workers, repetitions, choices, shown)
    if plot is not None:
        from minfer_models.bench.roofline.plot import plotted

        write_text(plot, plotted(found.report))
    if timeline is not None:
        from minfer_models.bench.roofline.timeline import timeline as traced

        write_text(timeline, traced(found.tracks))
    typer.echo(written(found.report, output), nl=False)


def _on_device(
    model: str,
    tests: Sequence[Workload],
    repetitions: int,
    choices: EngineChoices,
    place: DeviceChoice,
    output: Output,
) -> None:
    from minfer_models.bench.loading import find_model
    from minfer_models.bench.roofline.device.measure import measure_device
    from minfer_models.cli.progress import progress

    path = find_model(model)
    with progress("minfer-bench") as shown:
        report = measure_device(path, tests, repetitions, choices, place, shown)
    typer.echo(written(report, output), nl=False)
