"""Which type each matrix gets in a model made for measuring: one format, or the mixes of `minfer quantize`."""

from __future__ import annotations

from collections.abc import Mapping

from minfer_ir.formats import WEIGHT_FORMATS, format_named
from minfer_models.gguf.quantize.mixes import FILE_TYPES, FileType, Matrix, Model, fitting
from minfer_models.gguf.quantize.mixes import type_of_matrix as type_by_rule

HEAD = "output"
"""The kind of the matrix that makes logits: output.weight, or token_embd.weight where the head is tied to it."""

MIXES = ("Q4_K_M", "Q5_K_M")
TYPE_NAMES = (*WEIGHT_FORMATS, *MIXES)


def type_of_matrix(type_name: str, kind: str, row: int, block: int = 0, n_blocks: int = 1) -> str:
    """The type of a matrix of `kind` ("ffn_down", HEAD) with rows of `row` elements when the model becomes `type_name`.

    `type_name` is one of MIXES, or a format, which then all but the head get; raises ValueError for another.
    """
    upper = type_name.upper()
    wanted = FILE_TYPES[upper] if upper in MIXES else FileType("", format_named(type_name).name, 0)
    matrix = Matrix(kind, row, block, n_blocks)
    return fitting(type_by_rule(wanted, matrix, Model(n_blocks, tied=False)), row)


def types_by_tensor(type_name: str, rows: Mapping[str, int], n_blocks: int, tied: bool) -> dict[str, str]:
    """Types by tensor name of a model of `n_blocks`; `rows` has the row length of every kind of matrix in a block.

    `rows["token_embd"]` is the width, of the embedding and of the head.
    """
    width = rows["token_embd"]
    head = type_of_matrix(type_name, HEAD, width)
    embedding = head if tied else type_of_matrix(type_name, "token_embd", width)
    types = {"token_embd.weight": embedding, "output.weight": head}
    for block in range(n_blocks):
        for kind, row in rows.items():
            types[f"blk.{block}.{kind}.weight"] = type_of_matrix(type_name, kind, row, block, n_blocks)
    return types
