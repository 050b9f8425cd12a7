"""Tolerance classes: what they let through and what they don't."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ir_builders import Array, floats

from minfer_ir.dtypes import F32
from minfer_ir.formats import Q8A32
from minfer_ir.ops import OPS
from minfer_ir.opspec import attrs_from_json
from minfer_ir.runtime.backend import Capabilities
from minfer_ir.testing.tolerances import (
    BITWISE,
    CLASSES,
    HALF_ATTENTION,
    HALF_PRODUCT,
    Held,
    Tolerance,
    difference,
    tolerance_of,
    tolerance_on,
)
from minfer_ir.types import TensorType, element_type


def held(op: str, *operands: Array, kinds: tuple[TensorType, ...] = (), **attrs: Any) -> tuple[Held, Array]:
    """What a result of `op` is held to, and the reference's result."""
    from minfer_ir.dtypes import I32

    spec = OPS[op]
    typed = attrs_from_json(spec, attrs)
    types = kinds or tuple(TensorType(a.shape, I32 if a.dtype == np.int32 else F32) for a in operands)
    return Held(spec, typed, spec.infer(typed, *types), operands), spec.reference(typed, *operands)


def test_every_class_states_its_cause_and_every_op_has_one() -> None:
    assert len({c.name for c in CLASSES}) == len(CLASSES)
    assert all(len(c.cause) > 20 for c in CLASSES)
    assert {tolerance_of(op) for op in OPS} | {HALF_PRODUCT, HALF_ATTENTION} == set(CLASSES)


def test_products_in_float16_get_their_own_class_from_the_declared_bucket_on() -> None:
    declared = Capabilities({}, (), (), half_products_from=17)

    def used(op: str, rows: int, on: Capabilities = declared, weights: str = "F16") -> Tolerance:
        operands = [TensorType((rows, 32), F32, "token"), TensorType((5, 32), element_type(weights))]
        return tolerance_on(on, OPS[op], operands)

    assert used("matmul", 16) is tolerance_of("matmul")
    assert used("matmul", 17).units == tolerance_of("matmul").units + HALF_PRODUCT.units
    assert HALF_PRODUCT.cause in used("matmul", 17).cause
    assert used("rms_norm", 17) is tolerance_of("rms_norm")
    assert used("matmul", 17, Capabilities({}, (), ())) is tolerance_of("matmul")
    assert used("matmul", 17, weights="Q4_0").units == used("matmul", 17).units
    for beyond in ("F32", "BF16"):
        assert used("matmul", 17, weights=beyond) is tolerance_of("matmul")


def test_attention_in_float16_gets_its_own_class_over_cells_that_are_not_float32() -> None:
    declared = Capabilities({}, (), (), half_attention_from=17)

    def used(rows: int, cell_type: str, on: Capabilities = declared) -> Tolerance:
        operands = [TensorType((rows, 1, 32), F32, "token"), TensorType((9, 32), element_type(cell_type))]
        return tolerance_on(on, OPS["attention"], operands)

    assert used(16, "f16") is tolerance_of("attention") is used(17, "f32")
    assert used(17, "f16") is HALF_ATTENTION is used(17, "q8_0")
    assert used(17, "f16", Capabilities({}, (), ())) is tolerance_of("attention")


def test_bitwise_tells_zeros_and_infinities_apart_but_not_nans() -> None:
    same, want = held("add", np.array([0.0, np.nan, 1.0], np.float32), np.zeros(3, np.float32))
    payload = np.array([0.0, np.nan, 1.0], np.float32)
    payload.view(np.uint32)[1] ^= 1
    assert difference(same, want, payload) is None
    for wrong in ([-0.0, np.nan, 1.0], [0.0, 0.0, 1.0], [0.0, np.nan, np.nextafter(np.float32(1), np.float32(2))]):
        assert "bitwise: 1 of 3 elements differ" in str(difference(same, want, np.array(wrong, np.float32)))


