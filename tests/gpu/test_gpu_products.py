"""Products on the GPU backend, in Triton's interpreter: any shape, rows that keep their bits, and who reads what."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gpu_products import product
from hypothesis import given, settings
from hypothesis import strategies as st

from minfer_ir.dtypes import F32
from minfer_ir.formats import FORMATS
from minfer_ir.opspec import NoAttrs
from minfer_ir.passes.legalize import activation_type
from minfer_ir.testing.op_matrix import Bench, run_variant
from minfer_ir.testing.variants import Variant
from minfer_ir.types import TensorType, element_type
from minfer_kernels.gpu.backend import GpuBackend
from minfer_kernels.gpu.kernels.products.choices import stream_lanes, stream_tile
from minfer_kernels.gpu.planes.layouts import LAYOUTS
from minfer_kernels.gpu.targets import INTERPRETER, TARGETS

CPU = torch.device("cpu")
FORMAT_NAMES = list(LAYOUTS)
QUANTIZED = [name for name in FORMAT_NAMES if LAYOUTS[name].bits]


@pytest.fixture(scope="module")
def backend() -> GpuBackend:
    return GpuBackend(CPU)


@pytest.fixture(scope="module")
def half_backend() -> GpuBackend:
    return GpuBackend(CPU, activations="f16")


@pytest.fixture(scope="module")
def integer_backend() -> GpuBackend:
    return GpuBackend(CPU, activations="8-bit-all")


shapes = st.tuples(st.integers(1, 16), st.integers(1, 11) | st.integers(65, 68), st.integers(1, 5))
"""Rows, columns of one program or of two, blocks."""


@settings(max_examples=16)
@given(fmt=st.sampled_from(FORMAT_NAMES), op=st.sampled_from(("matmul", "matmul_add", "matmul_swiglu")), shape=shapes)
def test_any_shape_of_up_to_sixteen_rows(backend: GpuBackend, fmt: str, op: str, shape: tuple[int, int, int]) -> None:
    rows, n, blocks = shape
    k = blocks * (FORMATS[fmt].block_size if fmt in QUANTIZED else 37)
    cell = run_variant(backend, product(backend, op, fmt, rows, n, k, ragged=True))
    assert cell.verdict == "PASS", str(cell)


@pytest.mark.parametrize("fmt", FORMAT_NAMES)
@pytest.mark.parametrize(("op", "rows", "n"), [("matmul_add", 17, 3), ("matmul", 40, 67)])
def test_more_rows_go_through_tiles(backend: GpuBackend, fmt: str, op: str, rows: int, n: int) -> None:
    """Without a sum too: a row beyond the actual ones plus its residual, which is poison, is that poison again."""
    k = 256 + (256 if fmt in QUANTIZED else 5)
    variant = product(backend, op, fmt, rows, n, k, ragged=True)
    assert variant.operands[0].dtype.name == "f32"
    cell = run_variant(backend, variant)
    assert cell.verdict == "PASS", str(cell)


@pytest.mark.parametrize("fmt", ["Q4_0", "Q2_K", "Q6_K", "IQ4_NL"])
def test_a_backend_can_be_set_to_read_floats(half_backend: GpuBackend, fmt: str) -> None:
    variant = product(half_backend, "matmul", fmt, 3, 7, 512)
    assert variant.operands[0].dtype.name == "f32"
    cell = run_variant(half_backend, variant)
    assert cell.verdict == "PASS", str(cell)


@pytest.mark.parametrize("fmt", QUANTIZED)
@pytest.mark.parametrize(("op", "rows", "n"), [("matmul", 17, 3), ("matmul_add", 40, 67)])
def test_more_rows_of_blocks_go_through_integer_tiles(
    integer_backend: GpuBackend, fmt: str, op: str, rows: int, n: int
) -> None:
    variant = product(integer_backend, op, fmt, rows, n, 512, ragged=True)
    assert variant.operands[0].dtype.name in ("Q8A32", "Q8A256")
    cell = run_variant(integer_backend, variant)
    assert cell.verdict == "PASS", str(cell)


class _Fed(Bench):
    """A product of given activation rows and weight bytes."""

    def __init__(self, backend: GpuBackend, variant: Variant, x: np.ndarray, weight: np.ndarray) -> None:
        super().__init__(backend, variant, np.random.default_rng(0))
        self.values[self.operands[0]], self.values[self.operands[1]] = x, weight


def computed(backend: GpuBackend, fmt: str, x: np.ndarray, weight: np.ndarray, k: int) -> np.ndarray:
    bench = _Fed(backend, product(backend, "matmul", fmt, len(x), len(weight), k), x, weight)
    assert bench.run() is None
    bench.close()
    assert bench.result is not None
    return bench.result


@pytest.mark.parametrize("fmt", FORMAT_NAMES)
def test_a_row_has_the_bits_of_the_row_alone(backend: GpuBackend, fmt: str) -> None:
    k = 512
    rng = np.random.default_rng(5)
    kind = product(backend, "matmul", fmt, 16, 5, k).operands[0].dtype
    floats = rng.standard_normal((16, k), np.float32)
    x = floats if kind is F32 else kind.encode(floats)  # type: ignore[union-attr]
    weight = FORMATS[fmt].draw(rng, 5, k)
    together = computed(backend, fmt, x, weight, k)
    for rows in (slice(0, 1), slice(15, 16), slice(3, 7)):
        alone = computed(backend, fmt, x[rows], weight, k)
        assert alone.tobytes() == together[rows].tobytes(), rows


@pytest.mark.parametrize("fmt", QUANTIZED)
@pytest.mark.parametrize("rows", [1, 17])
def test_extremes_of_integers_are_exact(integer_backend: GpuBackend, fmt: str, rows: int) -> None:
    """All quants at either end, with scales of 1: sums are integers, and the largest there are."""
    backend = integer_backend
    form = FORMATS[fmt]
    k = 2 * form.block_size
    for byte in (0x00, 0xFF, 0x80, 0x7F):
        weight = np.full((3, form.row_bytes(k)), byte, np.uint8)
        blocks = weight.reshape(-1, form.block_bytes).view(form.layout)  # type: ignore[attr-defined]
        for field in form.scale_fields:  # type: ignore[attr-defined]
            blocks[field] = 1.0
        kind = product(backend, "matmul", fmt, 1, 3, k).operands[0].dtype
        x = kind.encode(np.full((rows, k), 127, np.float32))  # type: ignore[union-attr]
        expected = 127 * form.decode(weight).astype(np.float64).sum(axis=1)
        got = computed(backend, fmt, x, weight, k)
        np.testing.assert_array_equal(got, np.tile(expected, (rows, 1)))


def test_few_rows_of_quantized_weights_read_blocks_and_many_floats(
    backend: GpuBackend, integer_backend: GpuBackend
) -> None:
    def reads(fmt: str, rows: int, backend: GpuBackend = backend) -> str | None:
        operands = [TensorType((rows, 512), F32, "token"), TensorType((3, 512), element_type(fmt))]
        return activation_type("matmul", operands, backend.capabilities)

    assert [reads("Q4_0", rows) for rows in (1, 16, 17, 512)] == ["Q8A32", "Q8A32", None, None]
    assert [reads("Q5_K", rows) for rows in (1, 16, 17)] == ["Q8A256", "Q8A256", None]
    assert [reads("F16", rows) for rows in (1, 17)] == [None, None]
    assert [reads("Q4_0", rows, integer_backend) for rows in (1, 17, 512)] == ["Q8A32"] * 3
    assert reads("F16", 17, integer_backend) is None


def test_what_isnt_taken_is_refused_with_the_reason(backend: GpuBackend) -> None:
    def refusal(op: str, rows: int, x: str, *formats: str) -> str:
        weights = [TensorType((32, 512), element_type(f)) for f in formats]
        operands = [TensorType((rows, 512), element_type(x) if x != "f32" else F32, "token"), *weights]
        out = TensorType((rows, 32), F32, "token")
        return backend.supports(op, NoAttrs(), out, operands) or ""

    assert "finish their results, not of 17" in refusal("matmul_swiglu", 17, "f32", "Q4_0", "Q4_0")
    assert "Q4_K weights take Q8A256 or f32 activations, not Q8A32" in refusal("matmul", 1, "Q8A32", "Q4_K")
    assert "read Q8A32 activations here, not f32" in refusal("matmul", 1, "f32", "Q4_0")
    assert refusal("matmul_swiglu", 1, "Q8A32", "Q4_0", "Q8_0") == ""


def test_lanes_follow_from_the_weight_alone() -> None:
    assert [stream_lanes("Q4_0", k) for k in (32, 576, 1024, 3584, 18944)] == [32, 32, 32, 128, 128]
    everywhere = (*TARGETS.values(), INTERPRETER)
    tiles = [stream_tile(target, "F16", k, rows) for target in everywhere for k in (1024, 18944) for rows in (1, 16)]
    assert {tile.lanes for tile in tiles} == {1024}


@pytest.mark.parametrize(("together", "rows"), [(32, 16), (64, 32), (96, 32), (128, 64), (1000, 64), (1, 1)])
def test_columns_that_are_finished_together_come_from_several_programs(together: int, rows: int) -> None:
    """In the interpreter too, which else takes more of them at a time than a block has."""
    assert stream_tile(INTERPRETER, "Q4_0", 512, 1).rows == 64
    assert stream_tile(INTERPRETER, "Q4_0", 512, 1, together).rows == rows
