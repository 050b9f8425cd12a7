"""Doing a step for each token of a tile, written out: a tile's values are pairs of pairs of what one token has.

A tile of one token is the token's value itself, one of 2n tokens the pair of the first n and the last n. Numba keeps
such tuples in registers, and no loop over tokens is left in the code.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from minfer_kernels.cpu.simd import inline

Step = Callable[..., Any]


@cache
def each_token(step: Step, tokens: int) -> Step:
    """(x, stride, shared, tile) to the tile of `step(x of the token, shared, its value)`.

    Rows of x are `stride` bytes apart; `tokens` is a power of two.
    """
    if tokens == 1:
        return inline(lambda x, _stride, shared, value: step(x, shared, value))
    half, behind = each_token(step, tokens // 2), tokens // 2

    @inline
    def both(x: Any, stride: Any, shared: Any, tile: Any) -> Any:
        return half(x, stride, shared, tile[0]), half(x + behind * stride, stride, shared, tile[1])

    return both


@cache
def repeated(value: Step, tokens: int) -> Step:
    """() to a tile with `value()` for every token."""
    if tokens == 1:
        return value
    half = repeated(value, tokens // 2)
    return inline(lambda: (half(), half()))


@cache
def take_each(step: Step, tokens: int) -> Step:
    """(out, stride, shared, tile) to None: `step(out of the token, shared, its value)`, which returns nothing."""
    if tokens == 1:

        @inline
        def only(out: Any, _stride: Any, shared: Any, value: Any) -> None:
            step(out, shared, value)

        return only
    half, behind = take_each(step, tokens // 2), tokens // 2

    @inline
    def both(out: Any, stride: Any, shared: Any, tile: Any) -> None:
        half(out, stride, shared, tile[0])
        half(out + behind * stride, stride, shared, tile[1])

    return both
