"""Attention as launches: parts and their merge for few rows, tiles for many, both where decode rows keep their bits."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import torch
import triton

from minfer_ir.graph import Node
from minfer_ir.ops.attention import window_mode
from minfer_kernels.gpu.emitter import Emit, Emitter, most_rows
from minfer_kernels.gpu.kernels import cells, windows
from minfer_kernels.gpu.kernels.attention import flash, merge, split, tiles
from minfer_kernels.gpu.kernels.attention.choices import FlashChoice, SplitChoice, flash_choice, split_choice
from minfer_kernels.gpu.scratch import Shapes, Wants, WantsOf

LOG2_E = math.log2(math.e)
LISTED_PROGRAMS = 8
"""Rows that listed launches attend side by side: a step of prompts has few decode rows, mostly none."""
SPARE_TILES = 16
"""Tiles beyond those of one sequence that a launch has programs for; its programs take more in turn."""


def emit_attention(e: Emitter, node: Node, quantized: Node | None = None) -> None:
    """The launches of `node`; into the 8-bit rows of `quantized`, a `quantize_act` of it, where `takes_quantize`."""
    if most_rows(node) <= e.attention.split_rows:
        _split(e, node, quantized, e.rows_at(node), None)
        return
    table, listed = _tiles(e, node)
    _flash(e, node, table)
    if e.attention.decode_rows_apart:
        _split(e, node, None, listed[:1], listed[1:])


def takes_quantize(e: Emitter, node: Node, block_size: int) -> bool:
    """Whether the launches of `node` can store its rows in blocks of `block_size`."""
    head_dim = node.type.shape[2]
    whole = head_dim % block_size == 0 if head_dim >= block_size else block_size % head_dim == 0
    return most_rows(node) <= e.attention.split_rows and whole


def _flash(e: Emitter, node: Node, table: torch.Tensor) -> None:
    choice = _flash_choice(e, node)
    rows, n_heads, head_dim = node.type.shape
    e.launch(
        "attention.flash",
        node,
        flash.flash,
        (min(rows, triton.cdiv(rows, choice.tile) + SPARE_TILES), n_heads),
        choice.warps,
        choice.stages,
        **_operands(e, node),
        out=e.tensor(node),
        out_stride=e.row_stride(node) // 4,
        table=table,
        KV_HEADS=node.attrs.n_kv_heads,
        GROUP=n_heads // node.attrs.n_kv_heads,
        HEAD_DIM=head_dim,
        MODE=_mode(e, node),
        LAYOUT=_layout(e, node),
        TILE=choice.tile,
        BLOCK=choice.block,
        STAGES=choice.stages,
        PTX=e.ptx,
    )


def _split(e: Emitter, node: Node, quantized: Node | None, rows_at: torch.Tensor, listed: torch.Tensor | None) -> None:
    """Parts of the rows (or of those `listed`), in as many launches as the memory for parts asks for; their merge."""
    choice, at = _split_choice(e, node), parts_of(e, node)
    rows, n_heads, head_dim = node.type.shape
    n_kv_heads, parts, slots = node.attrs.n_kv_heads, at.parts, at.slots
    into = node if quantized is None else quantized
    block = 0 if quantized is None else quantized.attrs.dtype.block_size
    side_by_side = slots if listed is None else min(slots, LISTED_PROGRAMS)
    finish = _finishes(e, parts, head_dim, block)
    given = _operands(e, node)
    both: dict[str, Any] = {
        "positions": given.pop("positions"),
        "window": given.pop("window"),
        "out": e.tensor(into),
        "rows_at": rows_at,
        "listed": rows_at if listed is None else listed,
        "partials": e.scratch(at.partials).view(torch.float32),
        "softmax": e.scratch(at.softmax).view(torch.float32),
        "out_stride": e.row_stride(into) // (4 if quantized is None else 1),
        "HEAD_DIM": head_dim,
        "MODE": _mode(e, node),
        "SPLIT": choice.split,
        "LISTED": listed is not None,
        "QUANTIZE": block,
        "SLOTS": slots,
    }
    arrived = e.counters(slots * n_kv_heads)
    for base in range(0, rows, slots):
        e.launch(
            "attention.split",
            node,
            split.split,
            (parts, n_kv_heads, side_by_side),
            choice.warps,
            choice.stages,
            **given,
            **both,
            arrived=arrived,
            base=base,
            KV_HEADS=n_kv_heads,
            GROUP=n_heads // n_kv_heads,
            LAYOUT=_layout(e, node),
            BLOCK=choice.block,
            MATRIX=choice.matrix,
            PTX=e.ptx,
            FINISH=finish,
        )
        if not finish:
            heads = max(1, block // head_dim)
            grid = (n_heads // heads, side_by_side)
            e.launch(
                "attention.merge",
                node,
                merge.merge,
                grid,
                **both,
                base=base,
                most_parts=parts,
                N_HEADS=n_heads,
                HEADS=heads,
            )


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of a row, rows whose parts there is memory for at a time, and bytes of their values and of the rest."""

    parts: int
    slots: int
    partials: int
    softmax: int


