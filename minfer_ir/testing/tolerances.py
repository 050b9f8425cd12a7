"""How far a kernel may be from an op's float64 reference: the one place that says so, with the cause.

A bound is relative to a magnitude that belongs to the op (for a dot product the size of its partial sums, not the
possibly cancelled result), so it neither hides an error in a large value nor fails on cancellation. Rounding errors of
a sum's terms are independent, so a bound grows with the root of their number: the worst case would let a float16
operand pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from minfer_ir import plugins
from minfer_ir.formats.activation import ActivationFormat
from minfer_ir.formats.base import Bytes, Format
from minfer_ir.formats.blocks import BlockFormat
from minfer_ir.formats.cells import cell_values
from minfer_ir.ops import OPS
from minfer_ir.ops.projection import HeadsAttrs
from minfer_ir.ops.rope import rope_frequencies
from minfer_ir.opspec import Array, Op
from minfer_ir.runtime.backend import Capabilities
from minfer_ir.types import TensorType

UNIT = 2.0**-24
"""Half a unit in the last place of float32, relative."""
FLOAT16_STEP = 2.0**-10
"""A unit in the last place of float16, relative."""
SMALLEST = 2.0**-126
"""Below the smallest normal float32 a kernel may flush to zero."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """A class of allowed difference: `units`, and `units_per_root` for the root of a sum's terms, times the magnitude.

    `step_share` is for results stored in 8-bit blocks: that share of the elements (and one more) may instead be off by
    one step of its block.
    """

    name: str
    cause: str
    units: float = 0.0
    units_per_root: float = 0.0
    step_share: float = 0.0

    def relative(self, n_terms: int) -> float:
        """The bound per unit of magnitude, for sums of `n_terms`."""
        return (self.units + self.units_per_root * math.sqrt(n_terms)) * UNIT


EXP_ULP = 2.0
"""A kernel's exp alone, in units in the last place: a degree-7 polynomial after range reduction (measured 1.01)."""

BITWISE = Tolerance("bitwise", "copies, lookups and single float32 operations have one right result")
REDUCTION = Tolerance(
    "f32-reduction-order",
    "a float32 sum in the backend's own order rounds each partial sum",
    *(8, 1),
)
EXPONENTIAL = Tolerance("exponential", "the exponential is a float32 polynomial: a few ulp, and its argument's", 16, 1)
ROTATION = Tolerance("rotation", "cosines and sines are rounded to float32, products and their sum once each", 6)
NORMED_ROTATION = Tolerance("normed-rotation", "the norm's reduction order, then the rotation", 16, 1)
PROJECTION = Tolerance("projection", "the product's reduction order, then norm and rotation of its rounded sums", 24, 2)
ATTENTION = Tolerance(
    "attention",
    "scores, exponentials and the weighted sum are float32; a score's error is relative in its weight",
    64,
    4,
)
HALF_ATTENTION = Tolerance(
    "half-attention",
    "queries, packed keys and values and the weights are rounded to float16 before products that are summed in float32",
    *(2 * 8192, 4),
)
QUANTIZED = Tolerance(
    "8-bit-activation",
    "a float32 result next to a rounding border is stored as either neighbour, one step of its block away",
    *(64, 1, 0.02),
)
HALF_PRODUCT = Tolerance(
    "half-product",
    "activations and weights are rounded to float16 before products that are summed in float32",
    8192,
)
"""Half a unit in the last place of float16 for each factor, on top of what the op's class allows."""

BEYOND_HALVES = ("F32", "BF16")
"""Weights that float16 can't hold: their products stay float32, or sums of TF32 products that keep 22 bits."""

CLASSES = (
    *(BITWISE, REDUCTION, EXPONENTIAL, ROTATION, NORMED_ROTATION, PROJECTION, ATTENTION, QUANTIZED),
    *(HALF_PRODUCT, HALF_ATTENTION),
)

