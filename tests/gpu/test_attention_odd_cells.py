"""What a cell holds reaches the rows that read it and no others, on every backend: NaN, infinities, stale bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from attention_problems import SMALL, Array, Problem, attend, draw, place
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from minfer_ir.formats.cells import cell_values
from minfer_ir.ops import OPS
from minfer_ir.ops.attention import AttentionAttrs
from minfer_ir.runtime.backend import Backend
from minfer_kernels.cpu.backend import CpuBackend
from minfer_kernels.cpu.compiler.library import KernelLibrary
from minfer_kernels.gpu.backend import GpuBackend
from minfer_kernels.gpu.kernels.attention.choices import SplitChoice
from minfer_kernels.torch_ops.backend import TorchBackend

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "test-kernels"
MODES = ("causal", "span", "map")
GEOMETRIES = {"f32": (2, 1, 20), "f16": (2, 1, 16), "q8_0": (2, 1, 64)}
ODD = (np.nan, np.inf, -np.inf)
BEYOND_HALF = 600.0
"""A scale of packed cells that is finite, while 127 times it is no float16."""
FOUND = (Phase.explicit, Phase.generate)


@dataclass(frozen=True)
class Plant:
    """Odd values in the V (or K) row of a sequence's position: in one block, or from some element on."""

    sequence: int
    position: int
    value: float
    in_keys: bool = False

    def into(self, p: Problem) -> None:
        rows = (p.k if self.in_keys else p.v)[self.sequence]
        if rows.dtype == np.uint8:
            width = p.n_kv_heads * p.q.shape[2]
            rows[self.position, width : width + 2 * (width // 32)].view(np.float16)[-1] = self.value
        else:
            rows[self.position, -3:] = self.value


def planted(p: Problem, plants: Sequence[Plant]) -> Problem:
    odd = replace(p, k=[rows.copy() for rows in p.k], v=[rows.copy() for rows in p.v])
    for plant in plants:
        plant.into(odd)
    return odd


def check(p: Problem, plants: Sequence[Plant], mode: str, on: Backend, bucket: int | None = None) -> None:
    """Rows that read no planted cell have the bits that they have without; of the others, what isn't finite isn't."""
    odd = planted(p, plants)
    clean, out = (attend(q, place(q, mode, bucket=bucket), on=on).out for q in (p, odd))
    assert np.isfinite(clean).all()
    row = 0
    for sequence, lengths in enumerate(p.lengths):
        for length in lengths:
            seen = [s for s in plants if s.sequence == sequence and s.position < length]
            if seen:
                assert np.array_equal(np.isfinite(out[row]), np.isfinite(reference(odd, sequence, row, length)))
            else:
                assert np.array_equal(out[row], clean[row]), (row, length)
            row += 1


def reference(p: Problem, sequence: int, row: int, length: int) -> Array:
    """The row on its own over a contiguous window, by the op's reference; what float16 can't hold is infinite."""
    k, v = p.k[sequence], cell_values(p.v[sequence])
    if p.cell_type == "q8_0":
        k, v = np.asarray(cell_values(k)), np.where(np.abs(v) > np.finfo(np.float16).max, np.inf, v)
    window = np.array([[0, length]], np.int32)
    attrs = AttentionAttrs(p.n_kv_heads, p.scale)
    with np.errstate(all="ignore"):
        return OPS["attention"].reference(attrs, p.q[row : row + 1], k, v, np.array([length - 1]), window)[0]


@pytest.fixture(scope="module", params=["tiles", "tiles and parts", "torch", "cpu"])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    if request.param == "cpu":
        with CpuBackend(KernelLibrary(None, CACHE), 1) as cpu:
            yield cpu
    elif request.param == "torch":
        yield TorchBackend()
    else:
        yield gpu(decode_rows_apart=request.param == "tiles and parts")


def gpu(**options: Any) -> GpuBackend:
    return GpuBackend(torch.device("cpu"), attention=replace(SMALL, **options))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@settings(max_examples=5, phases=FOUND)
@given(data=st.data())
def test_a_prompt_s_rows_before_an_odd_cell_keep_their_bits(backend: Backend, data: st.DataObject) -> None:
    """Sequences of prompts and decode rows; cells beyond all windows, and the gaps between, are odd as they come."""
    cell_type, mode = data.draw(st.sampled_from(sorted(GEOMETRIES))), data.draw(st.sampled_from(MODES))
    start = data.draw(st.sampled_from((0, 3, 15, 20)))
    prompts = [range(start, start + 18)] + [(30,), range(9, 12)] * (mode != "causal")
    p = draw(21, prompts, *GEOMETRIES[cell_type], cell_type)
    sequences = st.integers(0, len(prompts) - 1)
    plants = [
        Plant(s, data.draw(st.integers(0, max(prompts[s]) - 1)), data.draw(st.sampled_from(ODD)))
        for s in data.draw(st.lists(sequences, min_size=1, max_size=3))
    ]
    check(p, plants, mode, backend, bucket=32)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("value", ODD)
@pytest.mark.parametrize("cell_type", GEOMETRIES)
def test_an_odd_value_of_each_kind_is_in_the_rows_that_read_it_only(cell_type: str, value: float) -> None:
    """Behind a whole block: where all rows of the tile read it, and where some do."""
    p = draw(22, [range(18, 36)], *GEOMETRIES[cell_type], cell_type)
    for position in (17, 30):
        check(p, [Plant(0, position, value)], "causal", gpu())


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("cell_type", GEOMETRIES)
def test_odd_keys_are_in_the_rows_that_read_them_only(backend: Backend, cell_type: str) -> None:
    p = draw(23, [range(3, 21)], *GEOMETRIES[cell_type], cell_type)
    check(p, [Plant(0, 11, np.nan, in_keys=True)], "causal", backend, bucket=32)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_packed_value_beyond_float16_stays_with_the_rows_that_read_it() -> None:
    p = draw(24, [range(3, 21)], *GEOMETRIES["q8_0"], "q8_0")
    check(p, [Plant(0, 11, BEYOND_HALF)], "causal", gpu())


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("mode", ["span", "map"])
@pytest.mark.parametrize(("cell_type", "matrix"), [("f32", True), ("f16", True), ("q8_0", True), ("q8_0", False)])
def test_decode_rows_beside_odd_cells_keep_their_bits(mode: str, cell_type: str, matrix: bool) -> None:
    """Rows of one sequence with windows of other lengths, each in parts of its own."""
    p = draw(25, [(33, 70), (40,)], *GEOMETRIES[cell_type], cell_type)
    on = gpu(split=SplitChoice(split=32, block=16, matrix=matrix))
    check(p, [Plant(0, 33, np.nan), Plant(0, 50, np.nan, in_keys=True), Plant(1, 39, np.inf)], mode, on, bucket=4)
