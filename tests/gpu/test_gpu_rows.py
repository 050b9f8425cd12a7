"""Row-wise ops on the GPU beyond the op matrix: special numbers, computed frequency factors, tables, strided copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import triton
from hypothesis import given, settings
from hypothesis import strategies as st

from minfer_ir.builder import GraphBuilder
from minfer_ir.dtypes import F32, I32, U8
from minfer_ir.formats import Q8A32, Q8A256
from minfer_ir.formats.activation import ActivationFormat
from minfer_ir.graph import Graph, Node
from minfer_ir.ops import OPS
from minfer_ir.ops.rope import RopeAttrs, RopeScaling, rope_table
from minfer_ir.opspec import attrs_from_json
from minfer_ir.runtime.backend import Binding, BufRef, Split
from minfer_ir.runtime.probe import Probe
from minfer_ir.testing.op_matrix import run_variant
from minfer_ir.testing.strategies import generators
from minfer_ir.testing.variants import Variant
from minfer_ir.types import TensorType
from minfer_kernels.gpu.backend import CALL_SITES, GpuBackend
from minfer_kernels.gpu.kernels import elementwise, lookup, norm, quantize
from minfer_kernels.gpu.moves import copy_cells
from minfer_kernels.gpu.tables import RopeTables

CPU = torch.device("cpu")
SPECIAL = (np.nan, np.inf, -np.inf, 3e38, 1e-36, 9.9e-37, 1e-45, 0.0, -0.0, 127.0, 63.5)
SCALINGS: Mapping[str, dict[str, Any]] = {
    "none": {},
    "linear": {"kind": "linear", "factor": 4.0},
    "yarn": {"kind": "yarn", "factor": 4.0, "original_context": 64},
    "llama3": {"kind": "llama3", "factor": 8.0, "original_context": 64},
}


@pytest.fixture(scope="module")
def backend() -> GpuBackend:
    return GpuBackend(CPU)


@st.composite
def rows_to_quantize(draw: st.DrawFn, block: int) -> np.ndarray[Any, Any]:
    """Rows whose blocks differ in magnitude by tens of powers of ten, with special numbers here and there."""
    rng, blocks = draw(generators()), draw(st.integers(1, 3))
    values = rng.standard_normal((2, blocks, block)) * 10.0 ** rng.integers(-42, 38, (2, blocks, 1))
    with np.errstate(over="ignore", under="ignore"):
        rows = values.reshape(2, -1).astype(np.float32)
    for number in draw(st.lists(st.sampled_from(SPECIAL), max_size=3)):
        rows[rng.integers(2), rng.integers(rows.shape[1])] = number
    return rows


def quantized(rows: np.ndarray[Any, Any], fmt: ActivationFormat[Any]) -> np.ndarray[Any, Any]:
    n, width = rows.shape
    out = torch.full((n + 1, fmt.row_bytes(width)), 0xA5, dtype=torch.uint8)
    x, sums = torch.from_numpy(rows.copy()), 1 if fmt is Q8A32 else 16
    quantize.rows[(n + 1, triton.cdiv(width, 2 * fmt.block_size))](
        x, x, out, torch.tensor([n], dtype=torch.int32), width, width, width, out.shape[1],
        GATED=False, BLOCK=fmt.block_size, SUMS=sums, BLOCKS=2,
    )  # fmt: skip
    assert (out[n] == 0xA5).all(), "a row beyond the actual ones was written"
    return out.numpy()[:n]


@pytest.mark.parametrize("fmt", [Q8A32, Q8A256], ids=str)
def test_quantized_rows_have_the_bytes_of_the_format(fmt: ActivationFormat[Any]) -> None:
    @settings(max_examples=40)
    @given(rows=rows_to_quantize(fmt.block_size))
    def check(rows: np.ndarray[Any, Any]) -> None:
        assert np.array_equal(quantized(rows, fmt), fmt.encode(rows))

    check()


def test_rounding_borders_go_to_even() -> None:
    borders = np.linspace(-126.5, 126.5, 31, dtype=np.float32)
    rows = np.concatenate([[127.0], borders, [127.0], np.nextafter(borders, np.float32(0))]).astype(np.float32)[None]
    assert np.array_equal(quantized(rows, Q8A32), Q8A32.encode(rows))


def test_silu_neither_overflows_nor_loses_small_results() -> None:
    x = np.concatenate([np.linspace(-86, 86, 1001), [-87.3, -88.6, -89.9, -200.0, 3e38, -3e38]]).astype(np.float32)
    out = torch.full((x.size,), torch.nan)
    one = torch.tensor([1], dtype=torch.int32)
    elementwise.silu[(1, 2)](torch.from_numpy(x), out, one, x.size, 0, 0, BLOCK=1024)
    wide = x.astype(np.float64)
    with np.errstate(over="ignore", under="ignore"):
        want = wide / (1 + np.exp(-wide))
    # The argument of the exponential is off by up to half a unit of |x| log2(e), which is a unit of |x| in the result.
    bound = (8 + np.abs(wide)) * 2.0**-24 * np.abs(want) + 2.0**-126
    assert (np.abs(out.numpy() - want) <= bound).all()


def test_a_softmax_of_large_scores_and_of_masked_ones() -> None:
    x = np.array([[1e30, 1e30, -np.inf, 0.0, 5.0], [-np.inf, -1e30, -1e30, -np.inf, -np.inf]], np.float32)
    out = torch.full((2, 5), torch.nan)
    norm.softmax[(2, 1)](torch.from_numpy(x), out, torch.tensor([2], dtype=torch.int32), 5, 5, 5, WIDE=16)
    assert np.array_equal(out.numpy(), OPS["softmax"].reference(None, x))


def test_a_softmax_runs_over_the_last_of_several_axes(backend: GpuBackend) -> None:
    values = np.random.default_rng(4).standard_normal((2, 3, 5), np.float32)
    b = GraphBuilder()
    b.output(b.softmax(b.input(key="x", shape=values.shape, dtype="f32", rows="token")))
    want = OPS["softmax"].reference(None, values)
    np.testing.assert_allclose(run(backend, b.build(), {"x": values}), want, rtol=1e-6)


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("has_factors", [False, True])
def test_tables_are_those_of_the_op(scaling: str, has_factors: bool) -> None:
    attrs = RopeAttrs("neox", 64, 10000.0, 5000, RopeScaling(**SCALINGS[scaling]))
    factors = np.random.default_rng(0).uniform(0.5, 4, 32).astype(np.float32) if has_factors else None
    made = RopeTables(CPU).table(attrs, None, None if factors is None else torch.from_numpy(factors))
    # Both are float64 until they are rounded; the libraries' last bits may differ, and hardly ever show.
    assert np.abs(made.numpy() - rope_table(attrs, factors)).max() <= 2.0**-23


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("op", ["rope", "qk_norm_rope", "rope_kv_store"])
def test_computed_frequency_factors(backend: GpuBackend, scaling: str, op: str) -> None:
    """Factors that are no weight: positions far from zero show an angle that isn't float64."""
    positions, heads = TensorType((3,), I32, "token"), TensorType((3, 2, 20), F32, "token")
    types = {
        "x": heads,
        "norm_weight": TensorType((20,), F32),
        "region": TensorType((5, 40), F32),
        "positions": positions,
        "cells": positions,
        "factors": TensorType((8,), F32),
    }
    attrs = {"pairs": "neox", "dims": 16, "base": 10000.0, "max_positions": 200_000, "scaling": SCALINGS[scaling]}
    more: dict[str, Any] = {"qk_norm_rope": {"eps": 1e-6}, "rope_kv_store": {"row": (3, 40)}}
    spec, ints = OPS[op], {"positions": (1, 199_999, 777), "cells": (4, 0, 2)}
    operands = tuple(types[slot.name] for slot in spec.operands)
    given_ints = {name: value for name, value in ints.items() if any(slot.name == name for slot in spec.operands)}
    typed = attrs_from_json(spec, {**attrs, **more.get(op, {})})
    cell = run_variant(backend, Variant(spec, scaling, operands, typed, given_ints))
    assert cell.verdict == "PASS", str(cell)


