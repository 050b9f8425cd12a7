"""`minfer trace`: every value of one forward, and the first that isn't what it should be."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from minfer_models.cli.command import FOUND
from minfer_models.cli.groups import takes
from minfer_models.cli.loading_options import LOADING
from minfer_models.cli.options import ModelName, OutputFile

if TYPE_CHECKING:
    from minfer_models.cli.progress import Progress
    from minfer_models.cli.tracing import Check, Forward, TracedNode
    from minfer_models.cli.value_file import ValueFile


@takes(LOADING)
def trace(
    model: ModelName,
    prompt: Annotated[str, typer.Option("-p", "--prompt", help="The text of the forward, taken literally.")],
    against: Annotated[
        str | None, typer.Option(metavar="DEVICE|FILE", help="What to hold the forward against.")
    ] = None,
    values: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the values themselves: an .npz archive, one array per node."),
    ] = None,
    node: Annotated[
        str | None, typer.Option(metavar="REGEX", help="Only nodes in whose name this is found, as in blk.3.attn.")
    ] = None,
    output: OutputFile = None,
    n_tokens: Annotated[
        int | None, typer.Option(min=1, help="Trace a forward of the last N tokens; those before run first.")
    ] = None,
    *,
    loading: dict[str, Any],
) -> None:
    """Show every value of one forward.

    For each node: elements, min, max, mean, NaNs, and a hash of its bytes. --values FILE keeps the values themselves:
    numpy.load(FILE)["logits"].

    --against DEVICE (numpy: the ops' references) computes each node again from the operands that it really got, so
    the node it stops at is the one whose kernel is wrong. --against FILE compares bits with a trace that -o wrote, and
    stops at the first node that differs. Exit code 3 when something differs.
    """
    from minfer_models.cli.loading import load_shown
    from minfer_models.cli.progress import progress
    from minfer_models.cli.tracing import Forward, StoredTrace, check_of, device_against
    from minfer_models.cli.value_file import OPTION, value_file
    from minfer_models.settings import Settings
    from minfer_models.text_files import require_place, write_text

    wanted = _pattern(node)
    for path, option in ((output, "-o"), (values, OPTION)):
        if path is not None:
            require_place(path, option)
    settings = Settings.from_env()
    file = Path(against) if against is not None and Path(against).is_file() else None
    stored = None if file is None else StoredTrace.read(file)
    if against is not None and file is None:
        device_against(against)
    with progress() as shown, load_shown(model, shown, **loading) as llm:
        forward = Forward(llm, prompt, n_tokens, wanted)
        check = check_of(forward, against, stored, settings)
        with value_file(values) as kept:
            nodes, difference = _walk(forward, check, kept, shown, listed=(check, output, values) == (None, None, None))
        if difference is None and output is not None:
            write_text(output, forward.stored(nodes).to_json())
    if kept is not None:
        typer.echo(f"{kept.count} values written to {values}", err=True)
    if difference is not None:
        typer.echo(difference)
        raise typer.Exit(FOUND)
    if check is not None:
        typer.echo(check.summary())
    if output is not None:
        typer.echo(f"{len(nodes)} nodes written to {output}", err=True)


def _pattern(text: str | None) -> re.Pattern[str] | None:
    """The expression of --node; raises BadParameter for one that isn't."""
    try:
        return None if text is None else re.compile(text)
    except re.error as error:
        raise typer.BadParameter(f"--node {text!r} is no regular expression: {error}") from None


def _walk(
    forward: Forward, check: Check | None, kept: ValueFile | None, shown: Progress, listed: bool
) -> tuple[list[TracedNode], str | None]:
    """The chosen nodes up to the first that differs, and the report on that one."""
    from minfer_models.cli.output import plain_stdout
    from minfer_models.cli.tracing import TracedNode

    chosen = forward.chosen
    widths = max(len(n.name) for n in chosen), max(len(n.op) for n in chosen)
    nodes: list[TracedNode] = []
    out = plain_stdout()
    if listed:
        shown.stop()
    for step in forward.steps(check is not None and check.needs_operands):
        shown.show(f"tracing {step.node.name}", len(nodes), len(chosen))
        node = TracedNode.of(step)
        nodes.append(node)
        if kept is not None:
            kept.add(step)
        if listed:
            out.write(f"{node.name:<{widths[0]}}  {node.op:<{widths[1]}}  {node.stats}\n")
        if check is not None and (difference := check.difference(step, node)) is not None:
            return nodes, difference
    return nodes, None
