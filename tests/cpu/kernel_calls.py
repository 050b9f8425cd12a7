"""Calling single kernels in tests: one library per instruction set, arguments by name, threads one after another."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from minfer_ir.formats import ACTIVATION_FORMATS, FORMATS, WEIGHT_FORMATS
from minfer_kernels.cpu.compiler.features import HostFeatures, Isa
from minfer_kernels.cpu.compiler.library import KernelLibrary
from minfer_kernels.cpu.weights.layouts import activation_format, get_rows_kernel, matmul_kernel, packed_rows_kernel
from minfer_kernels.cpu.weights.pack_program import unpack_program
from minfer_kernels.cpu.weights.packing import PackedWeight, pack

WEIGHTS = list(WEIGHT_FORMATS)
ISAS = [isa for isa in Isa if not HostFeatures.detect().missing(isa)]
_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
_CACHE = Path(__file__).parents[2] / ".cache" / "test-kernels"


@cache
def library(isa: Isa) -> KernelLibrary:
    return KernelLibrary(isa, _CACHE)


def call(isa: Isa, name: str, n_threads: int = 1, **operands: int) -> None:
    kernel = library(isa).load([name])[name]
    words = np.array([operands[o.name] for o in kernel.operands], np.int64)
    assert len(words) == len(operands)
    for tid in range(n_threads):
        _ENTRY(kernel.address)(words.ctypes.data, tid, n_threads)


def block_of(fmt: str) -> int:
    """Elements that a row of weights and activations must be a multiple of."""
    activation = ACTIVATION_FORMATS.get(activation_format(fmt))
    return activation.block_size if activation else 1


def quantized(fmt: str, x: NDArray[np.float32]) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Activation rows for weights of `fmt`, and the values that they hold."""
    name = activation_format(fmt)
    if name == "f32":
        return np.ascontiguousarray(x).view(np.uint8), x
    rows = FORMATS[name].encode(x)
    return rows, FORMATS[name].decode(rows)


def matmul(
    weight: PackedWeight, x: NDArray[np.uint8], isa: Isa = ISAS[0], n_threads: int = 1, out_gap: int = 0
) -> NDArray[np.float32]:
    """`[rows, n]`; x may have a row stride. Checks that the `out_gap` bytes between output rows stay as they were."""
    assert x.strides[1] == 1
    out = np.full((len(x), 4 * weight.n + out_gap), 0xA5, np.uint8)
    rows = np.array([len(x), -1], np.int32)
    call(
        isa,
        matmul_kernel(weight.layout),
        n_threads,
        x=x.ctypes.data,
        w=weight.address,
        out=out.ctypes.data,
        rows_at=rows.ctypes.data,
        x_stride=x.strides[0],
        out_stride=out.strides[0],
        n=weight.n,
        k=weight.k,
    )
    assert (out[:, 4 * weight.n :] == 0xA5).all()
    return np.ascontiguousarray(out[:, : 4 * weight.n]).view(np.float32)


def packed(fmt: str, raw: NDArray[np.uint8], isa: Isa = ISAS[0]) -> PackedWeight:
    return pack(FORMATS[fmt], [raw], FORMATS[fmt].row_elements(raw.shape[1]), isa.lanes)


def get_rows(
    fmt: str, table: NDArray[np.uint8], ids: NDArray[np.int32], isa: Isa = ISAS[0], n_threads: int = 1, out_gap: int = 0
) -> NDArray[np.float32]:
    """`[len(ids), k]`; the table may have a row stride."""
    width = FORMATS[fmt].row_elements(table.shape[1])
    out = np.full((len(ids), 4 * width + out_gap), 0xA5, np.uint8)
    rows = np.array([len(ids), -1], np.int32)
    call(
        isa,
        get_rows_kernel(fmt),
        n_threads,
        table=table.ctypes.data,
        ids=ids.ctypes.data,
        out=out.ctypes.data,
        rows_at=rows.ctypes.data,
        width=width,
        table_stride=table.strides[0],
        out_stride=out.strides[0],
    )
    assert (out[:, 4 * width :] == 0xA5).all()
    return np.ascontiguousarray(out[:, : 4 * width]).view(np.float32)


def get_packed_rows(
    weight: PackedWeight, ids: NDArray[np.int32], isa: Isa = ISAS[0], n_threads: int = 1
) -> NDArray[np.float32]:
    """`[len(ids), k]` out of packed groups."""
    program = unpack_program(weight.layout)
    stride = -(-FORMATS[weight.layout.format].row_bytes(weight.k) // 8) * 8
    scratch = np.full(n_threads * stride + 1, 0xA5, np.uint8)
    out = np.full((len(ids), weight.k), np.nan, np.float32)
    rows = np.array([len(ids), -1], np.int32)
    call(
        isa,
        packed_rows_kernel(weight.layout),
        n_threads,
        table=weight.address,
        program=program.ctypes.data,
        terms=len(program),
        scratch=scratch.ctypes.data,
        scratch_stride=stride,
        ids=ids.ctypes.data,
        out=out.ctypes.data,
        rows_at=rows.ctypes.data,
        width=weight.k,
        out_stride=out.strides[0],
    )
    assert scratch[-1] == 0xA5
    return out


def same_bits(x: NDArray[np.float32], y: NDArray[np.float32]) -> bool:
    return x.shape == y.shape and np.array_equal(x.view(np.uint32), y.view(np.uint32))