def rope_graph(max_positions: int) -> Graph:
    """Two ropes with the same attrs, and one on another backend."""
    b = GraphBuilder()
    x = b.input(key="x", shape=(2, 2, 8), dtype="f32", rows="token")
    positions = b.input(key="positions", shape=(2,), dtype="i32", rows="token", limit=max_positions)
    rope = {"pairs": "neox", "dims": 8, "base": 10000.0, "max_positions": max_positions}
    rotated = b.rope(b.rope(x, positions, **rope), positions, **rope)
    b.output(b.rope(rotated, positions, **{**rope, "base": 500.0}, name="elsewhere"))
    return b.build().rewrite(lambda n: replace(n, backend="cpu" if n.name == "elsewhere" else "gpu"))


def test_tables_are_needed_once_and_counted() -> None:
    backend, graph = GpuBackend(CPU), rope_graph(100)
    assert backend.table_need(graph) == 4 * 100 * 8
    run(backend, graph, {"x": np.zeros((2, 2, 8), np.float32), "positions": np.zeros(2, np.int32)}, until=-1)
    assert backend.table_need(graph) == 0
    assert backend.table_need(rope_graph(50)) == 4 * 50 * 8
    assert backend.weight_bytes() == 4 * 100 * 8


def run(backend: GpuBackend, graph: Graph, inputs: Mapping[str, np.ndarray[Any, Any]], until: int | None = None) -> Any:
    """The value of the last of the graph's nodes up to `until`, every one of which has a buffer of its own."""
    nodes = graph.nodes[:until]
    refs: dict[int, BufRef] = {}
    for node in nodes:
        if node.view is None:
            refs[node.id] = BufRef(backend.allocate(node.type.nbytes), 0, node.type.nbytes, node.type.strides)
        else:
            source = refs[node.view.source]
            refs[node.id] = BufRef(source.buffer, source.offset + node.view.offset, source.length, node.strides)
        if node.op == "input":
            backend.write(refs[node.id], inputs[node.attrs.key])
    n_rows = BufRef(backend.allocate(8), 0, 8, (4,))
    backend.write(n_rows, np.array([nodes[-1].type.shape[0]] * 2, np.int32))
    computed = tuple(n.id for n in nodes if not n.is_leaf())
    backend.compile(graph, Split(0, "gpu", computed, ()), Binding(refs, {}, n_rows)).run()
    return backend.read(refs[nodes[-1].id], nodes[-1].type)


