"""Elementwise kernels, norms, softmax, copies and the KV store: against float64, and the same bits however they run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lane_oracle
import numpy as np
import pytest
from cpu_harness import BEST, VARIANTS, Array, Runner, gaps_untouched, guarded, strided_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from minfer_ir.formats import Q8_0_CELL
from minfer_ir.testing.tolerances import EXPONENTIAL, REDUCTION
from minfer_kernels.cpu.compiler.features import Isa

Cpu = Mapping[Isa, Runner]
WIDTHS = [1, 7, 8, 13, 64, 511, 512, 513, 1031]
EPS = float(np.float32(1e-5))


def draw(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def bucket(n: int) -> Array:
    return guarded(np.array([n], np.int32))


def run_rows(runner: Runner, kernel: str, n_threads: int, inputs: Mapping[str, Array], out: Array, **rest: Any) -> None:
    strides = {f"{name}_stride": a.strides[0] if a.ndim > 1 else 0 for name, a in inputs.items()}
    strides |= {"out_stride": out.strides[0]}
    runner.run(kernel, n_threads, out=out, rows_at=bucket(len(out)), **inputs, **strides, **rest)


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x.astype(np.float64)))


ELEMENTWISE = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "swiglu": lambda x, y: silu(x) * y,
}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_binary(cpu: Cpu, name: str, width: int) -> None:
    x, y = strided_rows(draw(1, 3, width), 5), strided_rows(draw(2, 3, width), 2)
    outs = []
    for isa, n in VARIANTS:
        out = strided_rows(np.zeros((3, width), np.float32), 3)
        run_rows(cpu[isa], f"elementwise.{name}", n, {"x": x, "y": y}, out, width=width)
        assert gaps_untouched(out)
        outs.append(out.copy())
    expected = ELEMENTWISE[name](x, y)
    if name == "swiglu":
        np.testing.assert_allclose(outs[0], expected, rtol=EXPONENTIAL.relative(0), atol=1e-37)
    else:
        np.testing.assert_array_equal(outs[0], expected)
    assert all(o.tobytes() == outs[0].tobytes() for o in outs)


@pytest.mark.parametrize("width", [1, 17, 520])
def test_one_row_of_y_serves_every_row_and_x_may_be_the_output(cpu: Cpu, width: int) -> None:
    x, y = guarded(draw(3, 4, width)), guarded(draw(4, width))
    expected = x + y
    run_rows(cpu[BEST], "elementwise.add", 2, {"x": x, "y": y}, x, width=width)
    np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize("width", WIDTHS)
def test_silu_and_scale(cpu: Cpu, width: int) -> None:
    x = guarded(10 * draw(5, 2, width))
    outs: dict[str, list[Array]] = {"silu": [], "scale": []}
    for isa, n in VARIANTS:
        for name, rest in (("silu", {}), ("scale", {"factor": 0.1})):
            out = guarded(np.zeros_like(x))
            run_rows(cpu[isa], f"elementwise.{name}", n, {"x": x}, out, width=width, **rest)
            outs[name].append(out)
    np.testing.assert_allclose(outs["silu"][0], silu(x), rtol=EXPONENTIAL.relative(0))
    np.testing.assert_array_equal(outs["scale"][0], x * np.float32(0.1))
    assert all(o.tobytes() == runs[0].tobytes() for runs in outs.values() for o in runs)


def test_silu_keeps_infinities_nans_and_signs(cpu: Cpu) -> None:
    x = guarded(np.array([[np.inf, -np.inf, np.nan, 0.0, -0.0, -200.0, 200.0, 1e-40, -88.0]], np.float32))
    out = guarded(np.zeros_like(x))
    run_rows(cpu[BEST], "elementwise.silu", 1, {"x": x}, out, width=x.shape[1])
    assert out[0, 0] == np.inf and np.isnan(out[0, 1:3]).all()
    assert out[0, 3:7].tolist() == [0.0, 0.0, 0.0, 200.0] and np.signbit(out[0, 4:6]).all()
    np.testing.assert_allclose(out[0, 7:], silu(x[0, 7:]), rtol=EXPONENTIAL.relative(0), atol=2e-45)


def test_rows_past_the_actual_ones_are_left_alone(cpu: Cpu) -> None:
    x = draw(6, 8, 24)
    out = guarded(np.full_like(x, 7))
    for actual in (0, 3):
        cpu[BEST].run(
            "elementwise.add", 3, x=x, y=x, out=out, rows_at=bucket(actual), width=24,
            x_stride=96, y_stride=96, out_stride=96,
        )  # fmt: skip
        assert (out[actual:] == 7).all()
    np.testing.assert_array_equal(out[:3], 2 * x[:3])


def exact_norm(x: Array, weight: Array, eps: float = EPS) -> Array:
    wide = x.astype(np.float64)
    return wide / np.sqrt((wide * wide).mean(axis=-1, keepdims=True) + eps) * weight


@pytest.mark.parametrize("width", [*WIDTHS, 32, 95, 4096])
def test_rms_norm_and_its_fusion_with_add(cpu: Cpu, width: int) -> None:
    x, y, weight = strided_rows(draw(7, 3, width), 4), strided_rows(draw(8, 3, width), 1), guarded(draw(9, width))
    normed, fused, totals = [], [], []
    for isa, n in VARIANTS:
        added, out = guarded(np.zeros((3, width), np.float32)), strided_rows(np.zeros((3, width), np.float32), 2)
        total, out_fused = strided_rows(np.zeros((3, width), np.float32), 6), guarded(np.zeros((3, width), np.float32))
        run_rows(cpu[isa], "elementwise.add", n, {"x": x, "y": y}, added, width=width)
        cpu[isa].run(
            "norm.rms_norm", n, x=added, weight=weight, out=out, rows_at=bucket(3), width=width,
            x_stride=added.strides[0], out_stride=out.strides[0], eps=EPS,
        )  # fmt: skip
        cpu[isa].run(
            "norm.add_rms_norm", n, x=x, y=y, weight=weight, total=total, out=out_fused, rows_at=bucket(3), width=width,
            x_stride=x.strides[0], y_stride=y.strides[0], total_stride=total.strides[0],
            out_stride=out_fused.strides[0], eps=EPS,
        )  # fmt: skip
        assert gaps_untouched(out) and gaps_untouched(total)
        normed.append(out.tobytes())
        fused.append(out_fused.tobytes())
        totals.append(total.tobytes())
        np.testing.assert_allclose(out, exact_norm(x + y, weight), rtol=REDUCTION.relative(x.shape[1]))
        np.testing.assert_array_equal(total, x + y)
    assert set(normed) == set(fused) == {normed[0]}
    assert len(set(totals)) == 1


@pytest.mark.parametrize(("heads", "dim"), [(1, 1), (3, 5), (4, 64), (2, 100)])
def test_qk_norm_is_rms_norm_of_every_head(cpu: Cpu, heads: int, dim: int) -> None:
    x, weight = strided_rows(draw(10, 4, heads, dim), 7), guarded(draw(11, dim))
    outs = []
    for isa, n in VARIANTS:
        out = strided_rows(np.zeros((4, heads, dim), np.float32), 1)
        cpu[isa].run(
            "norm.qk_norm", n, x=x, weight=weight, out=out, rows_at=bucket(4), n_heads=heads, head_dim=dim,
            x_stride=x.strides[0], x_head_stride=4 * dim, out_stride=out.strides[0], out_head_stride=4 * dim, eps=EPS,
        )  # fmt: skip
        outs.append(out.tobytes())
        np.testing.assert_allclose(out, exact_norm(x, weight), rtol=REDUCTION.relative(x.shape[1]))
    heads_alone, rows = guarded(x.reshape(-1, dim)), guarded(np.zeros((4 * heads, dim), np.float32))
    cpu[BEST].run(
        "norm.rms_norm", x=heads_alone, weight=weight, out=rows, rows_at=bucket(4 * heads), width=dim,
        x_stride=4 * dim, out_stride=4 * dim, eps=EPS,
    )  # fmt: skip
    assert set(outs) == {rows.tobytes()}


@pytest.mark.parametrize("width", WIDTHS)
def test_softmax(cpu: Cpu, width: int) -> None:
    x = strided_rows(4 * draw(12, 3, width), 3)
    outs = []
    for isa, n in VARIANTS:
        out = strided_rows(np.zeros((3, width), np.float32), 5)
        run_rows(cpu[isa], "softmax.softmax", n, {"x": x}, out, width=width)
        assert gaps_untouched(out)
        outs.append(out.copy())
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(outs[0], e / e.sum(axis=1, keepdims=True), rtol=EXPONENTIAL.relative(x.shape[1]))
    assert all(o.tobytes() == outs[0].tobytes() for o in outs)


def test_softmax_gives_masked_elements_exactly_nothing(cpu: Cpu) -> None:
    x = guarded(np.array([[-np.inf, 0.0, -np.inf, 0.0, -np.inf]], np.float32))
    run_rows(cpu[BEST], "softmax.softmax", 1, {"x": x}, x, width=5)
    assert x.tolist() == [[0.0, 0.5, 0.0, 0.5, 0.0]]


@pytest.mark.parametrize("width", [*WIDTHS, 31, 33, 47, 100])
def test_reductions_follow_their_documented_order_bit_by_bit(cpu: Cpu, width: int) -> None:
    x, weight = guarded(3 * draw(18, 2, width)), guarded(draw(19, width))
    normed, weights = guarded(np.zeros_like(x)), guarded(np.zeros_like(x))
    strides = {"width": width, "x_stride": 4 * width, "out_stride": 4 * width, "rows_at": bucket(2)}
    cpu[BEST].run("norm.rms_norm", x=x, weight=weight, out=normed, eps=EPS, **strides)
    cpu[BEST].run("softmax.softmax", x=x, out=weights, **strides)
    for row in range(2):
        assert normed[row].tobytes() == lane_oracle.rms_norm(x[row], weight, EPS).tobytes()
        assert weights[row].tobytes() == lane_oracle.softmax(x[row]).tobytes()


@settings(max_examples=30, deadline=None)
@given(rows=st.integers(1, 40), width=st.integers(1, 1100), row=st.integers(0, 39))
def test_rows_alone_equal_rows_together(cpu: Cpu, rows: int, width: int, row: int) -> None:
    x, weight = draw(rows, rows, width), draw(14, width)
    row %= rows
    for kernel, rest in (
        ("norm.rms_norm", {"weight": weight, "eps": EPS}),
        ("softmax.softmax", {}),
        ("elementwise.silu", {}),
    ):
        together, alone = guarded(np.zeros_like(x)), guarded(np.zeros((1, width), np.float32))
        run = cpu[BEST].run
        strides = {"width": width, "x_stride": 4 * width, "out_stride": 4 * width}
        run(kernel, 2, x=guarded(x), out=together, rows_at=bucket(rows), **strides, **rest)
        run(kernel, 1, x=guarded(x[row]), out=alone, rows_at=bucket(1), **strides, **rest)
        assert alone.tobytes() == together[row].tobytes(), kernel


@pytest.mark.parametrize("width", WIDTHS)
def test_copy_rows(cpu: Cpu, width: int) -> None:
    x = strided_rows(draw(15, 5, width), 9)
    for isa, n in VARIANTS:
        out = guarded(np.zeros((5, width), np.float32))
        run_rows(cpu[isa], "copy.rows", n, {"x": x}, out, width=width)
        assert out.tobytes() == x.tobytes()


@pytest.mark.parametrize("axes", [(0, 1, 2, 3), (0, 2, 1, 3), (0, 3, 2, 1), (0, 3, 1, 2)])
def test_copy_of_a_permuted_view(cpu: Cpu, axes: tuple[int, ...]) -> None:
    view = np.transpose(guarded(draw(16, 3, 2, 5, 7)), axes)
    out = guarded(np.zeros(view.shape, np.float32))
    cpu[BEST].run(
        "copy.strided", 2, x=view, out=out, rows_at=bucket(3), n1=view.shape[1], n2=view.shape[2], n3=view.shape[3],
        x_stride=view.strides[0], stride1=view.strides[1], stride2=view.strides[2], stride3=view.strides[3],
    )  # fmt: skip
    np.testing.assert_array_equal(out, view)


@pytest.mark.parametrize("cell_type", ["f32", "f16"])
@pytest.mark.parametrize("width", [1, 8, 15, 192])
def test_kv_store_fills_its_cells_and_no_others(cpu: Cpu, width: int, cell_type: str) -> None:
    values, cells = strided_rows(100 * draw(17, 4, width), 3), np.array([8, 0, 5, 3], np.int32)
    values[0, 0], values[1, 0] = 1e6, np.nan
    storage: Any = {"f32": np.float32, "f16": np.float16}[cell_type]
    for isa, n in VARIANTS:
        region = guarded(np.full((9, width), 3, storage))
        cpu[isa].run(
            f"kv_store.rows[{cell_type}]", n, values=values, region=region, cells=guarded(cells), rows_at=bucket(4),
            width=width, values_stride=values.strides[0], cell_bytes=region.strides[0],
        )  # fmt: skip
        expected = np.full((9, width), 3, storage)
        with np.errstate(over="ignore"):
            expected[cells] = values.astype(storage)
        assert region.tobytes() == expected.tobytes()


@pytest.mark.parametrize("width", [32, 96, 192])
def test_kv_store_packs_cells_to_the_bits_of_their_format(cpu: Cpu, width: int) -> None:
    values, cells = strided_rows(100 * draw(18, 7, width), 3), np.array([8, 0, 5, 3, 1, 7, 2], np.int32)
    values[0, 0], values[1, 1], values[2, 2], values[3, :32] = np.inf, np.nan, 8.4e6, 0
    values[4] *= 1e-40
    values[5, :32] = [127, *(n / 2 for n in range(1, 63, 2))]
    values[6, :32] = np.float32(65519.996) * np.float32(127)
    for isa, n in VARIANTS:
        region = guarded(np.full((9, Q8_0_CELL.row_bytes(width)), 3, np.uint8))
        cpu[isa].run(
            "kv_store.rows[q8_0]", n, values=values, region=region, cells=guarded(cells), rows_at=bucket(7),
            width=width, values_stride=values.strides[0], cell_bytes=region.strides[0],
        )  # fmt: skip
        used = width + width // 16
        expected = np.full((9, used), 3, np.uint8)
        expected[cells] = Q8_0_CELL.encode(np.ascontiguousarray(values))[:, :used]
        assert region[:, :used].tobytes() == expected.tobytes()
        assert (region[:, used:] == 3).all()
