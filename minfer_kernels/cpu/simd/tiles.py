"""AMX: products of int8 tiles of 16 tokens and 16 weight rows, exact in int32.

A tile register holds 16 rows of 64 bytes. The tokens' tile has a row of x (32 or 64 int8) per token, as activations lie
in memory. The weights' tile has a row per quad: byte 4r + j of row g is element 4g + j of weight row r, as in a run
(`simd.dots`). The sums have a row of 16 int32 per token, a lane per weight row. They come back through memory: what is
stored can be read at full speed some 70 cycles later, so that kernels multiply ahead.

Between `open_tiles` and `close_tiles` registers have fixed shapes; a thread's context switch saves them only then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types

from minfer_kernels.cpu.simd.core import (
    F32,
    I8,
    I64,
    WIDTHS,
    Isa,
    Op,
    call,
    const,
    f32x16,
    i64,
    lanes,
    load,
    op,
    pointer,
    shuffle,
    splat,
    stack_array,
    store,
    void,
)
from minfer_kernels.cpu.simd.dots import run_type
from minfer_kernels.cpu.simd.memory import masked_load

TOKENS = 16
"""Tokens of a tile."""
SUMS_BYTES = 1024
"""Bytes of the sums of a tile: int32, 16 weight rows for each token."""
RUN_BYTES = 512
"""Bytes of the weights' tile of 32 elements: 8 quads of 16 weight rows."""

_SUMS, _X64, _W64, _X32, _W32 = range(4), 4, 5, 6, 7
# Rows and bytes of a row of every tile register.
_SHAPES = [*[(16, 64)] * 6, (16, 32), (8, 64)]
_ROW = 64
_SHORTS, _BYTES, _INTS, _FLOATS = WIDTHS[1].i16.llvm, WIDTHS[1].i8.llvm, WIDTHS[1].i32.llvm, f32x16.llvm

results16 = types.UniTuple(f32x16, TOKENS)
"""A vector of float32 for each token of a tile."""


def _amx(result: Any, *operands: Any, name: str | None = None) -> Callable[[Callable[..., Any]], Op]:
    return op(result, *operands, name=name, isa=Isa.AVX512_AMX)


@_amx(void)
def open_tiles(b: ir.IRBuilder) -> None:
    """Give the tile registers their shapes. It takes some 250 cycles."""
    widths = [half for _, width in _SHAPES for half in (width, 0)]
    config = [1, *[0] * 15, *widths, *[0] * 16, *[rows for rows, _ in _SHAPES], *[0] * 8]
    room = stack_array(b, 64)
    store(b, b.ptrtoint(room, I64), lanes(_BYTES, config), 64)
    call(b, "llvm.x86.ldtilecfg", ir.VoidType(), b.bitcast(room, I8.as_pointer()))


@_amx(void)
def close_tiles(b: ir.IRBuilder) -> None:
    """Empty the tile registers."""
    call(b, "llvm.x86.tilerelease", ir.VoidType())


@_amx(void, i64, i64, i64, i64)
def multiply_32(b: ir.IRBuilder, x: Any, x_stride: Any, weights: Any, sums: Any) -> None:
    """Sums of products of 32 elements: x's tokens `x_stride` bytes apart, weights a tile of signed bytes."""
    _load_tile(b, _X32, x, x_stride)
    _load_tile(b, _W32, weights)
    _multiply(b, "ssd", _SUMS[0], _X32, _W32, first=True)
    _store_tile(b, _SUMS[0], sums)


@_amx(void, i64, i64, i64, i64)
def multiply_256(b: ir.IRBuilder, x: Any, x_stride: Any, weights: Any, sums: Any) -> None:
    """Products of 256 elements with 16-bit weights: the sums with their low (unsigned) bytes, then with the high ones.

    Weights are four times two tiles of 64 elements: low bytes, high bytes.
    """
    for step in range(4):
        _load_tile(b, _X64, _past(b, x, 64 * step), x_stride)
        for plane, kind in enumerate(("sud", "ssd")):
            _load_tile(b, _W64, _past(b, weights, SUMS_BYTES * (2 * step + plane)))
            _multiply(b, kind, _SUMS[plane], _X64, _W64, first=step == 0)
    for plane in range(2):
        _store_tile(b, _SUMS[plane], _past(b, sums, SUMS_BYTES * plane))