ROW_OPS: Mapping[str, Callable[[GraphBuilder, Node, Node, Node], Node]] = {
    "softmax": lambda b, x, weight, at: b.softmax(x),
    "rms_norm": lambda b, x, weight, at: b.rms_norm(x, weight, eps=1e-6),
    "add_rms_norm": lambda b, x, weight, at: b.add_rms_norm(x, x, weight, eps=1e-6),
    "rms_norm_quantize": lambda b, x, weight, at: b.rms_norm_quantize(x, weight, eps=1e-6, dtype="Q8A32"),
    "swiglu_quantize": lambda b, x, weight, at: b.swiglu_quantize(x, x, dtype="Q8A32"),
    "rope": lambda b, x, weight, at: b.rope(
        b.reshape(x, shape=(x.type.shape[0], 4, 24)), at, pairs="neox", dims=16, base=1e4, max_positions=64
    ),
}


@pytest.mark.parametrize("op", ROW_OPS)
def test_a_row_has_the_same_bits_whatever_rides_beside_it(backend: GpuBackend, op: str) -> None:
    values = np.random.default_rng(2).standard_normal((5, 96), np.float32)
    weight, positions = values[4].copy(), np.array([3, 60, 0, 7, 9], np.int32)

    def rows(first: int, stop: int) -> Any:
        b, n = GraphBuilder(), stop - first
        x = b.input(key="x", shape=(n, 96), dtype="f32", rows="token")
        w = b.input(key="weight", shape=(96,), dtype="f32")
        at = b.input(key="positions", shape=(n,), dtype="i32", rows="token", limit=64)
        b.output(ROW_OPS[op](b, x, w, at))
        fed = {"x": values[first:stop], "weight": weight, "positions": positions[first:stop]}
        return run(backend, b.build(), fed)

    together = rows(0, 5)
    for i in range(5):
        assert together[i].tobytes() == rows(i, i + 1)[0].tobytes(), i


@st.composite
def strided_copies(draw: st.DrawFn) -> tuple[np.ndarray[Any, Any], tuple[int, ...]]:
    """A value of up to four axes and an order for those behind the rows."""
    rank = draw(st.integers(2, 4))
    shape = tuple(draw(st.sampled_from((1, 2, 3, 5))) for _ in range(rank))
    return draw(generators()).standard_normal(shape, np.float32), (0, *draw(st.permutations(range(1, rank))))


