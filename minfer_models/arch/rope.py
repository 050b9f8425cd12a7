"""Llama 3's context scaling as converters store it: a tensor of frequency factors."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def llama3_factors(
    head_dim: int,
    base: float,
    factor: float,
    original_context: int = 8192,
    low_frequency_factor: float = 1.0,
    high_frequency_factor: float = 4.0,
) -> NDArray[np.float32]:
    """What each pair's frequency is divided by, float32 [head_dim / 2] (Llama 3.1, `convert_hf_to_gguf.py`).

    1 for wavelengths below original_context / high_frequency_factor, `factor` above
    original_context / low_frequency_factor, and between them the inverse of a linear blend of the inverses.
    """
    wavelengths = 2 * math.pi * base ** (np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    smooth = (original_context / wavelengths - low_frequency_factor) / (high_frequency_factor - low_frequency_factor)
    kept = np.clip(smooth, 0.0, 1.0)
    return (1 / ((1 - kept) / factor + kept)).astype(np.float32)
