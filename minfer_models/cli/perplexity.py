"""`minfer perplexity`: how well a model predicts a text, alone or against another."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from minfer_models.cli.options import DeviceName, FusionsOff, KvCells, KvType, ModelName, Threads, names
from minfer_models.settings import without_blas_threads
from minfer_models.text_input import read_utf8

if TYPE_CHECKING:
    from minfer_models.cli.progress import Progress
    from minfer_models.scoring import Comparison, Estimate, Score


def perplexity(
    model: ModelName,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A UTF-8 text.")],
    ctx: Annotated[int, typer.Option("-c", "--ctx", "--n-ctx", min=4, help="Tokens of a window.")] = 512,
    stride: Annotated[
        int | None, typer.Option(min=1, help="Start a window every so many tokens and score its last ones.")
    ] = None,
    against: Annotated[
        str | None, typer.Option(metavar="MODEL", help="The reference to compare with; the same MODEL is fine.")
    ] = None,
    device: DeviceName = None,
    kv: KvType = KvCells.AUTO,
    against_device: Annotated[str | None, typer.Option(help="The reference's device.")] = None,
    against_kv: Annotated[KvCells, typer.Option("--against-kv", help="The reference's KV cells.")] = KvCells.AUTO,
    threads: Threads = None,
    fusions_off: FusionsOff = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Perplexity of a text, as llama.cpp's tool reports it.

    Windows of -c tokens; those in the second half of each are scored. With --against also the KL divergence from a
    reference model's predictions.
    """
    if against is None and (against_device is not None or against_kv is not KvCells.AUTO):
        raise typer.BadParameter("--against-device and --against-kv are about the reference: they need --against")
    if device in (None, "auto", "cpu"):
        without_blas_threads()
    text = _text(file)

    from minfer_models.cli.loading import device_options, load_shown
    from minfer_models.cli.output import emit, json_line
    from minfer_models.cli.progress import progress
    from minfer_models.scoring import compare
    from minfer_models.scoring import perplexity as score

    length = ctx + (stride or 0) // 2
    shared = {"n_ctx": length, "threads": threads, "fusions_off": names(fusions_off)}
    with progress() as shown, ExitStack() as opened:
        llm = opened.enter_context(load_shown(model, shown, kv=kv, **device_options(device, None, None), **shared))
        start, heard = perf_counter(), _heard(shown)
        found: Score | Comparison
        if against is None:
            found = score(llm, text, ctx, stride, heard)
        else:
            options = {"kv": against_kv, **device_options(against_device, None, None), **shared}
            reference = opened.enter_context(load_shown(against, shown, **options))
            start = perf_counter()
            found = compare(llm, reference, text, ctx, stride, heard)
        seconds = perf_counter() - start
    if as_json:
        emit(json_line({"ctx": ctx, "stride": stride, "seconds": seconds, **asdict(found)}), None)
    else:
        typer.echo("\n".join(_lines(found, seconds)))


def _heard(shown: Progress) -> Any:
    def hear(done: int, total: int, so_far: float) -> None:
        shown.show(f"window {done} of {total}, perplexity so far {so_far:.4f}", done, total)

    return hear


def _text(file: Path) -> str:
    with file.open("rb") as opened:
        return read_utf8(opened, str(file), "the text")


def _lines(found: Score | Comparison, seconds: float) -> list[str]:
    from minfer_models.scoring import Score

    counts = f"{found.tokens} tokens scored in {found.windows} windows, {found.read / seconds:.1f} tok/s"
    if isinstance(found, Score):
        return [f"perplexity {_with_error(found.ppl)}", counts]
    return [
        f"perplexity            {_with_error(found.ppl)}",
        f"  of the reference    {_with_error(found.reference_ppl)}",
        f"  ratio               {_with_error(found.ratio, 6)}",
        "KL(reference || model), nats a token",
        f"  mean                {_with_error(found.kl, 6)}",
        f"  median              {found.kl_median:.6f}",
        f"  99 %                {found.kl_p99:.6f}",
        f"  max                 {found.kl_max:.6f}",
        f"same likeliest token  {100 * found.same_top1.value:.3f} +/- {100 * found.same_top1.error:.3f} %",
        counts,
    ]


def _with_error(estimate: Estimate, digits: int = 4) -> str:
    return f"{estimate.value:.{digits}f} +/- {estimate.error:.{digits + 1}f}"
