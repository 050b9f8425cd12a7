"""`minfer dump`: any stage of lowering, printed."""

from __future__ import annotations

from difflib import get_close_matches
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from minfer_models.cli.options import (
    STAGES,
    Context,
    DeviceName,
    FusionsOff,
    GpuLayers,
    GpuMemory,
    KvCells,
    KvType,
    ModelName,
    OutputFile,
    names,
)

if TYPE_CHECKING:
    from minfer_models.cli.stages import StageView


class DumpFormat(StrEnum):
    """How a stage is written."""

    TEXT = "text"
    JSON = "json"
    DOT = "dot"


def dump(
    model: ModelName,
    stage: Annotated[str, typer.Option(metavar="STAGE", help=f"Stop after this stage: {', '.join(STAGES)}.")] = "dce",
    n_tokens: Annotated[int, typer.Option(help="Rows of the forward, rounded up to a power of two.", min=1)] = 1,
    form: Annotated[DumpFormat, typer.Option("--format", help="Text, JSON or Graphviz DOT.")] = DumpFormat.TEXT,
    block: Annotated[int | None, typer.Option(help="One model layer only (text and dot).")] = None,
    fusions_off: FusionsOff = "",
    device: DeviceName = None,
    gpu_layers: GpuLayers = None,
    gpu_mem: GpuMemory = None,
    ctx: Context = None,
    kv: KvType = KvCells.AUTO,
    output: OutputFile = None,
) -> None:
    """Print a stage of lowering.

    The graph after that stage, with what the stage found out: splits, lifetimes, buffers and offsets, the tape; DOT
    shows the graph with splits, buffers and offsets. Only the stage lower reads the weights.
    """
    if block is not None and form is DumpFormat.JSON:
        raise typer.BadParameter("a JSON document holds the whole graph; --block goes with text and dot")
    _check_stage(stage)
    from minfer_models.cli.loading import device_options
    from minfer_models.cli.output import emit
    from minfer_models.cli.planning import opened_plan
    from minfer_models.cli.progress import progress
    from minfer_models.cli.stages import StageView
    from minfer_models.text_files import require_place

    if output is not None:
        require_place(output)
    asked = device_options(device, gpu_layers, gpu_mem)
    with progress() as shown, opened_plan(model, shown, names(fusions_off), ctx, kv, **asked) as plan:
        view = StageView(plan.lower(n_tokens, stage), stage, block)
        blocks = sorted({n.block for n in view.graph if n.block is not None})
        if block is not None and block not in blocks:
            raise typer.BadParameter(f"there is no block {block}; the model has 0 to {blocks[-1]}")
        text = _written(view, form, plan.model.file.path.name)
    emit(text, output)


def _written(view: StageView, form: DumpFormat, model: str) -> str:
    if form is DumpFormat.DOT:
        return view.dot(model)
    return view.json() if form is DumpFormat.JSON else view.text()


def _check_stage(stage: str) -> None:
    if stage in STAGES:
        return
    nearest = get_close_matches(stage, STAGES, n=1)
    hint = f"; did you mean {nearest[0]}?" if nearest else "."
    raise typer.BadParameter(f"no stage is called {stage!r}{hint} Stages, in order: {', '.join(STAGES)}")
