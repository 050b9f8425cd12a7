"""8-bit blocks in torch: activations (`minfer_ir.formats.activation`) and KV cells (`minfer_ir.formats.cells`).

The same bytes as their numpy encodings give, which state the rules.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minfer_ir.formats.activation import SMALLEST_AMAX, ActivationFormat
from minfer_ir.formats.base import Format
from minfer_ir.formats.cells import CellFormat

LARGEST_QUANT = 127.0
F16_NAN_BITS = 0x7E00


def decode(fmt: Format, data: Tensor) -> Tensor:
    """Float32 `[..., n]` of rows `[..., row_bytes(n)]` uint8 in an activation or cell format."""
    n = fmt.row_elements(data.shape[-1])
    quants = data[..., :n].view(torch.int8).unflatten(-1, (-1, fmt.block_size)).float()
    scales = _plane(data, n, n // fmt.block_size, torch.float16 if isinstance(fmt, CellFormat) else torch.float32)
    return (quants * scales.float().unsqueeze(-1)).flatten(-2)


def encode(fmt: Format, values: Tensor) -> Tensor:
    """Rows `[..., row_bytes(n)]` uint8 of float32 `[..., n]`."""
    if isinstance(fmt, CellFormat):
        return _encode_cell(fmt, values)
    if isinstance(fmt, ActivationFormat):
        return _encode_activation(fmt, values)
    raise ValueError(f"{fmt.name} is a weight format: weights are decoded, never encoded here")


def _encode_activation(fmt: ActivationFormat, values: Tensor) -> Tensor:
    blocks = values.unflatten(-1, (-1, fmt.block_size))
    finite = blocks.isfinite().all(dim=-1)
    amax = torch.where(finite, blocks.abs().amax(dim=-1), 0.0)
    tiny = amax < float(SMALLEST_AMAX)
    d = torch.where(tiny, 0.0, amax / LARGEST_QUANT)
    r = torch.where(tiny, 0.0, LARGEST_QUANT / torch.where(tiny, 1.0, amax))
    scaled = torch.where(finite.unsqueeze(-1), blocks, 0.0) * r.unsqueeze(-1)
    quants = torch.round(scaled).to(torch.int8).flatten(-2)
    per_sum = 32 if fmt.sum_dtype.itemsize == 4 else 16
    sums = quants.unflatten(-1, (-1, per_sum)).sum(dim=-1, dtype=torch.int32)
    if fmt.sum_dtype.itemsize == 2:
        sums = sums.to(torch.int16)
    return torch.cat([_bytes(quants), _bytes(torch.where(finite, d, torch.nan)), _bytes(sums)], dim=-1)


def _encode_cell(fmt: CellFormat, values: Tensor) -> Tensor:
    blocks = values.unflatten(-1, (-1, fmt.block_size))
    d = blocks.abs().amax(dim=-1) / LARGEST_QUANT  # NaN where a block holds one
    stored = d.to(torch.float16)
    inverse = 1.0 / d
    scaled = blocks * torch.where(inverse.isfinite(), inverse, 0.0).unsqueeze(-1)
    broken = ~stored.isfinite()
    whole = scaled.abs().trunc()
    rounded = torch.copysign(whole + (scaled.abs() - whole >= 0.5).float(), scaled)  # half away from zero
    quants = torch.where(broken.unsqueeze(-1), 0.0, rounded).to(torch.int8).flatten(-2)
    scales = torch.where(broken, F16_NAN_BITS, stored.view(torch.int16))
    n = values.shape[-1]
    padding = quants.new_zeros((*values.shape[:-1], fmt.row_bytes(n) - n - 2 * scales.shape[-1]))
    return torch.cat([_bytes(quants), _bytes(scales.to(torch.int16)), _bytes(padding)], dim=-1)


def _plane(data: Tensor, start: int, count: int, dtype: torch.dtype) -> Tensor:
    """`count` numbers from byte `start` of every row; copied, because rows needn't begin on a number's border."""
    itemsize = dtype.itemsize
    return data[..., start : start + count * itemsize].contiguous().view(dtype)


def _bytes(plane: Tensor) -> Tensor:
    return plane.contiguous().view(torch.uint8)