def test_shape_and_dtype_must_agree() -> None:
    same, want = held("silu", floats(1, 2, 3))
    assert difference(same, want, want[:1]) == "got float32(1, 3), expected float32(2, 3)"
    assert "got float64" in str(difference(same, want, want.astype(np.float64)))


def naive_dot(x: Array, weight: Array) -> Array:
    """Left to right in float32."""
    out = np.zeros((len(x), len(weight)), np.float32)
    for k in range(x.shape[1]):
        out += x[:, k : k + 1] * weight[:, k]
    return out


@pytest.mark.parametrize("k", [1, 7, 512, 4096])
def test_a_dot_product_in_another_order_passes_and_a_lost_term_does_not(k: int) -> None:
    x, weight = floats(1, 3, k), floats(2, 5, k)
    same, want = held("matmul", x, weight)
    assert difference(same, want, naive_dot(x, weight)) is None
    assert difference(same, want, naive_dot(x[:, ::-1], weight[:, ::-1])) is None
    lost = naive_dot(x[:, 1:], weight[:, 1:])
    assert difference(same, want, lost) is not None
    half = (x.astype(np.float16).astype(np.float64) @ weight.T).astype(np.float32)
    assert difference(same, want, half) is not None


def test_cancellation_does_not_fail_a_dot_product() -> None:
    x = np.array([[1e6, 1.0, -1e6]], np.float32)
    weight = np.array([[1.0, 1e-3, 1.0]], np.float32)
    same, want = held("matmul", x, weight)
    assert want[0, 0] == np.float32(1e-3)
    assert difference(same, want, naive_dot(x, weight)) is None
    assert difference(same, want, want + np.float32(100)) is not None


def test_an_exponential_may_be_off_by_ulps_and_no_more() -> None:
    x = floats(3, 4, 64, scale=8)
    same, want = held("silu", x)
    assert difference(same, want, want * np.float32(1 + 2**-22)) is None
    assert difference(same, want, want * np.float32(1 + 2**-13)) is not None
    in_float32 = x / (1 + np.exp(-x))
    assert difference(same, want, in_float32) is None


def test_a_norm_summed_in_float32_passes_and_a_forgotten_eps_does_not() -> None:
    x, weight = floats(1, 2, 576, scale=1e-3), floats(2, 576)
    same, want = held("rms_norm", x, weight, eps=1e-5)
    mean = np.add.accumulate(x * x, axis=1)[:, -1:] / np.float32(576)
    assert difference(same, want, (x / np.sqrt(mean + np.float32(1e-5)) * weight).astype(np.float32)) is None
    assert difference(same, want, (x / np.sqrt(mean) * weight).astype(np.float32)) is not None


def test_attention_in_float32_passes_and_one_cell_too_many_does_not() -> None:
    q, k, v = floats(1, 1, 2, 16), floats(2, 40, 16), floats(3, 40, 16)
    at, window = np.array([0], np.int32), np.array([[0, 39]], np.int32)
    same, want = held("attention", q, k, v, at, window, n_kv_heads=1, scale=0.25)
    scores = (q[0] @ k[:39].T) * np.float32(0.25)
    weights = np.exp(scores - scores.max(1, keepdims=True))
    assert difference(same, want, ((weights / weights.sum(1, keepdims=True)) @ v[:39])[None]) is None
    wider = OPS["attention"].reference(same.attrs, q, k, v, at, np.array([[0, 40]], np.int32))
    assert difference(same, want, wider) is not None


def test_an_empty_window_must_be_exactly_zero() -> None:
    q, k = floats(1, 1, 1, 4), floats(2, 3, 4)
    same, want = held(
        "attention", q, k, k, np.array([0], np.int32), np.array([[1, 1]], np.int32), n_kv_heads=1, scale=1.0
    )
    assert difference(same, want, np.zeros((1, 1, 4), np.float32)) is None
    assert difference(same, want, np.full((1, 1, 4), 1e-9, np.float32)) is not None