BY_OP: Mapping[str, Tolerance] = {
    **dict.fromkeys(("matmul", "matmul_add", "rms_norm", "qk_norm", "add_rms_norm"), REDUCTION),
    **dict.fromkeys(("silu", "swiglu", "softmax", "matmul_swiglu"), EXPONENTIAL),
    **dict.fromkeys(("rms_norm_quantize", "swiglu_quantize", "matmul_swiglu_quantize"), QUANTIZED),
    **dict.fromkeys(("rope", "rope_kv_store"), ROTATION),
    **dict.fromkeys(("qk_norm_rope", "qk_norm_rope_kv_store"), NORMED_ROTATION),
    **dict.fromkeys(("matmul_kv_store", "matmul_add_kv_store"), REDUCTION),
    **dict.fromkeys(("matmul_rope", "matmul_add_rope", "matmul_norm_rope"), PROJECTION),
    **dict.fromkeys(("matmul_rope_kv_store", "matmul_add_rope_kv_store", "matmul_norm_rope_kv_store"), PROJECTION),
    "attention": ATTENTION,
}
"""Ops that aren't listed are bitwise."""


def tolerance_of(op: str) -> Tolerance:
    """The class that kernels of `op` are held to."""
    return BY_OP.get(op) or plugins.tolerance(op) or BITWISE


def tolerance_on(capabilities: Capabilities, op: Op, operands: Sequence[TensorType]) -> Tolerance:
    """The class that a backend's kernel is held to: the op's, wider where the backend's products round to float16."""
    plain, least = tolerance_of(op.name), capabilities.half_products_from
    if op.name == "attention":
        tiled = capabilities.half_attention_from
        half = tiled is not None and operands[0].shape[0] >= tiled and operands[1].dtype.name != "f32"
        return HALF_ATTENTION if half else plain
    if least is None or not op.is_product or operands[0].dtype.name != "f32" or operands[0].shape[0] < least:
        return plain
    if all(weight.dtype.name in BEYOND_HALVES for weight in op.weight_operands(operands)):
        return plain
    name, cause = f"{plain.name}, {HALF_PRODUCT.name}", f"{plain.cause}; {HALF_PRODUCT.cause}"
    return replace(plain, name=name, cause=cause, units=plain.units + HALF_PRODUCT.units)


@dataclass(frozen=True, slots=True)
class Held:
    """What one result is compared under: its op, attrs and type, and the operands as the op's reference takes them.

    `terms` are the magnitudes that the elements of each of a product's weights are added up from (see `weight_terms`);
    without them |w| is taken.
    """

    op: Op
    attrs: Any
    out: TensorType
    operands: Sequence[Array]
    terms: tuple[Array, ...] = ()


def weight_terms(dtype: Format, rows: Bytes) -> Array:
    """|scale * quant| + |minimum| of every element of `rows`, float32; |w| where the format has no minimum.

    Kernels sum the two apart. Where they cancel in an element, its |w| says nothing about the rounding of either: seen
    on real models, whose largest activations meet weights near 0.
    """
    values = dtype.decode(rows)
    minima = [f for f in dtype.layout.names or () if f in MINIMA] if isinstance(dtype, BlockFormat) else []
    if not isinstance(dtype, BlockFormat) or not minima:
        return np.abs(values)
    without = np.ascontiguousarray(rows).copy()
    blocks = without.reshape(-1, dtype.block_bytes).view(dtype.layout)
    for name in minima:
        blocks[name] = 0
    scaled = dtype.decode(without)
    return np.abs(scaled) + np.abs(values - scaled)


MINIMA = ("m", "dmin")
"""Fields of a block that hold the minimum, or the scale of the minima."""


