"""`minfer quantize`: a model file in other weight types."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer

from minfer_models.cli.options import Threads
from minfer_models.cli.writing import Force, say_written

if TYPE_CHECKING:
    from minfer_models.cli.progress import Progress
    from minfer_models.gguf.quantize import Choice

TYPES = (
    "F32", "F16", "BF16", "Q8_0", "Q6_K", "Q5_K_M", "Q5_K_S", "Q5_1", "Q5_0", "Q4_K_M", "Q4_K_S", "IQ4_NL", "Q4_1",
    "Q4_0", "Q3_K_L", "Q3_K_M", "Q3_K_S", "Q2_K",
)  # fmt: skip
"""For `--help`, which loads no rules."""


def quantize(
    source: Annotated[str, typer.Argument(metavar="IN", help="A path, owner/repo:TAG, or demo.")],
    target: Annotated[Path | None, typer.Argument(metavar="OUT", help="The file to write.")] = None,
    *,
    type_: Annotated[
        str,
        typer.Option(
            "--type", metavar="TYPE", help=f"{', '.join(TYPES)}. Q3_K, Q4_K and Q5_K stand for their _M mixes."
        ),
    ],
    threads: Threads = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what each tensor would become.")] = False,
    pure: Annotated[bool, typer.Option("--pure", help="No mix: the same type for every matrix.")] = False,
    keep_output: Annotated[
        bool, typer.Option("--keep-output", "--leave-output-tensor", help="Leave the head as it is.")
    ] = False,
    output_type: Annotated[
        str | None, typer.Option("--output-type", "--output-tensor-type", metavar="TYPE", help="Type of the head.")
    ] = None,
    token_embedding_type: Annotated[
        str | None, typer.Option(metavar="TYPE", help="Type of token_embd.weight, also where the head is tied to it.")
    ] = None,
    tensor_type: Annotated[
        list[str] | None,
        typer.Option(metavar="REGEX=TYPE", help="Type of matrices whose name has this in it; repeatable."),
    ] = None,
    allow_requantize: Annotated[
        bool, typer.Option("--allow-requantize", help="Take matrices that are quantized already; it costs quality.")
    ] = False,
    force: Force = False,
) -> None:
    """Write a model in other weight types.

    The mixes and what becomes of rows that don't fit are llama.cpp's, and so are the bytes. Vectors and norms stay.
    OUT appears once it is whole.
    """
    if target is None and not dry_run:
        raise typer.BadParameter("name the file to write, OUT, or ask for --dry-run")
    from minfer_models.cli.loading import compiling_shown, located, warn_of_threads
    from minfer_models.cli.progress import progress
    from minfer_models.gguf import check_destination, open_gguf
    from minfer_models.gguf.encoders import quickest_encode
    from minfer_models.gguf.quantize import QuantizeOptions, plan_quantization, work_of, write_quantized
    from minfer_models.settings import Settings

    settings = Settings.from_env()
    options = QuantizeOptions.parse(
        type_,
        pure=pure,
        keep_output=keep_output,
        output_type=output_type,
        token_embedding_type=token_embedding_type,
        tensor_types=tuple(tensor_type or ()),
        allow_requantize=allow_requantize,
    )
    warn_of_threads(threads or settings.threads)
    with open_gguf(located(source, settings)) as file, progress() as shown:
        if target is None or dry_run:
            typer.echo("\n".join(table(plan_quantization(file, options))))
            return
        check_destination(target, file.paths, overwrite=force)
        choices = plan_quantization(file, options)
        encode = quickest_encode(work_of(choices), settings, compiling_shown(shown))
        hear = _shown(shown, f"quantizing to {options.file_type.name}", choices)
        threads = threads or settings.threads
        done = write_quantized(file, target, options, threads=threads, overwrite=force, hear=hear, encode=encode)
        shown.stop()
    for line in fallbacks(done.choices):
        typer.echo(f"minfer: {line}", err=True)
    typer.echo(totals(done.choices))
    say_written([done.path])


def table(choices: list[Choice]) -> Iterator[str]:
    """A line for every tensor: shape, type and size before and after, and why where it isn't plain."""
    width = max((len(c.info.name) for c in choices), default=0)
    for c in choices:
        becomes = c.info.type_name if c.new is None else f"{c.info.type_name} -> {c.new.name}"
        size = f"{c.info.nbytes / 2**20:9.3f} -> {c.nbytes / 2**20:9.3f} MiB"
        note = f"  {c.note}" if c.note else ""
        yield f"{c.info.name:<{width}}  {list(c.info.shape)!s:<16} {becomes:<16} {size}{note}".rstrip()
    yield from fallbacks(choices)
    yield totals(choices)


def fallbacks(choices: list[Choice] | tuple[Choice, ...]) -> Iterator[str]:
    """A line for every kind of row that didn't fit its type, and how many matrices it concerns."""
    notes: dict[str, list[str]] = {}
    for c in choices:
        if c.fell_back:
            notes.setdefault(c.note, []).append(c.info.name)
    for note, names in notes.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        yield f"{note} ({names[0]}{more})"


def totals(choices: list[Choice] | tuple[Choice, ...]) -> str:
    """Sizes of all tensors before and after."""
    from minfer_models.gguf.quantize.plan import bits_per_weight, total_bytes

    before, after = (n / 2**20 for n in total_bytes(choices))
    changed = sum(c.new is not None for c in choices)
    return (
        f"{changed} of {len(choices)} tensors change: {before:.1f} -> {after:.1f} MiB, "
        f"{bits_per_weight(choices):.2f} bits a weight"
    )


def _shown(progress: Progress, what: str, choices: list[Choice]) -> Callable[[str, int], None]:
    """What hears of every piece that is written: bytes of the source and their rate."""
    share = {c.info.name: c.info.nbytes / max(1, c.nbytes) for c in choices}
    total = sum(c.info.nbytes for c in choices)
    start, done = perf_counter(), 0.0

    def show(tensor: str, nbytes: int) -> None:
        nonlocal done
        done += nbytes * share[tensor]
        rate = done / 1e6 / max(1e-9, perf_counter() - start)
        progress.show(f"{what}: {done / 2**20:.0f} of {total / 2**20:.0f} MiB, {rate:.0f} MB/s, {tensor}", done, total)

    return show