@settings(max_examples=25)
@given(case=strided_copies())
def test_permuted_values_become_contiguous(backend: GpuBackend, case: Any) -> None:
    values, axes = case
    b = GraphBuilder()
    b.output(b.contiguous(b.permute(b.input(key="x", shape=values.shape, dtype="f32", rows="token"), axes=axes)))
    assert np.array_equal(run(backend, b.build(), {"x": values}), values.transpose(axes))


def test_tables_may_hold_more_than_two_to_the_31_elements(tmp_path: Path) -> None:
    """A sparse file of which two rows exist."""
    rows, width = (1 << 21) + 2, 1024
    table = np.memmap(tmp_path / "table", np.float16, "w+", shape=(rows, width))
    table[1], table[rows - 1] = 3.0, 5.0
    out, ids = torch.zeros(2, width), torch.tensor([rows - 1, 1], dtype=torch.int32)
    grid, n = (2, 1), torch.tensor([2], dtype=torch.int32)
    lookup.floats[grid](torch.from_numpy(table), ids, out, n, width, width, width, BLOCK=1024)
    assert out.tolist() == [[5.0] * width, [3.0] * width]


def test_regions_may_hold_more_than_two_to_the_31_bytes(tmp_path: Path) -> None:
    cells, row_bytes = (1 << 21) + 9, 1030
    region = np.memmap(tmp_path / "region", np.uint8, "w+", shape=(cells, row_bytes))
    region[7], region[cells - 1] = 9, 4
    copy_cells(torch.from_numpy(region), [(7, cells - 2, 1), (cells - 1, 3, 1)], Probe((), CALL_SITES))
    assert (region[cells - 2] == 9).all()
    assert (region[3] == 4).all()


def test_what_no_program_holds_is_refused(backend: GpuBackend) -> None:
    wide, weight = TensorType((1, 1 << 15), F32, "token"), TensorType((1 << 15,), F32)
    attrs = attrs_from_json(OPS["rms_norm"], {"eps": 1e-5})
    assert backend.supports("rms_norm", attrs, wide, [wide, weight]) == (
        "a program holds rows of up to 16384 elements, not 32768"
    )
    five = TensorType((2, 2, 2, 2, 2), F32, "token")
    assert backend.supports("contiguous", None, five, [five]) == "a copy takes up to 4 axes, not [2, 2, 2, 2, 2]"


@st.composite
def cell_moves(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Moves whose targets are apart, as runs that grow, shrink and shift leave them."""
    cuts = sorted(draw(st.lists(st.integers(0, 24), min_size=2, max_size=6, unique=True)))
    moves = []
    for first, stop in zip(cuts[::2], cuts[1::2], strict=False):
        moves.append((draw(st.integers(0, 24 - (stop - first))), first, stop - first))
    return draw(st.permutations(moves))


@settings(max_examples=60)
@given(moves=cell_moves(), row_bytes=st.sampled_from((2, 6, 40, 48, 1088, 2052)))
def test_cells_move_as_if_all_were_read_first(moves: list[tuple[int, int, int]], row_bytes: int) -> None:
    backend = GpuBackend(CPU)
    before = np.random.default_rng(1).integers(0, 256, (24, row_bytes), dtype=np.uint8)
    whole = BufRef(backend.allocate(16 + before.nbytes), 16, before.nbytes, (row_bytes, 1))
    backend.write(whole, before)
    backend.copy_cells(whole, row_bytes, moves)
    after = before.copy()
    for source, target, count in moves:
        after[target : target + count] = before[source : source + count]
    assert np.array_equal(backend.read(whole, TensorType(before.shape, U8)), after)


@pytest.mark.parametrize(("moves", "sites"), [([(0, 9, 4), (5, 13, 2)], {"move"}), ([(0, 2, 6)], {"lift", "lay"})])
def test_only_moves_that_overlap_are_staged(moves: list[tuple[int, int, int]], sites: set[str]) -> None:
    backend = GpuBackend(CPU)
    region = BufRef(backend.allocate(16 * 64), 0, 16 * 64, (64, 1))
    backend.copy_cells(region, 64, moves)
    counts = {site: backend.probe.counts[f"launch:cells.{site}"] for site in ("move", "lift", "lay")}
    assert {site for site, n in counts.items() if n} == sites