@_amx(void, i64, i64, i64, i64)
def multiply_pairs(b: ir.IRBuilder, x: Any, x_stride: Any, weights: Any, sums: Any) -> None:
    """Products of 16 signed 16-bit numbers of each token: the sums with x's low (unsigned) bytes, then with the high.

    Weights are two tiles of quads of bytes: (w0, 0, w1, 0), then (0, w0, 0, w1).
    """
    _load_tile(b, _X32, x, x_stride)
    for plane, kind in enumerate(("usd", "ssd")):
        _load_tile(b, _W32, _past(b, weights, RUN_BYTES * plane))
        _multiply(b, kind, _SUMS[2 + plane], _X32, _W32, first=True)
        _store_tile(b, _SUMS[2 + plane], _past(b, sums, SUMS_BYTES * plane))


@_amx(results16)
def no_results(b: ir.IRBuilder) -> Any:
    """Zeros."""
    return ir.Constant(ir.ArrayType(_FLOATS, TOKENS), [const(_FLOATS, 0.0)] * TOKENS)


@_amx(results16, i64, i64)
def load_results(b: ir.IRBuilder, p: Any, stride: Any) -> Any:
    """The vectors at p, p + stride and so on."""
    return _gathered(b, [load(b, _row(b, p, stride, t), _FLOATS, 4) for t in range(TOKENS)])


@_amx(void, i64, i64, results16)
def store_results(b: ir.IRBuilder, p: Any, stride: Any, results: Any) -> None:
    """Store the vectors to p, p + stride and so on."""
    for t in range(TOKENS):
        store(b, _row(b, p, stride, t), b.extract_value(results, t), 4)


@_amx(results16, results16, i64, f32x16, i64, i64)
def add_products(b: ir.IRBuilder, results: Any, sums: Any, d: Any, dx: Any, stride: Any) -> Any:
    """For each token fma(d * dx, float(sums), result); its float32 dx lies at dx + t * stride."""
    return _each_token(b, results, lambda t, y: _scaled(b, sums, d, dx, stride, t, y))


@_amx(results16, results16, i64, f32x16, i64, f32x16, i64, i64)
def add_products_and_minimums(
    b: ir.IRBuilder, results: Any, sums: Any, d: Any, dx: Any, m: Any, offset: Any, stride: Any
) -> Any:
    """`add_products`, then fma(m, offset, result); a token's float32 offset lies at offset + t * stride."""

    def added(t: int, y: Any) -> Any:
        y = _scaled(b, sums, d, dx, stride, t, y)
        _needed(b, y)
        return _fma(b, m, _splat_at(b, _row(b, offset, stride, t)), y)

    return _each_token(b, results, added)


@_amx(WIDTHS[1].i32, i64, i64)
def load_i32x16_partial(b: ir.IRBuilder, p: Any, n: Any) -> Any:
    """The first n int32 at p, and zeros."""
    return masked_load(b, p, n, const(_INTS, 0), 4)


def store_run(bias: int) -> Op:
    """A primitive (p, run): the run's bytes less `bias`, wrapping, as a tile of weights."""

    def emit(b: ir.IRBuilder, p: Any, run: Any) -> None:
        for g in range(8):
            store(b, _past(b, p, _ROW * g), b.sub(b.extract_value(run, g), const(_BYTES, bias)), 64)

    return _amx(void, i64, run_type(WIDTHS[1]), name=f"store_run_less_{bias}_")(emit)