def difference(held: Held, expected: Array, actual: Array, tolerance: Tolerance | None = None) -> str | None:
    """None when `actual` is within the op's class of `expected`, else the first and the number of elements that aren't.

    Both in storage form. `tolerance` overrides the op's class, e.g. with `BITWISE` to compare two kernels.
    """
    used = tolerance or tolerance_of(held.op.name)
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        return f"got {actual.dtype}{actual.shape}, expected {expected.dtype}{expected.shape}"
    if expected.tobytes() == actual.tobytes():
        return None
    if used is BITWISE:
        return _report(used, _same_bits(expected, actual), expected, actual)
    if isinstance(held.out.dtype, ActivationFormat):
        return _quantized_difference(held, used, expected, actual)
    limit = used.relative(_terms(held)) * _magnitude(held, expected)
    if expected.dtype == np.float16:
        # A float32 result next to a rounding border is stored as either neighbour.
        limit = limit + FLOAT16_STEP * np.abs(expected.astype(np.float64))
    within = _within(actual, expected, limit)
    return _report(used, within, expected, actual)


def _same_bits(expected: Array, actual: Array) -> Array:
    """Elementwise; any NaN equals any other, because payloads differ between instruction sets."""
    same = expected == actual
    if expected.dtype.kind == "f":
        same = (same & (np.signbit(expected) == np.signbit(actual))) | (np.isnan(expected) & np.isnan(actual))
    return same


def _within(actual: Array, expected: Array, limit: Any) -> Array:
    with np.errstate(invalid="ignore"):
        near = np.abs(actual.astype(np.float64) - expected) <= limit + SMALLEST
    return near | (np.isnan(actual) & np.isnan(expected)) | ((actual == expected) & np.isinf(expected))


def _quantized_difference(held: Held, used: Tolerance, expected: Array, actual: Array) -> str | None:
    dtype: Any = held.out.dtype
    want, got = dtype.decode(expected), dtype.decode(actual)
    steps = np.repeat(dtype.planes(expected).scales, dtype.block_size, axis=-1).reshape(want.shape).astype(np.float64)
    slack = 127 * steps * used.relative(_terms(held))
    off = ~_within(got, want, slack)
    allowed = 1 + int(used.step_share * off.size)
    beyond_a_step = ~_within(got, want, steps + slack)
    if beyond_a_step.any() or off.sum() > allowed:
        return _report(used, ~(beyond_a_step if beyond_a_step.any() else off), want, got)
    planes = dtype.planes(actual)
    sums = dtype.sums_of(planes.quants)
    return None if _same_bits(sums, planes.sums).all() else f"{used.name}: the sums plane doesn't add up the quants"


def _report(used: Tolerance, within: Array, expected: Array, actual: Array) -> str | None:
    if within.all():
        return None
    at = tuple(int(i) for i in np.argwhere(~within)[0])
    count = int((~within).sum())
    return f"{used.name}: {count} of {within.size} elements differ, first at {at}: {actual[at]!r}, not {expected[at]!r}"


def _terms(held: Held) -> int:
    """Terms of the longest sum in one element of the result."""
    if held.op.name == "attention":
        return held.operands[0].shape[-1] + held.operands[1].shape[0]
    return held.operands[0].shape[-1] if held.operands[0].ndim else 1


def _magnitude(held: Held, expected: Array) -> Array:
    measure = MAGNITUDES.get(held.op.name)
    plain = np.abs(expected).astype(np.float64)
    return plain if measure is None else np.maximum(plain, measure(held))


def _dot_magnitude(held: Held) -> Array:
    """Four times the size that partial sums of terms with random signs have."""
    x, weight = (o.astype(np.float64) for o in held.operands)
    if held.terms:
        weight = held.terms[0].astype(np.float64)
    return 4 * np.sqrt((x * x) @ (weight * weight).T)


def _sum_magnitude(held: Held) -> Array:
    """A product's, plus the size of what is added."""
    x, weight, y = held.operands
    return _dot_magnitude(replace(held, operands=(x, weight))) + np.abs(y).astype(np.float64)


