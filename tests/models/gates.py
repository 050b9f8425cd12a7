"""How far a model's logits may be from the independent implementation's, and why; the one place for these numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from minfer_models.engine import Logits

KL_MEAN = 5e-3
KL_P99 = 5e-2
TOP_1 = 0.955
TOP_1_CLEAR = 0.995
"""Activations rounded to 8-bit blocks before every matrix product; measured mean KL 0.001 to 0.003.

Rounding the inputs of Hugging Face's own linear layers in the same way gives the same distances, so they are the
format's and not a kernel's. The most likely token is another one at near ties: 96 to 97.5 % agree over ordinary prose,
half a percent either way by chance over 512 positions, so a change of the order of sums moves it. Where the two best
are `CLEAR` apart hardly any may differ.
"""

CLEAR = 0.5
"""Logits between the reference's two best tokens from which they are no near tie: several times what rounding moves."""

EXCESS = 1.25
"""Our mean KL over that of Hugging Face with rounded inputs: two samples of one noise over 512 positions."""

EXACT = 1e-2
"""Without that rounding both sides compute in float32; they differ by the order of sums. Measured 1.1e-4 on SmolLM2."""


@dataclass(frozen=True, slots=True)
class GpuClass:
    """Of mean KL, and of any logit; with the `cause`."""

    kl_mean: float
    largest: float
    cause: str


GPU_CLASS = GpuClass(
    1e-2,
    1.0,
    "8-bit activations up to 16 rows as on the CPU, beyond that activations and weights in float16 where the CPU has 8 "
    "bits; cells then hold slightly other keys and values, and 8-bit ones round those apart",
)
"""For tiny models, whose logits spread by 3. Measured 0.0010 and 0.38 with float cells, 0.0030 and 0.47 with packed."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """Of logits `[n, n_vocab]` from a reference: KL(reference || ours) per position in nats, and how often the most
    likely token is the same: anywhere, and where the reference's two best are `CLEAR` apart."""

    kl: NDArray[np.float64]
    top_1: float
    top_1_clear: float
    largest: float

    def __str__(self) -> str:
        return (
            f"KL mean {self.kl.mean():.5f}, 99th percentile {np.quantile(self.kl, 0.99):.5f}, "
            f"top-1 {100 * self.top_1:.2f} % ({100 * self.top_1_clear:.2f} % where clear), "
            f"largest |dlogit| {self.largest:.5f} over {len(self.kl)} positions"
        )

    def passes(self) -> bool:
        """Whether this is within what 8-bit activations explain."""
        near = self.kl.mean() < KL_MEAN and np.quantile(self.kl, 0.99) < KL_P99
        return bool(near and self.top_1 >= TOP_1 and self.top_1_clear >= TOP_1_CLEAR)


def divergence(reference: Logits, ours: Logits) -> Divergence:
    """Compare two models over the same tokens."""
    assert reference.shape == ours.shape
    assert np.isfinite(reference).all()
    assert np.isfinite(ours).all()
    same = reference.argmax(axis=1) == ours.argmax(axis=1)
    second, first = np.partition(reference, -2, axis=1)[:, -2:].T
    clear = first - second >= CLEAR
    assert clear.any()
    largest = float(np.abs(reference - ours).max(initial=0))
    return Divergence(np.array(list(_kl(reference, ours))), float(same.mean()), float(same[clear].mean()), largest)


def _kl(reference: Logits, ours: Logits) -> Iterator[float]:
    for row, other in zip(reference, ours, strict=True):
        p, q = _log_softmax(row), _log_softmax(other)
        yield float((np.exp(p) * (p - q)).sum())


def _log_softmax(row: Logits) -> NDArray[np.float64]:
    shifted = row.astype(np.float64) - row.max()
    return shifted - np.log(np.exp(shifted).sum())