def parts_of(e: Shapes, node: Node) -> Parts:
    """The parts that the rows of an attention node, or those listed, are attended in."""
    rows, n_heads, head_dim = node.type.shape
    parts = most_parts(e, node, _split_choice(e, node))
    slots = max(1, min(rows, e.attention.partial_bytes // (4 * n_heads * parts * (head_dim + 2))))
    return Parts(parts, slots, 4 * slots * n_heads * parts * head_dim, 8 * slots * n_heads * parts)


def _wants(e: Shapes, node: Node) -> Wants:
    """Parts where rows are attended so, and the step's tiles, which later nodes with its window read too."""
    tiled = most_rows(node) > e.attention.split_rows
    kept: dict[Hashable, int] = {_tiles_key(e, node): sum(_tile_tables(node))} if tiled else {}
    if tiled and not e.attention.decode_rows_apart:
        return Wants(kept=kept)
    at = parts_of(e, node)
    return Wants((at.partials, at.softmax), (at.slots * node.attrs.n_kv_heads,), kept)


def most_parts(e: Shapes, node: Node, choice: SplitChoice) -> int:
    """Parts of the longest window that a step can have: of the region, or the context where positions are bounded."""
    _, k, _, positions, _ = e.sources(node)
    limit = getattr(positions.attrs, "limit", None)
    longest = k.type.shape[0] if limit is None else min(limit, k.type.shape[0])
    return triton.cdiv(longest, choice.split)


def _finishes(e: Emitter, parts: int, head_dim: int, block: int) -> bool:
    """Whether `split` merges: a head must be whole blocks of the result then."""
    if block and head_dim % block:
        return False
    if e.attention.finish is not None:
        return e.attention.finish == "last"
    return parts <= e.attention.finish_parts


def _tiles(e: Emitter, node: Node) -> tuple[torch.Tensor, torch.Tensor]:
    """The step's tiles and its rows outside of them: launched for the first node, kept for those with its window."""
    *_, positions, window = e.sources(node)
    short = e.attention.split_rows if e.attention.decode_rows_apart else 0
    key = _tiles_key(e, node)
    if key not in e.kept:
        sizes = _tile_tables(node)
        starts, table, listed = e.dealt.kept(sum(sizes)).view(torch.int32).split([n // 4 for n in sizes])
        e.launch(
            "attention.tiles",
            node,
            tiles.tiles,
            (1,),
            8,
            positions=e.tensor(positions),
            window=e.tensor(window),
            rows_at=e.rows_at(node),
            starts=starts,
            table=table,
            listed=listed,
            MODE=_mode(e, node),
            TILE=_flash_choice(e, node).tile,
            SHORT=short,
            BUCKET=triton.next_power_of_2(node.type.shape[0]),
        )
        e.kept[key] = (table, listed)
    return e.kept[key]


def _tiles_key(e: Shapes, node: Node) -> tuple[Any, ...]:
    *_, positions, window = e.sources(node)
    return "attention.tiles", positions.id, window.id, _flash_choice(e, node).tile


def _tile_tables(node: Node) -> list[int]:
    """Bytes of where runs begin, of the tiles, and of the rows outside of them; each a whole number of wide loads."""
    rows = node.type.shape[0]
    return [16 * triton.cdiv(n, 4) for n in (triton.next_power_of_2(rows) + 1, 1 + 2 * rows, 1 + rows)]


def _split_choice(e: Shapes, node: Node) -> SplitChoice:
    k = e.sources(node)[1]
    return e.attention.split or split_choice(e.target, k.type.dtype.name, node.type.shape[1] // node.attrs.n_kv_heads)


def _flash_choice(e: Shapes, node: Node) -> FlashChoice:
    k = e.sources(node)[1]
    return e.attention.flash or flash_choice(e.target, k.type.dtype.name, node.type.shape[2])


def _layout(e: Emitter, node: Node) -> int:
    return cells.LAYOUTS[e.sources(node)[1].type.dtype.name]


def _mode(e: Emitter, node: Node) -> int:
    return windows.MODES[window_mode(e.sources(node)[4].type.shape, node.type.shape[0])]


def _operands(e: Emitter, node: Node) -> dict[str, Any]:
    q, k, v, positions, window = e.sources(node)
    return {
        "q": e.tensor(q),
        "k": e.bytes_at(k),
        "v": e.bytes_at(v),
        "positions": e.tensor(positions),
        "window": e.tensor(window),
        "q_stride": e.row_stride(q) // 4,
        "cell_bytes": e.row_stride(k),
        "scale": node.attrs.scale * LOG2_E,
    }


SITES = ("attention.tiles", "attention.flash", "attention.split", "attention.merge")
WANTS: dict[str, WantsOf] = {"attention": _wants}
EMITTERS: dict[str, Emit] = {"attention": emit_attention}
