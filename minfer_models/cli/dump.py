"""`minfer dump`: any stage of lowering, printed."""

from __future__ import annotations

from difflib import get_close_matches
from enum import StrEnum
from typing import Annotated

import typer

from minfer_models.cli.options import Context, FusionsOff, KvType, ModelName, OutputFile, names


class DumpFormat(StrEnum):
    """How a stage is written."""

    TEXT = "text"
    JSON = "json"
    DOT = "dot"


def dump(
    model: ModelName,
    stage: Annotated[
        str, typer.Option(help="Stop after this stage; one of the pipeline's, from build to lower.")
    ] = "dce",
    n_tokens: Annotated[int, typer.Option(help="Rows of the forward, rounded up to a power of two.", min=1)] = 1,
    form: Annotated[DumpFormat, typer.Option("--format", help="Text, JSON or Graphviz DOT.")] = DumpFormat.TEXT,
    block: Annotated[int | None, typer.Option(help="One model layer only (text and dot).")] = None,
    fusions_off: FusionsOff = "",
    backend: Annotated[str, typer.Option(help="The backend that the plan is made for.")] = "cpu",
    ctx: Context = None,
    kv: KvType = "auto",
    output: OutputFile = None,
) -> None:
    """Print a stage of lowering.

    The graph after that stage, with what the stage found out: splits, lifetimes, buffers and offsets, the tape. Only
    the stage lower reads the weights.
    """
    if block is not None and form is DumpFormat.JSON:
        raise typer.BadParameter("a JSON document holds the whole graph; --block goes with text and dot")
    from minfer_models.cli.output import emit
    from minfer_models.cli.planning import opened_plan
    from minfer_models.cli.progress import progress
    from minfer_models.cli.stages import StageView

    with progress() as shown, opened_plan(model, shown, backend, names(fusions_off), ctx, kv) as plan:
        _check_stage(stage, plan.stages)
        view = StageView(plan.lower(n_tokens, stage), stage, block)
        blocks = sorted({n.block for n in view.graph if n.block is not None})
        if block is not None and block not in blocks:
            raise typer.BadParameter(f"there is no block {block}; the model has 0 to {blocks[-1]}")
        text = {DumpFormat.TEXT: view.text, DumpFormat.JSON: view.json, DumpFormat.DOT: view.dot}[form]()
    emit(text, output)


def _check_stage(stage: str, stages: list[str]) -> None:
    if stage in stages:
        return
    nearest = get_close_matches(stage, stages, n=1)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    raise typer.BadParameter(f"no stage is called {stage!r}{hint} Stages, in order: {', '.join(stages)}")
