"""RoPE: against float64 rotations, the two pairings against each other, partial rotation, in place."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from cpu_harness import BEST, VARIANTS, Array, Runner, gaps_untouched, guarded, strided_rows

from minfer_ir.testing.tolerances import ROTATION
from minfer_kernels.cpu.compiler.features import Isa

Cpu = Mapping[Isa, Runner]
POSITIONS = [0, 1, 63, 500, 2]
GEOMETRIES = [(1, 2, 2), (3, 64, 64), (2, 80, 48), (2, 12, 6), (1, 34, 18), (9, 96, 32)]


def angles(dims: int) -> Array:
    return np.arange(512)[:, None] * 10000.0 ** (-np.arange(0, dims, 2) / dims)


def table(dims: int) -> Array:
    a = angles(dims)
    return guarded(np.concatenate([np.cos(a), np.sin(a)], axis=1).astype(np.float32))


def rotated(x: Array, dims: int, first: slice, second: slice) -> Array:
    """The exact rotation by the rounded table's angles."""
    at = angles(dims)[POSITIONS][:, None]
    cos, sin = (f(at).astype(np.float32).astype(np.float64) for f in (np.cos, np.sin))
    out = x.astype(np.float64)
    a, b = out[..., first].copy(), out[..., second].copy()
    out[..., first], out[..., second] = a * cos - b * sin, a * sin + b * cos
    return out


def rope(runner: Runner, pairs: str, x: Array, out: Array, dims: int, n_threads: int = 1) -> Array:
    _, heads, dim = x.shape
    runner.run(
        f"rope.{pairs}", n_threads, x=x, positions=guarded(np.array(POSITIONS, np.int32)), table=table(dims), out=out,
        rows_at=guarded(np.array([len(x)], np.int32)), n_heads=heads, head_dim=dim, dims=dims,
        x_stride=x.strides[0], x_head_stride=4 * dim, out_stride=out.strides[0], out_head_stride=4 * dim,
        table_stride=4 * dims,
    )  # fmt: skip
    return out


@pytest.mark.parametrize("pairs", ["neox", "interleaved"])
@pytest.mark.parametrize(("heads", "dim", "dims"), GEOMETRIES)
def test_rope(cpu: Cpu, pairs: str, heads: int, dim: int, dims: int) -> None:
    x = strided_rows(np.random.default_rng(1).standard_normal((5, heads, dim), dtype=np.float32), 3)
    halves = slice(0, dims // 2), slice(dims // 2, dims)
    expected = rotated(x, dims, *(halves if pairs == "neox" else (slice(0, dims, 2), slice(1, dims, 2))))
    outs = []
    for isa, n in VARIANTS:
        out = rope(cpu[isa], pairs, x, strided_rows(np.zeros_like(x), 4), dims, n)
        assert gaps_untouched(out)
        np.testing.assert_allclose(out, expected, rtol=0, atol=ROTATION.relative(1) * float(np.abs(x).max()) * 2**0.5)
        np.testing.assert_array_equal(out[..., dims:], x[..., dims:])
        outs.append(out.tobytes())
    in_place = strided_rows(x, 3)
    assert rope(cpu[BEST], pairs, in_place, in_place, dims).tobytes() == outs[0]
    assert len(set(outs)) == 1


@pytest.mark.parametrize(("heads", "dim", "dims"), GEOMETRIES)
def test_both_pairings_give_the_same_bits_for_permuted_elements(cpu: Cpu, heads: int, dim: int, dims: int) -> None:
    x = guarded(np.random.default_rng(2).standard_normal((5, heads, dim), dtype=np.float32))
    order = np.concatenate([np.arange(dims).reshape(2, dims // 2).T.reshape(-1), np.arange(dims, dim)])
    neox = rope(cpu[BEST], "neox", x, guarded(np.zeros_like(x)), dims)
    interleaved = rope(cpu[BEST], "interleaved", guarded(x[..., order]), guarded(np.zeros_like(x)), dims)
    assert interleaved.tobytes() == neox[..., order].tobytes()
