"""RoPE: rotation and frequency scaling against transformers."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
import torch
from ir_builders import floats, reference
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from minfer_ir.ops import OPS
from minfer_ir.ops.rope import CHUNK_ROWS, RopeAttrs, RopeScaling, rope_frequencies, rope_table
from minfer_ir.opspec import OpError, attrs_from_json

POSITIONS = np.array([0, 1, 77, 8191, 20000], np.int32)


def their_frequencies(
    dims: int, base: float, parameters: dict[str, object], context: int = 8192
) -> tuple[np.ndarray, float]:
    kind = str(parameters["rope_type"])
    config = LlamaConfig(
        head_dim=dims,
        hidden_size=dims * 2,
        num_attention_heads=2,
        max_position_embeddings=8192,
        rope_parameters={"rope_theta": base, **parameters},
    )
    frequencies, amplitude = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))
    return frequencies.numpy(), amplitude


def attrs(dims: int, base: float, scaling: RopeScaling, pairs: str = "neox") -> RopeAttrs:
    return RopeAttrs(pairs, dims, base, 1 << 16, scaling)  # type: ignore[arg-type]


CONFIGS = [
    (64, 1e4, RopeScaling("linear", 4.0), {"rope_type": "linear", "factor": 4.0}),
    (64, 5e5, RopeScaling("llama3", 32.0, 8192), {
        "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192}),
    (128, 5e5, RopeScaling("llama3", 8.0, 4096, low_frequency_factor=2.0, high_frequency_factor=3.0), {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 2.0, "high_freq_factor": 3.0,
        "original_max_position_embeddings": 4096}),
    (128, 1e6, RopeScaling("yarn", 4.0, 32768), {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}),
    (64, 1e4, RopeScaling("yarn", 16.0, 2048, beta_fast=16.0, beta_slow=2.0), {
        "rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 2048, "beta_fast": 16.0,
        "beta_slow": 2.0}),
]  # fmt: skip


@pytest.mark.parametrize(("dims", "base", "scaling", "theirs"), CONFIGS, ids=lambda v: getattr(v, "kind", ""))
def test_scaled_frequencies_and_amplitude_match_transformers(
    dims: int, base: float, scaling: RopeScaling, theirs: dict[str, object]
) -> None:
    frequencies, amplitude = rope_frequencies(attrs(dims, base, scaling))
    expected, their_amplitude = their_frequencies(dims, base, theirs)
    np.testing.assert_allclose(frequencies, expected, rtol=1e-5)
    assert amplitude == pytest.approx(their_amplitude, rel=1e-6)


def test_llama3_scaling_keeps_blends_and_divides_the_right_dims() -> None:
    plain, _ = rope_frequencies(attrs(64, 5e5, RopeScaling()))
    scaled, _ = rope_frequencies(attrs(64, 5e5, RopeScaling("llama3", 32.0, 8192)))
    ratio = plain / scaled
    assert np.array_equal(ratio[:15], np.ones(15))
    assert ((ratio[15:18] > 1.0) & (ratio[15:18] < 32.0)).all()
    np.testing.assert_allclose(ratio[18:], 32.0, rtol=1e-12)


def test_yarn_amplitude_multiplies_both_parts_of_the_pair() -> None:
    scaling = RopeScaling("yarn", 4.0, 64, attention_factor=0.5)
    table = rope_table(RopeAttrs("neox", 8, 1e4, 10, scaling))
    expected = 0.5 * (1 + 0.1 * math.log(4.0))
    np.testing.assert_allclose(np.hypot(table[:, 0], table[:, 1]), expected, rtol=1e-6)


@pytest.mark.parametrize("kind", ["none", "llama3", "yarn"])
@pytest.mark.parametrize("head_dim", [2, 64, 128])
def test_neox_rotation_matches_transformers_at_far_positions(kind: str, head_dim: int) -> None:
    scaling = RopeScaling() if kind == "none" else RopeScaling(kind, 8.0, 4096)  # type: ignore[arg-type]
    given = attrs(head_dim, 1e4, scaling)
    x = floats(1, len(POSITIONS), 3, head_dim)
    frequencies, amplitude = rope_frequencies(given)
    angles = torch.tensor(POSITIONS.astype(np.float64)[:, None] * frequencies)
    angles = torch.cat([angles, angles], dim=-1)
    q = torch.tensor(x, dtype=torch.float64).transpose(0, 1)[None]
    expected, _ = apply_rotary_pos_emb(q, q, (angles.cos() * amplitude)[None], (angles.sin() * amplitude)[None])
    ours = OPS["rope"].reference(given, x, POSITIONS)
    np.testing.assert_allclose(ours, expected[0].transpose(0, 1).numpy(), rtol=2e-6, atol=1e-6)


def test_interleaved_is_neox_on_permuted_elements() -> None:
    x = floats(2, len(POSITIONS), 2, 12)
    order = [0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11]
    settings = {"dims": 12, "base": 1e4, "max_positions": 1 << 16}
    neox = reference("rope", x[..., order], POSITIONS, pairs="neox", **settings)
    interleaved = reference("rope", x, POSITIONS, pairs="interleaved", **settings)
    assert np.array_equal(interleaved[..., order], neox)


@pytest.mark.parametrize("pairs", ["neox", "interleaved"])
def test_partial_rotation_passes_the_rest_through(pairs: str) -> None:
    x = floats(3, 2, 2, 10)
    positions = np.array([3, 9], np.int32)
    out = reference("rope", x, positions, pairs=pairs, dims=6, base=1e4, max_positions=16)
    alone = reference("rope", x[..., :6].copy(), positions, pairs=pairs, dims=6, base=1e4, max_positions=16)
    assert np.array_equal(out[..., 6:], x[..., 6:])
    assert np.array_equal(out[..., :6], alone)
    assert not np.array_equal(out[..., :6], x[..., :6])


def test_frequency_factors_divide_the_frequencies() -> None:
    given = attrs(8, 1e4, RopeScaling())
    factors = np.array([1, 2, 4, 0.5], np.float32)
    plain, _ = rope_frequencies(given)
    np.testing.assert_allclose(rope_frequencies(given, factors)[0], plain / factors, rtol=1e-12)


def test_table_holds_what_the_rotation_uses() -> None:
    given = attrs(8, 1e4, RopeScaling())
    table = rope_table(RopeAttrs("neox", 8, 1e4, 20))
    x = np.zeros((3, 1, 8), np.float32)
    x[..., :4] = 1
    positions = np.array([0, 7, 19], np.int32)
    out = OPS["rope"].reference(given, x, positions)[:, 0]
    np.testing.assert_allclose(out[:, :4], table[positions, 0], rtol=1e-6)
    np.testing.assert_allclose(out[:, 4:], table[positions, 1], rtol=1e-6)


@pytest.mark.parametrize("positions", [1, CHUNK_ROWS - 1, CHUNK_ROWS, CHUNK_ROWS + 1, 3 * CHUNK_ROWS + 7])
@pytest.mark.parametrize("dims", [2, 10, 64])
def test_a_table_made_in_chunks_has_the_bits_of_one_made_at_once(positions: int, dims: int) -> None:
    given = RopeAttrs("neox", dims, 1e4, positions, RopeScaling("yarn", 4.0, 64, attention_factor=0.7))
    frequencies, amplitude = rope_frequencies(given)
    angles = np.arange(positions, dtype=np.float64)[:, None] * frequencies
    whole = (np.stack([np.cos(angles), np.sin(angles)], axis=1) * amplitude).astype(np.float32)
    table = rope_table(given)
    assert table.tobytes() == whole.tobytes()
    assert (table.shape, table.dtype, table.flags.c_contiguous) == (whole.shape, whole.dtype, True)


def test_a_large_table_needs_little_more_than_itself() -> None:
    tracemalloc.start()
    table = rope_table(RopeAttrs("neox", 256, 1e4, 32 * CHUNK_ROWS))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.5 * table.nbytes


@pytest.mark.parametrize("make", [rope_frequencies, rope_table])
@pytest.mark.parametrize("value", [0.0, -0.0, -1.0, math.nan, math.inf, -math.inf])
def test_a_frequency_factor_that_is_no_positive_number_is_named(make: Callable[..., object], value: float) -> None:
    factors = np.array([1, 2, value, 0], np.float32)
    with pytest.raises(OpError) as caught:
        make(RopeAttrs("neox", 8, 1e4, 20), factors)
    assert str(caught.value) == f"rope: frequency factor 2 is {np.float32(value)}, expected a positive number"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            RopeAttrs("neox", 8, 1e4, 20, RopeScaling("linear", 1e-320)),
            "the frequency of pair 0 is inf, beyond float32",
        ),
        (RopeAttrs("neox", 8, 1e4, 20, RopeScaling("linear", 1e-39)), "the frequency of pair 0 is 1e+39"),
        (RopeAttrs("neox", 8, 1e-60, 20), "the frequency of pair 3 is 1e+45"),
        (RopeAttrs("neox", 8, 1.0, 20, RopeScaling("yarn", 4.0, 64)), "yarn scaling needs a base above 1, got 1.0"),
        (RopeAttrs("neox", 8, 1e4, 20, RopeScaling("yarn", 1e-320, 64)), "the frequency of pair"),
        (
            RopeAttrs("neox", 8, 1e4, 20, RopeScaling("yarn", 4.0, 64, attention_factor=1e38)),
            "the amplitude is 1.13863e+38, its square beyond float32",
        ),
        (RopeAttrs("neox", 8, 1e4, 20, RopeScaling("yarn", 4.0, 64, attention_factor=0.0)), "the amplitude is 0"),
        (
            RopeAttrs("neox", 8, 1e4, 20, RopeScaling("yarn", 4.0, 64, attention_factor=math.nan)),
            "the amplitude is nan",
        ),
    ],
)
def test_angles_that_float32_cannot_hold_are_refused(given: RopeAttrs, message: str) -> None:
    for make in (rope_frequencies, rope_table):
        with pytest.raises(OpError) as caught:
            make(given)
        assert str(caught.value).startswith("rope: ")
        assert message in str(caught.value)


def test_a_tiny_factor_is_refused_for_the_frequency_it_makes() -> None:
    factors = np.array([1, 1, 1e-40, 1], np.float32)
    with pytest.raises(OpError, match=r"the frequency of pair 2 is 8\.16\d*e\+39, beyond float32"):
        rope_table(RopeAttrs("neox", 8, 1.5, 20), factors)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"dims": 5}, "dims is 5, expected an even number up to the head dim 8"),
        ({"dims": 10}, "dims is 10"),
        ({"dims": 0}, "dims is 0"),
        ({"base": 0.0}, "base must be above 0"),
        ({"base": math.nan}, "base must be above 0"),
        ({"base": math.inf}, "base must be above 0"),
        ({"max_positions": 0}, "max_positions at least 1"),
        ({"pairs": "norm"}, "pairs: expected one of 'neox', 'interleaved', got 'norm'"),
        ({"scaling": {"kind": "dynamic"}}, "scaling.kind: expected one of"),
        ({"scaling": {"kind": "yarn", "factor": 4.0}}, "yarn scaling needs factor > 0 and original_context > 0"),
        ({"scaling": {"kind": "linear", "factor": 0.0}}, "linear scaling needs factor > 0"),
        ({"scaling": {"kind": "linear", "factor": math.nan}}, "linear scaling needs factor > 0"),
        (
            {"scaling": {"kind": "yarn", "factor": 4.0, "original_context": 64, "beta_slow": 0.0}},
            "yarn scaling needs beta_fast > 0 and beta_slow > 0",
        ),
    ],
)
def test_bad_attrs_are_refused_with_their_values(changed: dict[str, object], message: str) -> None:
    from minfer_ir.dtypes import F32, I32
    from minfer_ir.types import TensorType

    rope = OPS["rope"]
    values = {"pairs": "neox", "dims": 8, "base": 1e4, "max_positions": 8} | changed
    with pytest.raises(OpError) as caught:
        rope.check(attrs_from_json(rope, values), [TensorType((2, 1, 8), F32, "token"), TensorType((2,), I32, "token")])
    assert message in str(caught.value)
