"""What the torch backend refuses, and the bytes it stores."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from minfer_ir.formats import FORMATS, Q8_0_CELL
from minfer_ir.formats.activation import Q8A32, Q8A256
from minfer_ir.formats.base import Format
from minfer_ir.runtime.backend import BackendError, BufRef, NonFiniteWeightError
from minfer_kernels.torch_ops.backend import TorchBackend
from minfer_kernels.torch_ops.blocks import decode, encode
from minfer_kernels.torch_ops.limits import DeviceError, check_windows

SPECIAL = np.array([0, -0.0, 1e-39, 1e-37, 1.5, 2.5, -2.5, 127, 65504 * 127, 1e30, np.nan, np.inf, -np.inf], np.float32)


@pytest.mark.parametrize("fmt", [Q8A32, Q8A256, Q8_0_CELL], ids=lambda f: f.name)
@given(seed=st.integers(0, 10**6), spread=st.sampled_from([1e-38, 1e-3, 1.0, 1e6]), n_special=st.integers(0, 6))
def test_blocks_are_the_bytes_of_the_numpy_encoding(fmt: Format, seed: int, spread: float, n_special: int) -> None:
    rng = np.random.default_rng(seed)
    values = (rng.standard_normal((2, 512)) * spread).astype(np.float32)
    values.flat[rng.integers(0, values.size, n_special)] = rng.choice(SPECIAL, n_special)
    expected = fmt.encode(values)
    np.testing.assert_array_equal(encode(fmt, torch.from_numpy(values)).numpy(), expected)
    np.testing.assert_array_equal(decode(fmt, torch.from_numpy(expected)).numpy(), fmt.decode(expected))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpu", "torch knows no device 'gpu'; there are cpu"),
        ("cuda:7", "there is no torch device 'cuda:7' here that ops run on; there are cpu"),
        ("meta", "there is no torch device 'meta' here that ops run on; there are cpu"),
        ("cpu:3", "there is no torch device 'cpu:3'"),
    ],
)
def test_a_device_that_is_not_there_is_refused_with_what_is(name: str, message: str) -> None:
    with pytest.raises(DeviceError, match=message):
        TorchBackend(name)


def test_a_device_that_cannot_read_windows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        raise RuntimeError("view isn't implemented")

    monkeypatch.setattr(torch.Tensor, "view", refuse)
    with pytest.raises(DeviceError, match="cpu can't read a window of bytes as f32, which plans need: view isn't"):
        check_windows(torch.device("cpu"))


def test_a_weight_that_is_not_finite_is_refused() -> None:
    rows = FORMATS["F32"].encode(np.array([[1.0, np.inf]], np.float32))
    with pytest.raises(NonFiniteWeightError, match="odd"):
        TorchBackend().register_weight("odd", FORMATS["F32"], (1, 2), [rows], frozenset({"matmul"}))


def test_buffers_that_are_gone_and_moves_that_leave_the_region_are_refused() -> None:
    backend = TorchBackend()
    buffer = backend.allocate(64)
    with pytest.raises(BackendError, match=r"cell move \(2, 3, 2\) leaves the region of 4 cells"):
        backend.copy_cells(BufRef(buffer, 0, 64, (16, 1)), 16, [(2, 3, 2)])
    backend.free(buffer)
    with pytest.raises(BackendError, match="buffer 0 was freed"):
        backend.free(buffer)


@given(data=st.data())
def test_cells_move_as_if_read_before_written(data: st.DataObject) -> None:
    moves = data.draw(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.integers(1, 4)), max_size=3))
    moves = [m for m in moves if max(m[0], m[1]) + m[2] <= 8]
    backend, rng = TorchBackend(), np.random.default_rng(0)
    before = rng.integers(0, 256, (8, 16), dtype=np.uint8)
    ref = BufRef(backend.allocate(128), 0, 128, (16, 1))
    backend.write(ref, before)
    backend.copy_cells(ref, 16, moves)
    expected = before.copy()
    for source, target, count in moves:
        expected[target : target + count] = before[source : source + count]
    np.testing.assert_array_equal(backend.buffers.bytes_of(ref.buffer).numpy().reshape(8, 16), expected)
