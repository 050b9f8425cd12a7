"""`minfer split`: a GGUF file cut into shards."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from minfer_models.cli.writing import Force, bytes_shown, say_written

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}
"""Decimal, as in llama.cpp's gguf-split."""


def split(
    source: Annotated[
        str, typer.Argument(metavar="IN", help="A path, owner/repo:TAG, or demo; of a split file the first shard.")
    ],
    prefix: Annotated[
        Path, typer.Argument(metavar="OUT_PREFIX", help="Shards are named OUT_PREFIX-00001-of-0000N.gguf.")
    ],
    max_size: Annotated[
        str | None,
        typer.Option(metavar="N[K|M|G]", help="Most bytes of tensor data in a shard; K, M, G are 10^3, 10^6, 10^9."),
    ] = None,
    max_tensors: Annotated[int | None, typer.Option(metavar="N", min=1, help="Most tensors in a shard.")] = None,
    no_tensor_first_split: Annotated[
        bool, typer.Option("--no-tensor-first-split", help="The first shard holds the metadata alone.")
    ] = False,
    force: Force = False,
) -> None:
    """Cut a GGUF file into shards.

    Named and numbered as llama.cpp's gguf-split does; any of minfer's commands opens the first shard. All shards
    appear, or none.
    """
    if max_size is None and max_tensors is None:
        raise typer.BadParameter("say how to cut: --max-size or --max-tensors")
    most = None if max_size is None else parse_size(max_size)
    from minfer_models.cli.loading import file_bytes, located
    from minfer_models.cli.progress import progress
    from minfer_models.gguf import SplitRule, split_gguf
    from minfer_models.settings import Settings

    path = located(source, Settings.from_env())
    rule = SplitRule(most, max_tensors, metadata_alone=no_tensor_first_split)
    with progress() as shown:
        hear = bytes_shown(shown, f"splitting {path.name}", file_bytes(path))
        paths = split_gguf(path, prefix, rule, overwrite=force, hear=hear)
    say_written(paths)


def parse_size(text: str) -> int:
    """Bytes that `N[K|M|G]` stands for; raises BadParameter for anything else, and for 0."""
    match = re.fullmatch(r"([0-9]+)([KMG]?)", text.strip().upper())
    if match is None or int(match[1]) == 0:
        raise typer.BadParameter(f"--max-size {text!r} is not a size such as 500M or 2G")
    return int(match[1]) * UNITS[match[2]]
