"""The primitives kernels are written in: scalars at addresses, and float32 vectors of eight lanes.

Everything here has one meaning on every instruction set, bit for bit. Arithmetic never contracts or
reassociates; a fused multiply-add happens where `fma` is written and nowhere else. Addresses are int64.
"""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir

from minfer_kernels.cpu.features import Isa
from minfer_kernels.cpu.simd_core import (
    F16,
    F32,
    I1,
    I8,
    I16,
    I32,
    I64,
    call,
    const,
    f32,
    f32x8,
    i8x32,
    i16x16,
    i32,
    i32x8,
    i64,
    inline,
    lane,
    lanes,
    load,
    mask8,
    op,
    pointer,
    shuffle,
    splat,
    stack_1k,
    store,
    void,
)

__all__ = [
    "Isa",
    "absolute",
    "add",
    "add_i32",
    "all_lanes",
    "any_lane",
    "bits_of_f32",
    "divide",
    "double_low_lanes",
    "exp",
    "f32",
    "f32_of_bits",
    "f32x8",
    "first_lane",
    "first_lanes",
    "fma",
    "greater",
    "i16x16",
    "i32",
    "i32x8",
    "i64",
    "i8x32",
    "inline",
    "larger",
    "larger_f32",
    "less",
    "load_bf16x8",
    "load_f16x8",
    "load_f16x8_partial",
    "load_f32",
    "load_f32x4_doubled",
    "load_f32x8",
    "load_f32x8_partial",
    "load_i16",
    "load_i32",
    "load_i64",
    "load_i8x8",
    "load_u8",
    "magnitude_bits",
    "mask8",
    "max_lanes",
    "max_lanes_i32",
    "maximum",
    "maximum_i32",
    "minimum",
    "multiply",
    "multiply_i32",
    "negate",
    "negate_even_lanes",
    "op",
    "prefetch",
    "rotate_lanes",
    "round_even",
    "select",
    "smaller",
    "splat_f32x8",
    "stack_1k",
    "splat_i32x8",
    "sqrt",
    "sqrt_f32",
    "store_f16x8",
    "store_f16x8_partial",
    "store_f32",
    "store_f32x8",
    "store_f32x8_partial",
    "store_i16",
    "store_i32",
    "store_i64",
    "store_i8x8",
    "subtract",
    "subtract_i32",
    "sum_lanes",
    "sum_lanes_i32",
    "sum_lanes_of_8",
    "swap_halves",
    "swap_pairs",
    "to_f32x8",
    "to_i32x8",
]

_F8 = ir.VectorType(F32, 8)
_I8 = ir.VectorType(I32, 8)
_H8 = ir.VectorType(F16, 8)
_S8 = ir.VectorType(I16, 8)
_B8 = ir.VectorType(I8, 8)
_M8 = ir.VectorType(I1, 8)


# Scalars at addresses.


@op(f32, i64)
def load_f32(b: ir.IRBuilder, p: Any) -> Any:
    """The float32 at p."""
    return load(b, p, F32, 4)


@op(void, i64, f32)
def store_f32(b: ir.IRBuilder, p: Any, x: Any) -> None:
    """Store a float32."""
    store(b, p, x, 4)


@op(i64, i64)
def load_i64(b: ir.IRBuilder, p: Any) -> Any:
    """The int64 at p."""
    return load(b, p, I64, 8)


@op(void, i64, i64)
def store_i64(b: ir.IRBuilder, p: Any, x: Any) -> None:
    """Store an int64."""
    store(b, p, x, 8)


@op(i64, i64)
def load_i32(b: ir.IRBuilder, p: Any) -> Any:
    """The int32 at p, as int64."""
    return b.sext(load(b, p, I32, 4), I64)


@op(void, i64, i64)
def store_i32(b: ir.IRBuilder, p: Any, x: Any) -> None:
    """Store the low 32 bits of an int64."""
    store(b, p, b.trunc(x, I32), 4)


@op(i64, i64)
def load_i16(b: ir.IRBuilder, p: Any) -> Any:
    """The int16 at p, as int64."""
    return b.sext(load(b, p, I16, 2), I64)


@op(void, i64, i64)
def store_i16(b: ir.IRBuilder, p: Any, x: Any) -> None:
    """Store the low 16 bits of an int64."""
    store(b, p, b.trunc(x, I16), 2)


