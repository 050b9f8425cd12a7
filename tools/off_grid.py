"""`python -m tools.off_grid IN OUT`: a quantized model in F32 whose weights lie on no grid.

Dequantized weights lie on the grid of their type: quantized to it again they lose nothing, and its neighbours look
worse than they are. Here each weight of a matrix in blocks of 32 is moved by up to half a step of its block, evenly and
with a fixed seed, which is about where the original may have been.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from minfer_ir.formats import Floats
from minfer_models.cli.command import application, reported
from minfer_models.gguf import GGUFFile, TensorInfo, TensorSource, TypedValue, file_source, open_gguf, write_gguf
from minfer_models.gguf.constants import GGMLQuantizationType, GGUFValueType
from minfer_models.gguf.copying import copied_metadata
from minfer_models.gguf.quantize.quantize import FILE_TYPE_KEY

ROWS = 1 << 10
MOVED = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")
"""Types with one step a block, which is its first scale."""


def off_grid(
    source: Annotated[Path, typer.Argument(metavar="IN", help="A model in Q4_0 to Q8_0.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="The F32 file to write.")],
    seed: Annotated[int, typer.Option(min=0, help="Of the moves.")] = 0,
) -> None:
    """Write IN in F32, each weight moved by up to half a step of its block. An existing OUT is replaced."""
    with open_gguf(source) as file:
        metadata = copied_metadata(file) | {FILE_TYPE_KEY: TypedValue(GGUFValueType.UINT32, 0)}
        tensors = [_source(file, info, seed) for info in file.tensors.values()]
        write_gguf(target, metadata, tensors, sources=file.paths)


def _source(file: GGUFFile, info: TensorInfo, seed: int) -> TensorSource:
    if info.type_name in MOVED:
        return TensorSource(info.name, info.shape, GGMLQuantizationType.F32, lambda: _moved(file, info, seed))
    return file_source(file, info.name)


def _moved(file: GGUFFile, info: TensorInfo, seed: int) -> Iterator[Floats]:
    assert info.format is not None
    rng = np.random.default_rng([seed, zlib.crc32(info.name.encode())])
    rows = file.rows(info.name)
    for start in range(0, len(rows), ROWS):
        part = rows[start : start + ROWS]
        values = info.format.decode(part)
        steps = np.abs(info.format.scales(part)[..., :1])
        moves: Floats = rng.random((*steps.shape[:-1], info.format.block_size), np.float32) - np.float32(0.5)
        moves *= steps
        yield values + moves.reshape(values.shape)


app = application("off_grid", "A quantized model in F32 whose weights lie on no grid.")
app.command()(reported("off_grid")(off_grid))

if __name__ == "__main__":
    app()
