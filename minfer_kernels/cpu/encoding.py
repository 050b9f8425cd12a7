"""Encoding weights natively, to the bytes of the formats' own `encode`."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from minfer_ir.formats import IQ4_NL, Q2_K, Q4_K, Q5_K, Q6_K
from minfer_ir.formats.base import Bytes, EncodeError, Floats, Format, check_floats
from minfer_ir.formats.iq import TRIES
from minfer_kernels.cpu.kernels.parts.encode_chunks import CHUNKS

if TYPE_CHECKING:
    from minfer_kernels.cpu.compiler.library import KernelLibrary, LoadedKernel

_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
_NO_TRIES = np.zeros(0, np.float32)
_TRIES = {IQ4_NL.name: TRIES} | {fmt.name: fmt.tries for fmt in (Q2_K, Q4_K, Q5_K, Q6_K)}


def kernel_of(name: str) -> str:
    """The kernel that encodes the format `name`."""
    return f"encode.blocks[{name.lower()}]"


class NativeEncoders:
    """Encoders of those of `formats` that have a kernel; any thread may call them."""

    def __init__(self, library: KernelLibrary, formats: Iterable[Format]) -> None:
        names = {fmt.name for fmt in formats if fmt.name in CHUNKS}
        kernels = library.load([kernel_of(name) for name in sorted(names)])
        self._kernels: dict[str, LoadedKernel] = {name: kernels[kernel_of(name)] for name in names}

    def encode(self, fmt: Format, values: Floats) -> Bytes:
        """As `fmt.encode(values)`: the same bytes and the same errors."""
        kernel = self._kernels.get(fmt.name)
        if kernel is None or values.size == 0:
            return fmt.encode(values)
        n_bytes = check_floats(fmt, values)
        chunk, flat = CHUNKS[fmt.name], np.ascontiguousarray(values).reshape(-1)
        out = np.zeros(flat.size // fmt.block_size * fmt.block_bytes, np.uint8)
        whole = flat.size // chunk.elements
        odd = np.zeros(-(-whole // chunk.blocks), np.uint8)
        _run(kernel, flat, out, whole, _TRIES.get(fmt.name, _NO_TRIES), odd)
        try:
            for i in np.flatnonzero(odd):
                _by_numpy(fmt, flat, out, int(i) * chunk.blocks * chunk.elements, chunk.blocks * chunk.elements)
            _by_numpy(fmt, flat, out, whole * chunk.elements, chunk.elements)
        except EncodeError:
            return fmt.encode(values)  # which says where, in rows
        return out.reshape(*values.shape[:-1], n_bytes)


def _by_numpy(fmt: Format, flat: Floats, out: Bytes, start: int, n: int) -> None:
    """Encode elements from `start` on, up to n."""
    values = flat[start : start + n]
    if values.size:
        at = start // fmt.block_size * fmt.block_bytes
        encoded = fmt.encode(values)
        out[at : at + encoded.size] = encoded


def _run(kernel: LoadedKernel, flat: Floats, out: Bytes, n_blocks: int, tries: Floats, odd: NDArray[np.uint8]) -> None:
    given = {
        "x": flat.ctypes.data,
        "out": out.ctypes.data,
        "n_blocks": n_blocks,
        "tries": tries.ctypes.data,
        "n_tries": len(tries),
        "odd": odd.ctypes.data,
    }
    words = np.array([given[operand.name] for operand in kernel.operands], np.int64)
    _ENTRY(kernel.address)(words.ctypes.data, 0, 1)
