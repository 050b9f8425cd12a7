"""The order of rows that GGUF's llama wants of q and k."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Scalar = TypeVar("Scalar", np.float32, np.uint8)


def side_by_side(rows: NDArray[Scalar], head_dim: int) -> NDArray[Scalar]:
    """Rows of whole heads, `[n * head_dim, ...]`, of values or bytes, with the halves of each interleaved.

    That is rows 0, d/2, 1, d/2 + 1, ... of each head of d.

    Hugging Face's llama rotates row i of a head with row i + d/2; GGUF's llama rotates neighbours (`LlamaModel.permute`
    in llama.cpp's convert_hf_to_gguf.py). q has n_heads heads and k n_kv_heads; both are permuted within each head.
    """
    halves = rows.reshape(-1, 2, head_dim // 2, *rows.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(rows.shape)