def test_a_rotation_is_held_to_the_size_of_its_pair() -> None:
    x, at = floats(1, 2, 1, 8), np.array([3, 500], np.int32)
    same, want = held("rope", x, at, pairs="neox", dims=8, base=1e4, max_positions=512)
    assert difference(same, want, want + np.float32(2**-23)) is None
    assert difference(same, want, want + np.float32(1e-4)) is not None
    late = OPS["rope"].reference(same.attrs, x, at + 1)
    assert difference(same, want, late) is not None


def quantized() -> tuple[Held, Array]:
    x, weight = floats(1, 3, 320), np.ones(320, np.float32)
    same, want = held("rms_norm_quantize", x, weight, eps=1e-5, dtype="Q8A32")
    return same, Q8A32.encode(want)


def nudged(data: Array, count: int, by: int) -> Array:
    """Some quants moved by `by`, and the sums made to fit."""
    out = data.copy()
    planes = Q8A32.planes(out)
    small = np.abs(planes.quants) < 120
    where = np.argwhere(small)[:count]
    planes.quants[tuple(where.T)] += np.int8(by)
    planes.sums[...] = Q8A32.sums_of(planes.quants)
    return out


def test_a_few_quants_may_fall_on_the_other_side_of_a_border() -> None:
    same, want = quantized()
    assert difference(same, want, want) is None
    assert difference(same, want, nudged(want, 10, 1)) is None
    assert "8-bit-activation" in str(difference(same, want, nudged(want, 1, 2)))
    assert "8-bit-activation: 60 of" in str(difference(same, want, nudged(want, 60, 1)))


def test_sums_must_add_up_and_scales_may_differ_by_ulps_only() -> None:
    same, want = quantized()
    wrong = want.copy()
    Q8A32.planes(wrong).sums[0, 0] += 1
    assert difference(same, want, wrong) == "8-bit-activation: the sums plane doesn't add up the quants"
    scaled = want.copy()
    planes = Q8A32.planes(scaled)
    planes.scales[...] = np.nextafter(planes.scales, np.float32(1))
    planes.sums[...] = Q8A32.sums_of(planes.quants)
    assert difference(same, want, scaled) is None
    planes.scales[...] *= np.float32(1.001)
    planes.sums[...] = Q8A32.sums_of(planes.quants)
    assert difference(same, want, scaled) is not None


def test_a_block_of_nan_equals_itself_and_hides_nothing_beside_it() -> None:
    x = floats(1, 3, 320)
    x[1, 40] = np.nan
    same, numbers = held("rms_norm_quantize", x, np.ones(320, np.float32), eps=1e-5, dtype="Q8A32")
    assert np.isnan(numbers[1]).all()
    want = Q8A32.encode(numbers)
    assert difference(same, want, want.copy()) is None
    assert difference(same, want, nudged(want, 10, 1)) is None
    wrong = want.copy()
    Q8A32.planes(wrong).sums[1, 1] = 1
    assert difference(same, want, wrong) == "8-bit-activation: the sums plane doesn't add up the quants"
    found = want.copy()
    Q8A32.planes(found).scales[1, 0] = 1
    assert "8-bit-activation: 32 of 960 elements differ, first at (1, 0)" in str(difference(same, want, found))


def test_equal_bytes_never_differ() -> None:
    values = np.array([[np.nan, np.inf, -np.inf, 3e38, 1e-45, -0.0, 0.0, 1.0]], np.float32)
    same, _ = held("silu", np.ones((1, 8), np.float32))
    for used in CLASSES:
        assert difference(same, values, values.copy(), used) is None, used.name
    bytes_alike, want = quantized()
    assert difference(bytes_alike, ~want, (~want).copy()) is None


def test_a_given_class_takes_the_place_of_the_ops_own() -> None:
    same, want = held("silu", floats(1, 1, 8))
    other = want * np.float32(1 + 2**-22)
    assert difference(same, want, other) is None
    assert difference(same, want, other, BITWISE) is not None
