"""`minfer-bench ab`: the command line."""

from __future__ import annotations

from typing import Annotated

import typer

from minfer_models.bench.options import Context, Depths, Generated, KeepDepth, OutputForm, Prompts, usage_errors
from minfer_models.bench.report.document import Output, written
from minfer_models.cli.command import FOUND
from minfer_models.cli.options import KvCells, KvType, ModelName, Threads

SETTINGS = "NAME=VALUE with blanks between them, e.g. 'threads=1 fusions_off=swiglu': threads, kv, fusions_off, isa, "
SETTINGS += "chunk, n_ctx, device, gpu_layers, capture, async_copies, invariant, decode_apart."
REVISION = "a git revision, run from a worktree in a process of its own; WORKTREE is the tree as it is."


def ab(
    model: ModelName,
    a: Annotated[str, typer.Option("--a", metavar="SETTINGS", help=f"Side a: {SETTINGS}")] = "",
    b: Annotated[str, typer.Option("--b", metavar="SETTINGS", help="Side b, likewise.")] = "",
    a_ref: Annotated[str | None, typer.Option("--a-ref", metavar="REV", help=f"Side a: {REVISION}")] = None,
    b_ref: Annotated[str | None, typer.Option("--b-ref", metavar="REV", help="Side b, likewise.")] = None,
    n_prompt: Prompts = "512",
    n_gen: Generated = "128",
    depth: Depths = "0",
    keep_depth: KeepDepth = False,
    rounds: Annotated[int, typer.Option("-r", "--rounds", min=1, help="Timed rounds of each test.")] = 5,
    threads: Threads = None,
    kv: KvType = KvCells.AUTO,
    ctx: Context = None,
    output: OutputForm = Output.MD,
) -> None:
    """Compare two sides in matched rounds.

    Each side is this model under other settings, from another git revision, or both; -t, --kv and -c go for both. The
    sides take turns, and the ratio is b's speed over a's: above 1, b is faster. Two sides that run the same plan in
    the same way are refused. Exit code 3 when they differ in tokens or bits that they promise to have in common.
    """
    from minfer_models.bench.ab.compare import Request, compare
    from minfer_models.bench.ab.settings import parse_settings
    from minfer_models.bench.loading import EngineChoices, find_model
    from minfer_models.bench.workload import parse_counts, workloads
    from minfer_models.cli.progress import progress

    with usage_errors():
        prompts, generated, depths = (
            parse_counts(option, text, 0) for option, text in (("-p", n_prompt), ("-n", n_gen), ("-d", depth))
        )
        tests = workloads(prompts, generated, depths, not keep_depth)
        base = EngineChoices(n_ctx=ctx, threads=threads, kv=kv.value)
        sides = (
            Request("a", a_ref, parse_settings("--a", a, base)),
            Request("b", b_ref, parse_settings("--b", b, base)),
        )
    path = find_model(model)
    with progress("minfer-bench") as shown:
        report = compare(path, sides, tests, rounds, shown)
    typer.echo(written(report, output), nl=False)
    if report.agreement.broken:
        typer.echo(f"minfer-bench: found: {report.agreement.text()}", err=True)
        raise typer.Exit(FOUND)
