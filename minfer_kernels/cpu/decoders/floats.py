"""Weights of whole numbers against float32 activations: F32, F16, BF16.

A row is summed in two chains of fused multiply-adds, over the even and the odd k ascending, added at the end. Two
chains hide half the latency of one, and with four tokens fill the eight that the machine has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minfer_kernels.cpu.kernels.parts.tokens import Step, each_token, repeated
from minfer_kernels.cpu.simd import fma, inline, load_f32, prefetch_l2
from minfer_kernels.cpu.simd.widths import LANES
from minfer_kernels.cpu.weights.layouts import WeightLayout


@inline
def _added(_x: Any, _shared: Any, chains: Any) -> Any:
    return chains[0] + chains[1]


def float_tile(layout: WeightLayout, tokens: int, ahead: int) -> Callable[..., Any]:
    """(group, n_blocks, x, stride, k) to the products of an unquantized group with `tokens` tokens (`parts.tokens`).

    Weights are asked for `ahead` bytes before they are read; 0 asks for none.
    """
    lanes, column_bytes = LANES[layout.rows], layout.block_bytes
    widened = {"F32": lanes.load_f32, "F16": lanes.load_f16, "BF16": lanes.load_bf16}[layout.format]
    begin, finish = repeated(_no_chains(layout.rows), tokens), each_token(_added, tokens)
    add_two, add_one = each_token(_two_columns(layout.rows), tokens), each_token(_one_column(layout.rows), tokens)

    @inline
    def tile(group: Any, n_blocks: Any, x: Any, stride: Any, _k: Any) -> Any:
        chains = begin()
        for i in range(n_blocks // 2):
            p = group + 2 * i * column_bytes
            for line in range(0, 2 * column_bytes if ahead else 0, 64):
                prefetch_l2(p + ahead + line)
            chains = add_two(x + 8 * i, stride, (widened(p), widened(p + column_bytes)), chains)
        if n_blocks % 2 != 0:
            last = n_blocks - 1
            chains = add_one(x + 4 * last, stride, widened(group + last * column_bytes), chains)
        return finish(x, stride, 0, chains)

    return tile


def _no_chains(rows: int) -> Step:
    splat = LANES[rows].splat_f32
    return inline(lambda: (splat(0.0), splat(0.0)))


def _two_columns(rows: int) -> Step:
    splat = LANES[rows].splat_f32

    @inline
    def add(x: Any, weights: Any, chains: Any) -> Any:
        even = fma(weights[0], splat(load_f32(x)), chains[0])
        return even, fma(weights[1], splat(load_f32(x + 4)), chains[1])

    return add


def _one_column(rows: int) -> Step:
    splat = LANES[rows].splat_f32
    return inline(lambda x, weights, chains: (fma(weights, splat(load_f32(x)), chains[0]), chains[1]))