def store_scaled_run(centre: int, scales_per_run: int) -> Op:
    """A primitive (p, run, scales) for `multiply_256`: (quant - centre) * scale, low bytes at p, high ones behind.

    Scales are 16-bit, as `Dots.scaled_dot` takes them.
    """

    def emit(b: ir.IRBuilder, p: Any, run: Any, scales: Any) -> None:
        for g in range(8):
            quads: Any = b.bitcast(b.extract_value(run, g), _SHORTS)
            which = int(g >= 4)
            scale = scales if scales_per_run == 1 else shuffle(b, scales, [i & ~1 | which for i in range(32)])
            even, odd = b.and_(quads, const(_SHORTS, 255)), b.lshr(quads, const(_SHORTS, 8))
            if centre:
                even, odd = b.sub(even, const(_SHORTS, centre)), b.sub(odd, const(_SHORTS, centre))
            even, odd = b.mul(even, scale), b.mul(odd, scale)
            low = b.or_(b.and_(even, const(_SHORTS, 255)), b.shl(odd, const(_SHORTS, 8)))
            high = b.or_(b.lshr(even, const(_SHORTS, 8)), b.and_(odd, const(_SHORTS, 0xFF00)))
            store(b, _past(b, p, _ROW * g), low, 64)
            store(b, _past(b, p, SUMS_BYTES + _ROW * g), high, 64)

    return _amx(void, i64, run_type(WIDTHS[1]), WIDTHS[1].i16, name=f"store_run_{centre}_{scales_per_run}_")(emit)


@_amx(void, i64, WIDTHS[1].i16)
def store_pairs(b: ir.IRBuilder, p: Any, pairs: Any) -> None:
    """One row of the weights of `multiply_pairs`: pairs of bytes, kept in 16 bits."""
    store(b, p, pairs, 64)
    store(b, _past(b, p, RUN_BYTES), b.shl(pairs, const(_SHORTS, 8)), 64)


def _past(b: ir.IRBuilder, p: Any, offset: int) -> Any:
    return b.add(p, ir.Constant(I64, offset)) if offset else p


def _row(b: ir.IRBuilder, p: Any, stride: Any, index: int) -> Any:
    return b.add(p, b.mul(stride, ir.Constant(I64, index))) if index else p


def _load_tile(b: ir.IRBuilder, tile: int, p: Any, stride: Any = None) -> None:
    between = ir.Constant(I64, _ROW) if stride is None else stride
    call(b, "llvm.x86.tileloadd64", ir.VoidType(), ir.Constant(I8, tile), pointer(b, p, I8), between)


def _store_tile(b: ir.IRBuilder, tile: int, p: Any) -> None:
    row = ir.Constant(I64, _ROW)
    call(b, "llvm.x86.tilestored64", ir.VoidType(), ir.Constant(I8, tile), pointer(b, p, I8), row)


def _multiply(b: ir.IRBuilder, kind: str, sums: int, x: int, weights: int, first: bool) -> None:
    """Add the products; `kind` tells the signs of x's and the weights' bytes."""
    if first:
        call(b, "llvm.x86.tilezero", ir.VoidType(), ir.Constant(I8, sums))
    call(b, f"llvm.x86.tdpb{kind}", ir.VoidType(), *(ir.Constant(I8, tile) for tile in (sums, x, weights)))


def _scaled(b: ir.IRBuilder, sums: Any, d: Any, dx: Any, x_stride: Any, token: int, result: Any) -> Any:
    floats = b.sitofp(load(b, _past(b, sums, _ROW * token), _INTS, 64), _FLOATS)
    return _fma(b, b.fmul(d, _splat_at(b, _row(b, dx, x_stride, token))), floats, result)


def _each_token(b: ir.IRBuilder, results: Any, step: Callable[[int, Any], Any]) -> Any:
    """Token after token: an empty instruction asks for each result before the next token's sums may be loaded.

    LLVM would convert all sums first, and spill them.
    """
    added = []
    for t in range(TOKENS):
        added.append(step(t, b.extract_value(results, t)))
        _needed(b, added[-1])
    return _gathered(b, added)


def _needed(b: ir.IRBuilder, x: Any) -> None:
    b.call(ir.InlineAsm(ir.FunctionType(ir.VoidType(), [_FLOATS]), "", "v,~{memory}", side_effect=True), [x])


def _gathered(b: ir.IRBuilder, vectors: list[Any]) -> Any:
    results: Any = ir.Constant(ir.ArrayType(_FLOATS, TOKENS), ir.Undefined)
    for t, vector in enumerate(vectors):
        results = b.insert_value(results, vector, t)
    return results


def _splat_at(b: ir.IRBuilder, p: Any) -> Any:
    return splat(b, load(b, p, F32, 4), _FLOATS)


def _fma(b: ir.IRBuilder, x: Any, y: Any, z: Any) -> Any:
    return call(b, "llvm.fma.v16f32", _FLOATS, x, y, z)
