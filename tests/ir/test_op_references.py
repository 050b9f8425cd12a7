"""The numpy references of the ops against torch and transformers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, dequantize
from ir_builders import floats, reference
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from minfer_ir.formats import FORMATS, Q8A32, Q8A256, WEIGHT_FORMATS
from minfer_ir.ops import OPS

WIDTHS = (1, 2, 7, 31, 64, 257)


def close(ours: np.ndarray, theirs: torch.Tensor, relative: float = 2e-6) -> None:
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, theirs.to(torch.float32).numpy(), rtol=relative, atol=1e-30)


@pytest.mark.parametrize("n", WIDTHS)
def test_add_and_mul_broadcast_a_row_as_torch_does(n: int) -> None:
    x, y, row = floats(1, 3, n), floats(2, 3, n), floats(3, n)
    for op, ours in (("add", torch.add), ("mul", torch.mul)):
        for other in (y, row):
            assert np.array_equal(reference(op, x, other), ours(torch.tensor(x), torch.tensor(other)).numpy())


def test_scale_rounds_its_factor_to_float32_before_the_product() -> None:
    x = floats(1, 3, 500)
    ours = reference("scale", x, factor=0.1)
    assert np.array_equal(ours, (torch.tensor(x) * torch.tensor(0.1)).numpy())
    assert not np.array_equal(ours, (x.astype(np.float64) * 0.1).astype(np.float32)), "the control rounds once"


@pytest.mark.parametrize("n", WIDTHS)
def test_silu_matches_torch_in_float64(n: int) -> None:
    x = floats(4, 2, n, scale=20.0)
    close(reference("silu", x), torch.nn.functional.silu(torch.tensor(x, dtype=torch.float64)))


def test_silu_stays_finite_where_exp_overflows() -> None:
    x = np.array([[-1e4, -800.0, 0.0, 800.0, 1e4]], np.float32)
    assert np.array_equal(reference("silu", x), np.array([[0, 0, 0, 800, 1e4]], np.float32))


@pytest.mark.parametrize("n", WIDTHS)
def test_softmax_matches_torch(n: int) -> None:
    x = floats(5, 3, n, scale=30.0) + np.float32(1000)
    theirs = torch.softmax(torch.tensor(x, dtype=torch.float64), dim=-1)
    np.testing.assert_allclose(reference("softmax", x), theirs.numpy(), rtol=1e-6, atol=1e-38)


@pytest.mark.parametrize("n", WIDTHS)
@pytest.mark.parametrize("op", ["rms_norm", "qk_norm"])
def test_norms_match_transformers_over_the_last_axis(op: str, n: int) -> None:
    x, weight = floats(6, 3, 2, n) * 5, floats(7, n)
    theirs = LlamaRMSNorm(n, eps=1e-5)
    theirs.weight.data = torch.tensor(weight)
    with torch.no_grad():
        expected = theirs(torch.tensor(x)).numpy()
    np.testing.assert_allclose(reference(op, x, weight, eps=1e-5), expected, rtol=1e-5, atol=1e-7)


def test_norm_of_zeros_is_zero_and_eps_is_under_the_root() -> None:
    zeros = np.zeros((1, 4), np.float32)
    assert np.array_equal(reference("rms_norm", zeros, np.ones(4, np.float32), eps=1e-5), zeros)
    tiny = np.full((1, 4), 1e-3, np.float32)
    expected = torch.nn.functional.rms_norm(torch.tensor(tiny), (4,), eps=1e-2).numpy()
    np.testing.assert_allclose(reference("rms_norm", tiny, np.ones(4, np.float32), eps=1e-2), expected, rtol=1e-6)


@pytest.mark.parametrize("name", WEIGHT_FORMATS)
def test_matmul_is_linear_over_weights_that_gguf_decodes(name: str) -> None:
    fmt, k = FORMATS[name], 512
    data = fmt.draw(np.random.default_rng(8), 5, k)
    theirs = dequantize(
        data.view({"F32": np.float32, "F16": np.float16}.get(name, np.uint8)), GGMLQuantizationType[name]
    )
    x = floats(9, 3, k)
    expected = torch.nn.functional.linear(
        torch.tensor(x, dtype=torch.float64), torch.tensor(theirs, dtype=torch.float64)
    )
    np.testing.assert_allclose(reference("matmul", x, fmt.decode(data)), expected.numpy(), rtol=1e-6, atol=1e-7)


def test_matmul_beyond_the_float64_limit_still_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight = floats(1, 3, 64), floats(2, 5, 64)
    wide = reference("matmul", x, weight)
    monkeypatch.setattr("minfer_ir.ops.linear.FLOAT64_PRODUCTS", 0)
    narrow = reference("matmul", x, weight)
    np.testing.assert_allclose(narrow, wide, rtol=1e-4, atol=1e-5)


def test_get_rows_picks_rows_and_repeats_them() -> None:
    table, ids = floats(3, 6, 4), np.array([5, 0, 0, 3], np.int32)
    expected = torch.nn.functional.embedding(torch.tensor(ids), torch.tensor(table)).numpy()
    assert np.array_equal(reference("get_rows", table, ids), expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_kv_store_writes_only_its_cells_and_rounds_to_nearest_even(dtype: type) -> None:
    region = np.full((6, 3), 7, dtype)
    values = np.array([[1 + 2**-11, 1 + 3 * 2**-11, -2.0], [65504.0, 1e-8, 0.5]], np.float32)
    out = reference("kv_store", region, values, np.array([4, 1], np.int32))
    assert out is region
    expected = torch.full((6, 3), 7.0, dtype={np.float32: torch.float32, np.float16: torch.float16}[dtype])
    expected[torch.tensor([4, 1])] = torch.tensor(values).to(expected.dtype)
    assert np.array_equal(region, expected.numpy())


@pytest.mark.parametrize("fmt", [Q8A32, Q8A256])
def test_quantize_act_leaves_rounding_to_the_format(fmt: object) -> None:
    x = floats(4, 2, 512)
    stored = fmt.encode(reference("quantize_act", x, dtype=fmt))  # type: ignore[attr-defined]
    scales = np.abs(x).reshape(2, -1, fmt.block_size).max(-1) / 127  # type: ignore[attr-defined]
    error = np.abs(fmt.decode(stored) - x).reshape(2, -1, fmt.block_size)  # type: ignore[attr-defined]
    assert (error <= scales[..., None] * 0.5001).all() and (error > 0).any()


def test_every_computed_op_has_cases_and_their_labels_are_unique() -> None:
    for op in OPS.values():
        labels = [case.label for case in op.cases()]
        assert len(labels) == len(set(labels)), op.name
        assert bool(labels) == (op.effect != "leaf"), op.name
