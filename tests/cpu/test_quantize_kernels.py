"""8-bit activations: bit-equal to the numpy formats, and fused kernels bit-equal to what they stand for."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from cpu_harness import BEST, VARIANTS, Array, Runner, guarded, strided_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from minfer_ir.formats.activation import Q8A32, Q8A256
from minfer_kernels.cpu.compiler.features import Isa

Cpu = Mapping[Isa, Runner]
FORMATS = {32: Q8A32, 256: Q8A256}
EPS = float(np.float32(1e-6))


def bucket(n: int) -> Array:
    return guarded(np.array([n], np.int32))


def empty_rows(block: int, rows: int, width: int) -> Array:
    return guarded(np.full((rows, FORMATS[block].row_bytes(width)), 170, np.uint8))


def quantize(runner: Runner, block: int, x: Array, n_threads: int = 1) -> Array:
    rows, width = x.shape
    out = empty_rows(block, rows, width)
    runner.run(
        f"quantize.rows[{block}]", n_threads, x=x, out=out, rows_at=bucket(rows), width=width,
        x_stride=x.strides[0], out_stride=out.strides[0],
    )  # fmt: skip
    return out


def awkward(seed: int, rows: int, width: int) -> Array:
    """Blocks of many magnitudes: ties at halves, zeros, subnormals, the largest floats, NaN and infinities."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, width), dtype=np.float32)
    x *= np.float32(10.0) ** rng.integers(-45, 38, (rows, width // 32)).astype(np.float32).repeat(32, axis=1)
    ties = rng.random((rows, width // 32)).repeat(32, axis=1) < 0.2
    x[ties] = (rng.integers(-254, 255, (rows, width)) / 2).astype(np.float32)[ties]
    for value in (np.nan, np.inf, -np.inf, 3.4e38, 127.0, 1e-36, np.nextafter(np.float32(1e-36), np.float32(0))):
        x[rng.integers(rows), rng.integers(width)] = value
    x[:, :32] = 0
    return x


@pytest.mark.parametrize("block", FORMATS)
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**20), rows=st.integers(1, 5), blocks=st.integers(1, 9))
def test_quantize_equals_the_format(cpu: Cpu, block: int, seed: int, rows: int, blocks: int) -> None:
    with np.errstate(over="ignore", under="ignore"):
        x = strided_rows(awkward(seed, rows, block * blocks), 7)
    expected = FORMATS[block].encode(np.ascontiguousarray(x))
    for isa, n in VARIANTS:
        assert quantize(cpu[isa], block, x, n).tobytes() == expected.tobytes(), (isa, n)


@pytest.mark.parametrize("block", FORMATS)
@pytest.mark.parametrize(("rows", "blocks"), [(1, 1), (1, 5), (3, 17), (7, 2), (2, 64)])
def test_fused_quantization_equals_its_parts(cpu: Cpu, block: int, rows: int, blocks: int) -> None:
    width = 256 * blocks if block == 256 else 32 * blocks
    rng = np.random.default_rng(blocks)
    x = strided_rows(rng.standard_normal((rows, width), dtype=np.float32), 5)
    y = strided_rows(rng.standard_normal((rows, width), dtype=np.float32), 1)
    weight = guarded(rng.standard_normal(width, dtype=np.float32))
    x[0, 3] = 1e30
    runner = cpu[BEST]
    gated, normed = (guarded(np.zeros((rows, width), np.float32)) for _ in range(2))
    strides = {"x_stride": x.strides[0], "out_stride": 4 * width, "width": width, "rows_at": bucket(rows)}
    runner.run("elementwise.swiglu", x=x, y=y, out=gated, y_stride=y.strides[0], **strides)
    runner.run("norm.rms_norm", x=x, weight=weight, out=normed, eps=EPS, **strides)
    for isa, n in VARIANTS:
        out = empty_rows(block, rows, width)
        cpu[isa].run(
            f"quantize.swiglu[{block}]", n, gate=x, up=y, out=out, rows_at=bucket(rows), width=width,
            gate_stride=x.strides[0], up_stride=y.strides[0], out_stride=out.strides[0],
        )  # fmt: skip
        assert out.tobytes() == FORMATS[block].encode(gated).tobytes(), (isa, n)
        out = empty_rows(block, rows, width)
        cpu[isa].run(
            f"quantize.rms_norm[{block}]", n, x=x, weight=weight, out=out, rows_at=bucket(rows), width=width,
            x_stride=x.strides[0], out_stride=out.strides[0], eps=EPS,
        )  # fmt: skip
        assert out.tobytes() == FORMATS[block].encode(normed).tobytes(), (isa, n)
