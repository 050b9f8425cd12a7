"""Rotary position embedding (Su et al. 2021) with the scalings that model files name."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from minfer_ir.dtypes import F32, I32
from minfer_ir.ops.elementwise import ROW_OR_PARAM, rows
from minfer_ir.opspec import Array, Cost, Op, OpCase, Operand, OpError, f32
from minfer_ir.types import TensorType

LARGEST, SMALLEST = float(np.finfo(np.float32).max), float(np.finfo(np.float32).smallest_normal)
CHUNK_ROWS = 2048


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """How frequencies are stretched beyond the trained context.

    linear: every frequency divided by `factor`. yarn (Peng et al. 2023): a ramp between kept and divided
    frequencies by rotations over `original_context`, and amplitudes multiplied by `attention_factor` times
    1 + 0.1 ln(factor). llama3: long wavelengths divided, short kept, a linear blend between
    `low_frequency_factor` and `high_frequency_factor`.
    """

    kind: Literal["none", "linear", "yarn", "llama3"] = "none"
    factor: float = 1.0
    original_context: int = 0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float = 1.0
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0

    def __post_init__(self) -> None:
        if self.kind not in ("none", "linear", "yarn", "llama3"):
            raise OpError(f"rope: unknown scaling {self.kind!r}; known: none, linear, yarn, llama3")
        if not 0 < self.factor < math.inf or (self.kind in ("yarn", "llama3") and self.original_context <= 0):
            raise OpError(f"rope: {self.kind} scaling needs factor > 0 and original_context > 0, got {self}")
        if self.kind == "yarn" and not (0 < self.beta_fast < math.inf and 0 < self.beta_slow < math.inf):
            raise OpError(f"rope: yarn scaling needs beta_fast > 0 and beta_slow > 0, got {self}")


@dataclass(frozen=True, slots=True)
class RopeAttrs:
    """`pairs` is which elements rotate together: (i, i + dims/2) for neox, (2i, 2i + 1) for interleaved.

    `dims` leading elements of every head rotate, the rest pass through. Positions are below `max_positions`.
    """

    pairs: Literal["neox", "interleaved"]
    dims: int
    base: float
    max_positions: int
    scaling: RopeScaling = RopeScaling()


class Rope(Op):
    """Rotate pairs of elements of each head by angles that grow with the position."""

    name = "rope"
    operands = (
        Operand("x", "T N D"),
        Operand("positions", "T", ("i32",)),
        Operand("factors", "F", ROW_OR_PARAM, optional=True),
    )
    Attrs = RopeAttrs
    inplace = ("x",)

    def infer(
        self, attrs: RopeAttrs, x: TensorType, positions: TensorType, factors: TensorType | None = None
    ) -> TensorType:
        """The type of `x`."""
        if attrs.pairs not in ("neox", "interleaved"):
            raise OpError(f"rope: pairs is {attrs.pairs!r}, expected 'neox' or 'interleaved'")
        if not 0 < attrs.base < math.inf or attrs.max_positions < 1:
            raise OpError(f"rope: base must be above 0 and max_positions at least 1, got {attrs}")
        if attrs.dims % 2 or not 0 < attrs.dims <= x.shape[2]:
            raise OpError(f"rope: dims is {attrs.dims}, expected an even number up to the head dim {x.shape[2]}")
        if factors is not None and factors.shape != (attrs.dims // 2,):
            raise OpError(f"rope: factors has shape {factors.shape}, expected ({attrs.dims // 2},)")
        return x

    def reference(self, attrs: RopeAttrs, x: Array, positions: Array, factors: Array | None = None) -> Array:
        """Angles and rotation in float64."""
        frequencies, amplitude = rope_frequencies(attrs, factors)
        angles = positions.astype(np.float64)[:, None, None] * frequencies
        cos, sin = np.cos(angles) * amplitude, np.sin(angles) * amplitude
        half = attrs.dims // 2
        first, second = (slice(0, half), slice(half, attrs.dims))
        if attrs.pairs == "interleaved":
            first, second = slice(0, attrs.dims, 2), slice(1, attrs.dims, 2)
        out = x.astype(np.float64)
        a, b = out[..., first].copy(), out[..., second].copy()
        out[..., first], out[..., second] = a * cos - b * sin, a * sin + b * cos
        return f32(out)

    def cost(self, attrs: RopeAttrs, out: TensorType, x: TensorType, *_: Any) -> Cost:
        """Four products and two sums a pair; a row's angles are read by every layer."""
        pairs = x.shape[0] * attrs.dims // 2
        return Cost(6 * pairs * x.shape[1], x.nbytes + out.nbytes + 8 * pairs)

    def cases(self) -> Sequence[OpCase]:
        """Both pairings, partial rotation, frequency factors, each scaling, a position far from zero."""
        scalings = {
            "linear": {"kind": "linear", "factor": 4.0},
            "yarn": {"kind": "yarn", "factor": 4.0, "original_context": 64},
            "llama3": {"kind": "llama3", "factor": 8.0, "original_context": 64},
        }
        plain = [
            _case(f"{pairs}_{d}_{dims}", pairs, d, dims, {})
            for pairs in ("neox", "interleaved")
            for d, dims in ((2, 2), (64, 64), (80, 48), (12, 6))
        ]
        scaled = [_case(f"neox_{name}", "neox", 64, 64, s) for name, s in scalings.items()]
        return [*plain, *scaled, _case("factors", "interleaved", 16, 16, {}, factors=True)]


