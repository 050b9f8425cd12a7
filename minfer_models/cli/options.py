"""Options that several commands take, declared once. Nothing heavy is imported here: `--help` is quick."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

ModelName: TypeAlias = Annotated[str, typer.Argument(metavar="MODEL", help="A path, owner/repo:TAG, or demo.")]
Threads: TypeAlias = Annotated[
    int | None, typer.Option("-t", "--threads", min=1, help="Worker threads; unset: the physical cores.")
]
Context: TypeAlias = Annotated[
    int | None, typer.Option("-c", "--ctx", min=1, help="Context in tokens; unset: the model's, up to 8192.")
]
KvType: TypeAlias = Annotated[str, typer.Option("--kv", help="KV cell type: auto, f32 or f16.")]
FusionsOff: TypeAlias = Annotated[
    str, typer.Option("--fusions-off", metavar="A,B", help="Fusions to leave out, by name.")
]
OutputFile: TypeAlias = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write to this file, whole or not at all.")
]


def names(text: str) -> list[str]:
    """The names in a list with commas."""
    return [name.strip() for name in text.split(",") if name.strip()]
