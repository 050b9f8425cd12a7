"""Options that several commands take, declared once. Nothing heavy is imported here: `--help` is quick."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

STAGES = (
    "build", "canonicalize", "assign", "fuse", "legalize", "fuse-legal", "cse", "dce",
    "split", "liveness", "allocate", "lower",
)  # fmt: skip
"""The pipeline's stages in order, for `--help`, which loads no pipeline."""
MOST_THREADS = 512


class KvCells(StrEnum):
    """What KV cells are made of."""

    AUTO = "auto"
    F32 = "f32"
    F16 = "f16"
    Q8_0 = "q8_0"


ModelName: TypeAlias = Annotated[str, typer.Argument(metavar="MODEL", help="A path, owner/repo:TAG, or demo.")]
Threads: TypeAlias = Annotated[
    int | None,
    typer.Option("-t", "--threads", min=1, max=MOST_THREADS, help="Most worker threads; unset: the physical cores."),
]
ThreadsFixed: TypeAlias = Annotated[
    bool, typer.Option("--threads-fixed", help="Use all threads also while other processes keep cores busy.")
]
Context: TypeAlias = Annotated[
    int | None, typer.Option("-c", "--ctx", "--n-ctx", min=1, help="Context in tokens; unset: the model's, up to 8192.")
]
KvType: TypeAlias = Annotated[KvCells, typer.Option("--kv", help="KV cell type; auto is f16, q8_0 packs 8 bits.")]
DeviceName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="auto|cpu|cuda[:N]|torch:DEVICE",
        help="What runs it; auto: the first GPU, or the CPU. Also numpy (the ops' references, slow), a plug-in's name.",
    ),
]
GpuLayers: TypeAlias = Annotated[
    str | None,
    typer.Option("--gpu-layers", metavar="N|auto", help="Layers that the GPU runs, the CPU the rest; auto: what fits."),
]
GpuMemory: TypeAlias = Annotated[
    int | None, typer.Option("--gpu-mem", metavar="MIB", min=1, help="The most memory to use on the GPU.")
]
FusionsOff: TypeAlias = Annotated[
    str, typer.Option("--fusions-off", metavar="A,B", help="Fusions to leave out, by name; a wrong one lists them.")
]
StopStrings: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--stop", metavar="TEXT", help="End before TEXT, taken literally: \\n is no newline. Repeatable."),
]
OutputFile: TypeAlias = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write to this file, whole or not at all.")
]


def names(text: str) -> list[str]:
    """The names in a list with commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def most_tokens(n: int) -> int | None:
    """`-n` as `LLM.generate` takes it: None for -1. Raises BadParameter for none at all."""
    if n != -1 and n < 1:
        raise typer.BadParameter(f"-n is {n}, expected at least 1, or -1 for no limit")
    return None if n == -1 else n


def check_stops(stops: list[str] | None) -> None:
    """Raise BadParameter for an empty stop string."""
    if stops is not None and "" in stops:
        raise typer.BadParameter("--stop is empty: it would end every text at once")
