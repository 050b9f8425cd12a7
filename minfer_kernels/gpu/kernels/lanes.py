"""What kernels share: rounding, the gate's activation, a row's mean square, how float32 tiles are multiplied."""

from __future__ import annotations

import triton
import triton.language as tl

_HALF_LOG2_E = tl.constexpr(0.7213475204444817)
_INTEGERS = tl.constexpr(12582912.0)


@triton.constexpr_function
def float_precision(ptx):
    """How products of float32 tiles are made: on NVIDIA devices from their TF32 parts, three times.

    Three such products keep 22 bits of a factor. Elsewhere (CDNA 3, the interpreter) float32 is multiplied as it is.
    """
    return "tf32x3" if ptx else "ieee"


@triton.jit
def silu(x):
    """x / (1 + exp(-x)) of float32; the argument of the exponential is rounded once, to half a unit of |x| log2(e)."""
    # Two factors whose product is exp(-|x|): neither overflows, and none is lost before the result is.
    root = tl.exp2(tl.abs(x) * -_HALF_LOG2_E)
    return tl.where(x < 0, x * root * root, x) / (1.0 + root * root)


@triton.jit
def inverse_rms(squares, width, eps):
    """1 / sqrt(squares / width + eps) of sums of squares, float32."""
    return tl.div_rn(1.0, tl.sqrt_rn(squares / width + eps))


@triton.jit
def rounded_away(x):
    """float32 within a rounding of -127..127 to int32, halves away from zero.

    The bounds also keep the compiler from fusing a product into the difference, which would round once instead of
    twice. Twice what truncation leaves is exact, and 1 from a half on.
    """
    x = tl.minimum(tl.maximum(x, -127.0), 127.0)
    whole = x.to(tl.int32)
    rest = x - whole.to(tl.float32)
    return whole + (rest + rest).to(tl.int32)


@triton.jit
def rounded_even(x):
    """float32 within a rounding of -127..127 to int32, halves to even; the bounds as in `rounded_away`."""
    x = tl.minimum(tl.maximum(x, -127.0), 127.0)
    # Between 2**23 and 2**24 float32 holds integers alone.
    return ((x + _INTEGERS) - _INTEGERS).to(tl.int32)