@op(i64, i64)
def load_u8(b: ir.IRBuilder, p: Any) -> Any:
    """The byte at p, as int64."""
    return b.zext(load(b, p, I8, 1), I64)


@op(i64, f32)
def bits_of_f32(b: ir.IRBuilder, x: Any) -> Any:
    """The bit pattern of a float32, zero-extended."""
    return b.zext(b.bitcast(x, I32), I64)


@op(f32, i64)
def f32_of_bits(b: ir.IRBuilder, x: Any) -> Any:
    """The float32 with the low 32 bits of x."""
    return b.bitcast(b.trunc(x, I32), F32)


@op(i64, i64, i64)
def smaller(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """The smaller int64 (Numba's own `min` brings its runtime along)."""
    return b.select(b.icmp_signed("<", x, y), x, y)


@op(i64, i64, i64)
def larger(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """The larger int64."""
    return b.select(b.icmp_signed(">", x, y), x, y)


@op(f32, f32, f32)
def larger_f32(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """x where x > y, else y, as `maximum` for one lane."""
    return b.select(b.fcmp_ordered(">", x, y), x, y)


@op(f32, f32)
def sqrt_f32(b: ir.IRBuilder, x: Any) -> Any:
    """Correctly rounded square root (math.sqrt on a float32 would call libm)."""
    return call(b, "llvm.sqrt.f32", F32, x)


@op(void, i64)
def prefetch(b: ir.IRBuilder, p: Any) -> None:
    """Ask for the cache line at p, to be read soon; any address is safe."""
    read, keep, data = ir.Constant(I32, 0), ir.Constant(I32, 3), ir.Constant(I32, 1)
    call(b, "llvm.prefetch.p0", ir.VoidType(), pointer(b, p, I8), read, keep, data)


# Whole vectors to and from memory; addresses need element alignment only.


@op(f32x8, i64)
def load_f32x8(b: ir.IRBuilder, p: Any) -> Any:
    """Eight float32."""
    return load(b, p, _F8, 4)


@op(void, i64, f32x8)
def store_f32x8(b: ir.IRBuilder, p: Any, x: Any) -> None:
    """Store eight float32."""
    store(b, p, x, 4)


@op(f32x8, i64)
def load_f16x8(b: ir.IRBuilder, p: Any) -> Any:
    """Eight float16, widened exactly."""
    return _widen_f16_portable(b, load(b, p, _S8, 2))


@load_f16x8.variant(Isa.AVX2)
def _load_f16x8_avx2(b: ir.IRBuilder, p: Any) -> Any:
    return b.fpext(load(b, p, _H8, 2), _F8)


@op(void, i64, f32x8)
def store_f16x8(b: ir.IRBuilder, p: Any, x: Any) -> None:
    """Store eight lanes as float16, rounded half to even; overflow becomes infinity."""
    store(b, p, _narrow_f16_portable(b, x), 2)


@store_f16x8.variant(Isa.AVX2)
def _store_f16x8_avx2(b: ir.IRBuilder, p: Any, x: Any) -> None:
    store(b, p, b.fptrunc(x, _H8), 2)


@op(f32x8, i64)
def load_bf16x8(b: ir.IRBuilder, p: Any) -> Any:
    """Eight bfloat16, widened exactly."""
    wide = b.zext(load(b, p, _S8, 2), _I8)
    return b.bitcast(b.shl(wide, const(_I8, 16)), _F8)


@op(i32x8, i64)
def load_i8x8(b: ir.IRBuilder, p: Any) -> Any:
    """Eight int8, widened."""
    return b.sext(load(b, p, _B8, 1), _I8)


@op(void, i64, i32x8)
def store_i8x8(b: ir.IRBuilder, p: Any, x: Any) -> None:
    """Store the low byte of each lane."""
    store(b, p, b.trunc(x, _B8), 1)


# The first n lanes (0 <= n <= 8) to and from memory; nothing past them is touched.


@op(mask8, i64)
def first_lanes(b: ir.IRBuilder, n: Any) -> Any:
    """A mask of the first n lanes."""
    return _first_lanes(b, n)


@op(f32x8, i64, i64, f32)
def load_f32x8_partial(b: ir.IRBuilder, p: Any, n: Any, rest: Any) -> Any:
    """The first n float32 at p; `rest` in the other lanes."""
    return _masked_load(b, p, n, splat(b, rest, _F8), 4)


@op(void, i64, i64, f32x8)
def store_f32x8_partial(b: ir.IRBuilder, p: Any, n: Any, x: Any) -> None:
    """Store the first n lanes."""
    _masked_store(b, p, n, x, 4)


@op(f32x8, i64, i64)
def load_f16x8_partial(b: ir.IRBuilder, p: Any, n: Any) -> Any:
    """The first n float16 at p, widened; zeros in the other lanes."""
    return _widen_f16_portable(b, _masked_load(b, p, n, const(_S8, 0), 2))


@load_f16x8_partial.variant(Isa.AVX2)
def _load_f16x8_partial_avx2(b: ir.IRBuilder, p: Any, n: Any) -> Any:
    return b.fpext(b.bitcast(_masked_load(b, p, n, const(_S8, 0), 2), _H8), _F8)


@op(void, i64, i64, f32x8)
def store_f16x8_partial(b: ir.IRBuilder, p: Any, n: Any, x: Any) -> None:
    """Store the first n lanes as float16."""
    _masked_store(b, p, n, _narrow_f16_portable(b, x), 2)


@store_f16x8_partial.variant(Isa.AVX2)
def _store_f16x8_partial_avx2(b: ir.IRBuilder, p: Any, n: Any, x: Any) -> None:
    _masked_store(b, p, n, b.bitcast(b.fptrunc(x, _H8), _S8), 2)


# Arithmetic.


@op(f32x8, f32)
def splat_f32x8(b: ir.IRBuilder, x: Any) -> Any:
    """The same float32 in every lane."""
    return splat(b, x, _F8)


@op(i32x8, i64)
def splat_i32x8(b: ir.IRBuilder, x: Any) -> Any:
    """The low 32 bits of x in every lane."""
    return splat(b, b.trunc(x, I32), _I8)


@op(f32x8, f32x8, f32x8, operators=[operator.add])
def add(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """x + y."""
    return b.fadd(x, y)


@op(f32x8, f32x8, f32x8, operators=[operator.sub])
def subtract(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """x - y."""
    return b.fsub(x, y)


@op(f32x8, f32x8, f32x8, operators=[operator.mul])
def multiply(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """x * y."""
    return b.fmul(x, y)


@op(f32x8, f32x8, f32x8, operators=[operator.truediv])
def divide(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """x / y, correctly rounded."""
    return b.fdiv(x, y)


@op(f32x8, f32x8, operators=[operator.neg])
def negate(b: ir.IRBuilder, x: Any) -> Any:
    """-x: flips the sign bit."""
    return b.fneg(x)


@op(f32x8, f32x8, f32x8, f32x8)
def fma(b: ir.IRBuilder, x: Any, y: Any, z: Any) -> Any:
    """x * y + z, rounded once."""
    return call(b, "llvm.fma.v8f32", _F8, x, y, z)


@op(f32x8, f32x8, f32x8)
def maximum(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """x where x > y, else y (so y where either is NaN)."""
    return b.select(b.fcmp_ordered(">", x, y), x, y)


@op(f32x8, f32x8, f32x8)
def minimum(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """x where x < y, else y (so y where either is NaN)."""
    return b.select(b.fcmp_ordered("<", x, y), x, y)


@op(f32x8, f32x8)
def absolute(b: ir.IRBuilder, x: Any) -> Any:
    """Clears the sign bit."""
    return call(b, "llvm.fabs.v8f32", _F8, x)


@op(f32x8, f32x8)
def sqrt(b: ir.IRBuilder, x: Any) -> Any:
    """Correctly rounded square root."""
    return call(b, "llvm.sqrt.v8f32", _F8, x)


@op(f32x8, f32x8)
def exp(b: ir.IRBuilder, x: Any) -> Any:
    """e**x within 2 ulp; 0 below -104, infinity above 89, subnormals rounded, NaN kept.

    Cephes' expf: x = n ln2 + r with ln2 split in two, a polynomial of degree 7 in r, and 2**n in two factors
    so that the ends of the range round instead of wrapping.
    """
    x = b.select(b.fcmp_ordered("<", x, const(_F8, -110.0)), const(_F8, -110.0), x)
    x = b.select(b.fcmp_ordered(">", x, const(_F8, 100.0)), const(_F8, 100.0), x)
    # Adding 1.5 * 2**23 rounds to an integer and leaves it in the low mantissa bits.
    magic = const(_F8, 12582912.0)
    shifted = _fma(b, x, const(_F8, 1.44269504088896341), magic)
    n = b.fsub(shifted, magic)
    r = _fma(b, n, const(_F8, -0.693359375), x)
    r = _fma(b, n, const(_F8, 2.12194440e-4), r)
    p = const(_F8, 1.9875691500e-4)
    for c in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        p = _fma(b, p, r, const(_F8, c))
    p = b.fadd(_fma(b, p, b.fmul(r, r), r), const(_F8, 1.0))
    exponent = b.sub(b.bitcast(shifted, _I8), b.bitcast(magic, _I8))
    half = b.ashr(exponent, const(_I8, 1))
    return b.fmul(b.fmul(p, _power_of_two(b, half)), _power_of_two(b, b.sub(exponent, half)))


@op(f32x8, f32x8)
def round_even(b: ir.IRBuilder, x: Any) -> Any:
    """To the nearest integer, halves to even."""
    return call(b, "llvm.nearbyint.v8f32", _F8, x)


@op(i32x8, f32x8)
def to_i32x8(b: ir.IRBuilder, x: Any) -> Any:
    """Truncate to int32; the lanes must be in range."""
    return b.fptosi(x, _I8)


@op(f32x8, i32x8)
def to_f32x8(b: ir.IRBuilder, x: Any) -> Any:
    """To float32, rounded half to even."""
    return b.sitofp(x, _F8)


@op(i32x8, i32x8, i32x8, operators=[operator.add])
def add_i32(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """x + y, wrapping."""
    return b.add(x, y)


@op(i32x8, i32x8, i32x8, operators=[operator.sub])
def subtract_i32(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """x - y, wrapping."""
    return b.sub(x, y)


@op(i32x8, i32x8, i32x8, operators=[operator.mul])
def multiply_i32(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """x * y, wrapping."""
    return b.mul(x, y)


@op(i32x8, f32x8)
def magnitude_bits(b: ir.IRBuilder, x: Any) -> Any:
    """Bit patterns without the sign: ordered as the magnitudes are, infinity 0x7F800000, NaNs above."""
    return b.and_(b.bitcast(x, _I8), const(_I8, 0x7FFFFFFF))


@op(i32x8, i32x8, i32x8)
def maximum_i32(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """The larger of signed lanes."""
    return b.select(b.icmp_signed(">", x, y), x, y)


# Comparisons and masks.


@op(mask8, f32x8, f32x8, operators=[operator.lt])
def less(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """x < y; false where either is NaN."""
    return b.fcmp_ordered("<", x, y)


@op(mask8, f32x8, f32x8, operators=[operator.gt])
def greater(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """x > y; false where either is NaN."""
    return b.fcmp_ordered(">", x, y)


@op(f32x8, mask8, f32x8, f32x8)
def select(b: ir.IRBuilder, mask: Any, x: Any, y: Any) -> Any:
    """x where the mask is set, else y."""
    return b.select(mask, x, y)


@op(i64, mask8)
def any_lane(b: ir.IRBuilder, mask: Any) -> Any:
    """1 when some lane is set."""
    return b.zext(b.icmp_unsigned("!=", b.bitcast(mask, I8), ir.Constant(I8, 0)), I64)


@op(i64, mask8)
def all_lanes(b: ir.IRBuilder, mask: Any) -> Any:
    """1 when every lane is set."""
    return b.zext(b.icmp_unsigned("==", b.bitcast(mask, I8), ir.Constant(I8, 255)), I64)


# Across lanes: always the tree (l, l+4), then (l, l+2), then (l, l+1).


@op(f32, f32x8)
def sum_lanes(b: ir.IRBuilder, x: Any) -> Any:
    """((x0+x4)+(x2+x6)) + ((x1+x5)+(x3+x7))."""
    for distance in (4, 2, 1):
        x = b.fadd(x, _rotated(b, x, distance))
    return lane(b, x, 0)


@op(f32, f32x8)
def max_lanes(b: ir.IRBuilder, x: Any) -> Any:
    """The largest lane; which one of NaN lanes wins is fixed by the tree."""
    for distance in (4, 2, 1):
        y = _rotated(b, x, distance)
        x = b.select(b.fcmp_ordered(">", x, y), x, y)
    return lane(b, x, 0)


@op(i64, i32x8)
def sum_lanes_i32(b: ir.IRBuilder, x: Any) -> Any:
    """The wrapping sum of the lanes, sign-extended."""
    for distance in (4, 2, 1):
        x = b.add(x, _rotated(b, x, distance))
    return b.sext(lane(b, x, 0), I64)


@op(f32x8, *[f32x8] * 8)
def sum_lanes_of_8(b: ir.IRBuilder, *v: Any) -> Any:
    """Lane i is `sum_lanes(v[i])`, by the same tree: eight sums for the shuffles of two or three."""
    quads = [_paired(b, v[i], v[i + 1], [0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15]) for i in (0, 2, 4, 6)]
    pairs = [_paired(b, *quads[i : i + 2], [0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15]) for i in (0, 2)]
    sums = _paired(b, *pairs, [0, 2, 8, 10, 4, 6, 12, 14], [1, 3, 9, 11, 5, 7, 13, 15])
    return shuffle(b, sums, [0, 4, 1, 5, 2, 6, 3, 7])


@op(f32x8, f32x8)
def swap_pairs(b: ir.IRBuilder, x: Any) -> Any:
    """Lanes 1 0 3 2 5 4 7 6."""
    return shuffle(b, x, [1, 0, 3, 2, 5, 4, 7, 6])


@op(i64, i32x8)
def max_lanes_i32(b: ir.IRBuilder, x: Any) -> Any:
    """The largest signed lane."""
    for distance in (4, 2, 1):
        y = _rotated(b, x, distance)
        x = b.select(b.icmp_signed(">", x, y), x, y)
    return b.sext(lane(b, x, 0), I64)


@op(f32x8, f32x8)
def double_low_lanes(b: ir.IRBuilder, x: Any) -> Any:
    """Lanes 0 0 1 1 2 2 3 3."""
    return shuffle(b, x, [0, 0, 1, 1, 2, 2, 3, 3])


@op(f32x8, i64)
def load_f32x4_doubled(b: ir.IRBuilder, p: Any) -> Any:
    """Four float32, each in two adjacent lanes."""
    return shuffle(b, load(b, p, ir.VectorType(F32, 4), 4), [0, 0, 1, 1, 2, 2, 3, 3])


@op(f32x8, f32x8)
def negate_even_lanes(b: ir.IRBuilder, x: Any) -> Any:
    """Flips the sign of lanes 0, 2, 4, 6."""
    signs = lanes(_I8, [0x80000000, 0] * 4)
    return b.bitcast(b.xor(b.bitcast(x, _I8), signs), _F8)


@op(f32, f32x8)
def first_lane(b: ir.IRBuilder, x: Any) -> Any:
    """Lane 0."""
    return lane(b, x, 0)


@op(f32x8, f32x8)
def swap_halves(b: ir.IRBuilder, x: Any) -> Any:
    """Lanes 4 5 6 7 0 1 2 3."""
    return shuffle(b, x, [4, 5, 6, 7, 0, 1, 2, 3])


@op(f32x8, f32x8)
def rotate_lanes(b: ir.IRBuilder, x: Any) -> Any:
    """Lanes 1 2 3 4 5 6 7 0."""
    return _rotated(b, x, 1)


def _fma(b: ir.IRBuilder, x: Any, y: Any, z: Any) -> Any:
    return call(b, "llvm.fma.v8f32", _F8, x, y, z)


def _rotated(b: ir.IRBuilder, x: Any, distance: int) -> Any:
    return shuffle(b, x, [(i + distance) % 8 for i in range(8)])


def _paired(b: ir.IRBuilder, x: Any, y: Any, first: list[int], second: list[int]) -> Any:
    """Lanes `first` of x and y together, plus lanes `second`."""
    order = ir.VectorType(I32, 8)
    return b.fadd(b.shuffle_vector(x, y, lanes(order, first)), b.shuffle_vector(x, y, lanes(order, second)))


def _power_of_two(b: ir.IRBuilder, exponent: Any) -> Any:
    return b.bitcast(b.shl(b.add(exponent, const(_I8, 127)), const(_I8, 23)), _F8)


def _first_lanes(b: ir.IRBuilder, n: Any) -> Any:
    return b.icmp_signed("<", lanes(_I8, range(8)), splat(b, b.trunc(n, I32), _I8))


def _masked_load(b: ir.IRBuilder, p: Any, n: Any, rest: Any, align: int) -> Any:
    vector = rest.type
    name = f"llvm.masked.load.{_suffix(vector)}.p0"
    return call(b, name, vector, pointer(b, p, vector), ir.Constant(I32, align), _first_lanes(b, n), rest)


def _masked_store(b: ir.IRBuilder, p: Any, n: Any, x: Any, align: int) -> None:
    name = f"llvm.masked.store.{_suffix(x.type)}.p0"
    call(b, name, ir.VoidType(), x, pointer(b, p, x.type), ir.Constant(I32, align), _first_lanes(b, n))


def _suffix(vector: ir.VectorType) -> str:
    return "v8f32" if vector == _F8 else "v8i16"


def _widen_f16_portable(b: ir.IRBuilder, bits: Any) -> Any:
    """float16 bits to float32 by integer arithmetic, as vcvtph2ps does it: exact, NaNs made quiet."""
    h = b.zext(bits, _I8)
    sign = b.shl(b.and_(h, const(_I8, 0x8000)), const(_I8, 16))
    magnitude = b.shl(b.and_(h, const(_I8, 0x7FFF)), const(_I8, 13))
    normal = b.add(magnitude, const(_I8, 112 << 23))
    # A subnormal is its integer value times 2**-24: both factors and the product are exact.
    counted = b.sitofp(b.and_(h, const(_I8, 0x03FF)), _F8)
    subnormal = b.bitcast(b.fmul(counted, const(_F8, 2.0**-24)), _I8)
    special = b.or_(magnitude, const(_I8, 0x7F800000))
    is_nan = b.icmp_unsigned(">", magnitude, const(_I8, 0x0F800000))
    special = b.select(is_nan, b.or_(special, const(_I8, 0x00400000)), special)
    wide = b.select(b.icmp_unsigned("<", magnitude, const(_I8, 0x00800000)), subnormal, normal)
    wide = b.select(b.icmp_unsigned(">=", magnitude, const(_I8, 0x0F800000)), special, wide)
    return b.bitcast(b.or_(wide, sign), _F8)


def _narrow_f16_portable(b: ir.IRBuilder, x: Any) -> Any:
    """float32 to float16 bits by integer arithmetic, as vcvtps2ph does it: half to even, NaNs made quiet."""
    bits = b.bitcast(x, _I8)
    sign = b.lshr(b.and_(bits, const(_I8, 0x80000000)), const(_I8, 16))
    magnitude = b.and_(bits, const(_I8, 0x7FFFFFFF))
    # Round to even by adding just under half a unit, plus one where the kept part is odd.
    odd = b.and_(b.lshr(magnitude, const(_I8, 13)), const(_I8, 1))
    rebased = b.sub(magnitude, const(_I8, 112 << 23))
    normal = b.lshr(b.add(b.add(rebased, const(_I8, 0x0FFF)), odd), const(_I8, 13))
    # Below 2**-14, adding 0.5 makes the float unit round at the subnormal's last place (2**-24).
    aligned = b.bitcast(b.fadd(b.bitcast(magnitude, _F8), const(_F8, 0.5)), _I8)
    subnormal = b.sub(aligned, const(_I8, 0x3F000000))
    payload = b.and_(b.lshr(magnitude, const(_I8, 13)), const(_I8, 0x03FF))
    nan = b.or_(payload, const(_I8, 0x7E00))
    narrow = b.select(b.icmp_unsigned("<", magnitude, const(_I8, 113 << 23)), subnormal, normal)
    narrow = b.select(b.icmp_unsigned(">=", magnitude, const(_I8, 143 << 23)), const(_I8, 0x7C00), narrow)
    narrow = b.select(b.icmp_unsigned(">", magnitude, const(_I8, 0x7F800000)), nan, narrow)
    return b.trunc(b.or_(narrow, sign), _S8)