def _gated_magnitude(held: Held) -> Array:
    """Each product's own, times the size of the other factor."""
    x, gate_weight, up_weight = held.operands
    terms = [(t,) for t in held.terms] or [(), ()]
    pairs = [replace(held, operands=(x, w), terms=t) for w, t in zip((gate_weight, up_weight), terms, strict=True)]
    gate, up = (np.abs(x.astype(np.float64) @ p.operands[1].astype(np.float64).T) for p in pairs)
    return 1.1 * _dot_magnitude(pairs[0]) * (up + 1) + gate * _dot_magnitude(pairs[1])


def _rotation_magnitude(held: Held) -> Array:
    """The largest element of a head: rotations mix its elements."""
    named = _named(held)
    _, amplitude = rope_frequencies(held.attrs, named.get("factors"))
    largest = np.abs(named["x"]).astype(np.float64).max(axis=-1, keepdims=True)
    return _stored(held, np.broadcast_to(largest * max(1.0, amplitude), named["x"].shape))


def _normed_rotation_magnitude(held: Held) -> Array:
    named = _named(held)
    x, weight = named["x"].astype(np.float64), np.abs(named["norm_weight"]).astype(np.float64)
    rms = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + held.attrs.eps)
    normed = replace(held, operands=[np.abs(x) / rms * weight if o is named["x"] else o for o in held.operands])
    return _rotation_magnitude(normed)


def _projection_magnitude(held: Held) -> Array:
    """The product's, spread over the head that a norm and a rotation mix it into."""
    named, attrs = _named(held), held.attrs
    magnitude = _dot_magnitude(replace(held, operands=(named["x"], named["weight"])))
    if "bias" in named:
        magnitude = magnitude + np.abs(named["bias"])
    if not isinstance(held.attrs, HeadsAttrs):
        return _stored(held, magnitude)
    _, amplitude = rope_frequencies(attrs, named.get("factors"))
    by_head = magnitude.reshape(len(magnitude), *attrs.heads[1:])
    if "norm_weight" in named:
        product = named["x"].astype(np.float64) @ named["weight"].astype(np.float64).T
        rms = np.sqrt(np.mean(product.reshape(by_head.shape) ** 2, axis=-1, keepdims=True) + attrs.eps)
        by_head = by_head / rms * np.abs(named["norm_weight"]).max()
    mixed = np.broadcast_to(by_head.max(axis=-1, keepdims=True), by_head.shape) * max(1.0, amplitude)
    return _stored(held, mixed)


def _stored(held: Held, rows: Array) -> Array:
    """For an op that writes cells, the magnitudes of the whole region: 0 where nothing is written."""
    named = _named(held)
    if "region" not in named:
        return rows
    everywhere = np.zeros(named["region"].shape)
    everywhere[named["cells"]] = rows.reshape(len(rows), -1)
    return everywhere


def _named(held: Held) -> dict[str, Array]:
    return {slot.name: value for slot, value in zip(held.op.operands, held.operands, strict=False)}


def _attention_magnitude(held: Held) -> Array:
    """The weighted sum of |v|, for a score's own error times the largest score."""
    q, k, v, positions, window = held.operands
    k, v = cell_values(k), cell_values(v)
    spread = np.abs(q).max(initial=1.0) * np.abs(k.astype(np.float64)).max(initial=1.0) * abs(held.attrs.scale)
    summed: Array = OPS["attention"].reference(held.attrs, q, k, np.abs(v), positions, window)
    return summed.astype(np.float64) * max(1.0, float(spread))


MAGNITUDES: Mapping[str, Callable[[Held], Array]] = {
    "matmul": _dot_magnitude,
    "matmul_add": _sum_magnitude,
    "matmul_swiglu": _gated_magnitude,
    "rope": _rotation_magnitude,
    "rope_kv_store": _rotation_magnitude,
    **dict.fromkeys(("qk_norm_rope", "qk_norm_rope_kv_store"), _normed_rotation_magnitude),
    **dict.fromkeys((op for op, used in BY_OP.items() if used is PROJECTION), _projection_magnitude),
    **dict.fromkeys(("matmul_kv_store", "matmul_add_kv_store"), _projection_magnitude),
    "attention": _attention_magnitude,
}
