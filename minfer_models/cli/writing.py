"""What the commands that write a model file share: the --force option, progress over the bytes, the closing line."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from minfer_models.cli.progress import Progress

Force: TypeAlias = Annotated[
    bool, typer.Option("--force", help="Replace files that exist, once the new ones are whole.")
]


def bytes_shown(progress: Progress, what: str, total: int | None = None) -> Callable[[str, int], None]:
    """What hears of every piece that is written; `total` in bytes."""
    done = 0

    def show(tensor: str, nbytes: int) -> None:
        nonlocal done
        done += nbytes
        progress.show(f"{what}: {done / 2**20:.0f} MiB, {tensor}", done, total)

    return show


def say_written(paths: Iterable[Path]) -> None:
    """Each file with its size, on stdout."""
    for path in paths:
        typer.echo(f"{path}: {path.stat().st_size / 2**20:.1f} MiB")
