"""`python -m tools.make_model`: model files for measuring, of any shape and weight type.

`m.gguf --shape qwen3-0.6b --type Q4_K_M` is random in a published shape, `m.gguf --from real.gguf --type Q8_0` is real.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer

from minfer_models.cli.command import application, reported
from minfer_models.cli.progress import Progress, progress
from minfer_models.gguf.hearing import HeardBytes
from minfer_models.synthetic import SHAPES, TYPE_NAMES


def make_model(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The GGUF file to write.")],
    type_: Annotated[
        str,
        typer.Option("--type", help=f"Type of the matrices, or a mix of them: {', '.join(TYPE_NAMES)}."),
    ],
    shape: Annotated[
        str | None, typer.Option("--shape", help=f"A seeded random model of this shape: {', '.join(SHAPES)}.")
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option("--from", help="A real file: its blocks' matrices in another type, the rest as it is."),
    ] = None,
    layers: Annotated[int | None, typer.Option("--layers", min=1, help="Blocks of the shape; unset: all.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Seed of the shape's weights; unset: 0.")] = None,
) -> None:
    """Write a model to measure with.

    Random weights in a published model's shape and with its vocabulary, or a real file re-encoded. An existing file is
    replaced once the new one is whole.
    """
    if (shape is None) == (source is None):
        raise typer.BadParameter("give one of --shape and --from")
    if source is not None and (layers is not None or seed is not None):
        raise typer.BadParameter("--layers and --seed go with --shape")
    if type_.upper() not in TYPE_NAMES:
        raise typer.BadParameter(f"--type {type_!r} is not one of {', '.join(TYPE_NAMES)}")
    if shape is not None and shape not in SHAPES:
        raise typer.BadParameter(f"--shape {shape!r} is not one of {', '.join(SHAPES)}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path.parent}: no such folder")
    with progress("make_model") as shown:
        if source is not None:
            _timed(path, shown, lambda hear: _reencode(source, path, type_, hear))
        elif shape is not None:
            _timed(path, shown, lambda hear: _synthetic(path, shape, type_, layers, seed or 0, shown, hear))


def _reencode(source: Path, path: Path, type_name: str, hear: HeardBytes) -> None:
    from minfer_models.synthetic import reencode

    reencode(source, path, type_name, hear)


def _synthetic(
    path: Path, shape: str, type_name: str, layers: int | None, seed: int, shown: Progress, hear: HeardBytes
) -> None:
    from minfer_models.synthetic import hf_vocabulary, write_model
    from tools.testdata import fetch

    named = SHAPES[shape]
    shown.show(f"the vocabulary, {named.tokenizer}")
    vocabulary = hf_vocabulary(fetch(named.tokenizer), named.pre, named.n_vocab)
    write_model(path, named.model(type_name, vocabulary, layers, seed), hear)


def _timed(path: Path, shown: Progress, write: Callable[[HeardBytes], None]) -> None:
    written = 0
    start = perf_counter()

    def hear(tensor: str, n_bytes: int) -> None:
        nonlocal written
        written += n_bytes
        shown.show(f"{path.name}: {written / 2**20:.0f} MiB, {tensor}")

    write(hear)
    seconds = perf_counter() - start
    shown.stop()
    typer.echo(f"{path}: {written / 2**20:.0f} MiB in {seconds:.1f} s ({written / seconds / 1e6:.0f} MB/s)", err=True)


app = application("make_model", "Write a model to measure with.")
app.command()(reported("make_model")(make_model))

if __name__ == "__main__":
    app()