def rope_frequencies(attrs: RopeAttrs, factors: Array | None = None) -> tuple[NDArray[np.float64], float]:
    """Angle per position of each pair `[dims / 2]`, and the amplitude of the rotated pair, in float64.

    Raises OpError naming index and value for a frequency factor that is no positive number, for a frequency that
    float32 can't hold, and for an amplitude whose square it can't hold: an attention score carries it twice.
    """
    if factors is not None and (bad := np.flatnonzero(~((factors > 0) & np.isfinite(factors)))).size:
        raise OpError(f"rope: frequency factor {bad[0]} is {factors[bad[0]]}, expected a positive number")
    with np.errstate(all="ignore"):
        frequencies, amplitude = _scaled(attrs, factors)
    if (bad := np.flatnonzero(~(np.abs(frequencies) <= LARGEST))).size:
        value = frequencies[bad[0]]
        raise OpError(f"rope: the frequency of pair {bad[0]} is {value:.6g}, beyond float32, under {attrs}")
    if not SMALLEST <= amplitude * amplitude <= LARGEST:
        raise OpError(f"rope: the amplitude is {amplitude:.6g}, its square beyond float32, under {attrs.scaling}")
    return frequencies, amplitude


def _scaled(attrs: RopeAttrs, factors: Array | None) -> tuple[NDArray[np.float64], float]:
    exponents = np.arange(0, attrs.dims, 2, dtype=np.float64) / attrs.dims
    frequencies = attrs.base**-exponents
    if factors is not None:
        frequencies = frequencies / factors.astype(np.float64)
    scaling = attrs.scaling
    if scaling.kind == "linear":
        return frequencies / scaling.factor, 1.0
    if scaling.kind == "llama3":
        return _llama3(frequencies, scaling), 1.0
    if scaling.kind == "yarn":
        return _yarn(frequencies, attrs), scaling.attention_factor * (1.0 + 0.1 * math.log(scaling.factor))
    return frequencies, 1.0


def rope_table(attrs: RopeAttrs, factors: Array | None = None) -> NDArray[np.float32]:
    """`[max_positions, 2, dims / 2]` float32: cosines of a position's angles, then sines, times the amplitude.

    Raises OpError as `rope_frequencies`. Float64 values exist for `CHUNK_ROWS` positions at a time only.
    """
    frequencies, amplitude = rope_frequencies(attrs, factors)
    table = np.empty((attrs.max_positions, 2, attrs.dims // 2), np.float32)
    for start in range(0, attrs.max_positions, CHUNK_ROWS):
        rows = table[start : start + CHUNK_ROWS]
        angles = np.arange(start, start + len(rows), dtype=np.float64)[:, None] * frequencies
        rows[:, 0] = np.cos(angles) * amplitude
        rows[:, 1] = np.sin(angles) * amplitude
    return table


def _llama3(frequencies: NDArray[np.float64], scaling: RopeScaling) -> NDArray[np.float64]:
    """Long wavelengths divided by the factor, short ones kept, a linear blend between the two limits."""
    rotations = scaling.original_context * frequencies / (2 * math.pi)
    low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
    keep = np.clip((rotations - low) / (high - low), 0.0, 1.0)
    return keep * frequencies + (1 - keep) * frequencies / scaling.factor


def _yarn(frequencies: NDArray[np.float64], attrs: RopeAttrs) -> NDArray[np.float64]:
    """Pairs that turn more than `beta_fast` times over the trained context are kept, below `beta_slow` divided."""
    if attrs.base <= 1:
        raise OpError(f"rope: yarn scaling needs a base above 1, got {attrs.base}")
    scaling, pair = attrs.scaling, np.arange(attrs.dims // 2, dtype=np.float64)

    def pair_turning(turns: float) -> float:
        return attrs.dims * math.log(scaling.original_context / (turns * 2 * math.pi)) / (2 * math.log(attrs.base))

    start = max(math.floor(pair_turning(scaling.beta_fast)), 0)
    stop = min(math.ceil(pair_turning(scaling.beta_slow)), attrs.dims - 1)
    ramp = np.clip((pair - start) / max(stop - start, 0.001), 0.0, 1.0)
    return (1 - ramp) * frequencies + ramp * frequencies / scaling.factor


def _case(label: str, pairs: str, d: int, dims: int, scaling: Mapping[str, Any], factors: bool = False) -> OpCase:
    operands = (rows(3, 2, d), TensorType((3,), I32, "token"))
    if factors:
        operands = (*operands, TensorType((dims // 2,), F32))
    attrs = {"pairs": pairs, "dims": dims, "base": 10000.0, "max_positions": 512, "scaling": dict(scaling)}
    return OpCase(label, operands, attrs, {"positions": (0, 1, 500)})
