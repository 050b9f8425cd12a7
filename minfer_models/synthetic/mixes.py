"""Which type each matrix gets when a model is quantized as a whole, by the rules of llama.cpp's `llama-quantize`.

Source: llama-quant.cpp, `use_more_bits`, `llama_tensor_get_type` and its fallbacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from minfer_ir.formats import WEIGHT_FORMATS, format_named

HEAD = "head"
"""The kind of the matrix that makes logits: output.weight, or token_embd.weight where the head is tied to it."""


@dataclass(frozen=True, slots=True)
class Mix:
    """`base` for most matrices, `more` for the kinds in `lifted` in about half of the blocks and for the head."""

    base: str
    more: str = "Q6_K"
    lifted: tuple[str, ...] = ("attn_v", "ffn_down")


MIXES = {"Q4_K_M": Mix("Q4_K"), "Q5_K_M": Mix("Q5_K")}

FALLBACK = {
    "Q2_K": "Q4_0",
    "Q3_K": "Q4_0",
    "Q4_K": "Q5_0",
    "Q5_K": "Q5_1",
    "Q6_K": "Q8_0",
}
"""What takes the place of a super-block type where rows aren't whole blocks of 256."""

HEAD_AS_ITSELF = ("Q8_0", "F16", "BF16", "F32")
"""Types under which the head gets no better type than the rest."""

TYPE_NAMES = (*WEIGHT_FORMATS, *MIXES)


def use_more_bits(block: int, n_blocks: int) -> bool:
    """Whether a lifted kind gets the better type in this block: the first and last eighth, every third between."""
    eighth = n_blocks // 8
    return block < eighth or block >= 7 * n_blocks // 8 or (block - eighth) % 3 == 2


def type_of_matrix(type_name: str, kind: str, row: int, block: int = 0, n_blocks: int = 1) -> str:
    """The type of a matrix of `kind` ("ffn_down", HEAD) with rows of `row` elements when the model becomes `type_name`.

    `type_name` is a format or one of MIXES; raises ValueError for another, and for rows that nothing fits.
    """
    mix = MIXES.get(type_name.upper())
    base = format_named(type_name).name if mix is None else mix.base
    chosen = base
    if kind == HEAD and base not in HEAD_AS_ITSELF:
        chosen = "Q6_K" if mix is None else mix.more
    elif mix is not None and kind in mix.lifted and use_more_bits(block, n_blocks):
        chosen = mix.more
    return fitting(chosen, row)


def fitting(type_name: str, row: int) -> str:
    """`type_name`, or its fallback where rows of `row` elements aren't whole blocks of it; ValueError when none is."""
    chosen = type_name
    if row % format_named(chosen).block_size:
        chosen = FALLBACK.get(chosen, chosen)
    format_named(chosen).row_bytes(row)
    return chosen


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
