"""`minfer merge`: the shards of a split GGUF file joined."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from minfer_models.cli.writing import Force, bytes_shown, say_written


def merge(
    first_shard: Annotated[Path, typer.Argument(metavar="FIRST_SHARD", help="NAME-00001-of-0000N.gguf.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="The file to write.")],
    force: Force = False,
) -> None:
    """Join the shards of a split GGUF file.

    The others are found by the first one's name. The shards stay where they are.
    """
    from minfer_models.cli.loading import file_bytes
    from minfer_models.cli.progress import progress
    from minfer_models.gguf import merge_gguf

    with progress() as shown:
        hear = bytes_shown(shown, f"merging into {target.name}", file_bytes(first_shard))
        path = merge_gguf(first_shard, target, overwrite=force, hear=hear)
    say_written([path])
