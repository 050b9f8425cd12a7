"""Parts "models" and "capture": tiny models on the device, against recorded CPU logits and against themselves."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from minfer_kernels.gpu.backend import GpuBackend
from tools.device_checks.machine import Machine
from tools.device_checks.results import Result, say
from tools.device_checks.tiny import Logits, Recorded, TinyModel, run_tiny

MODELS, CAPTURE = "models", "capture"
KL_MEAN, KL_MOST, CLEAR = 5e-3, 5e-2, 0.5
"""How far logits (nats; logits between the two best tokens) may be from the CPU's.

The CPU backend rounds activations to 8-bit blocks before every matrix product; on the device the rows of a prompt are
rounded to float16 instead, decode rows as on the CPU. Each is within KL 1e-3 to 3e-3 of exact activations.
"""


def run_models(machine: Machine, recorded: Recorded, name: str) -> None:
    """Every cell type of one model."""
    for model in (m for m in recorded.models() if m.name == name):
        tokens = recorded.tokens(model)
        ours = run_tiny(recorded.path(model), GpuBackend(machine.device), model, tokens).logits
        say(judged(model, recorded.logits(model), ours))


def judged(model: TinyModel, reference: Logits, ours: Logits) -> Result:
    """Whether two models' logits over the same tokens agree within the class."""
    if not np.isfinite(ours).all():
        return Result(MODELS, str(model), "FAILED", detail=f"{np.sum(~np.isfinite(ours))} logits aren't finite")
    kl = divergence(reference, ours)
    second, first = np.partition(reference, -2, axis=1)[:, -2:].T
    clear = first - second >= CLEAR
    same = reference.argmax(axis=1) == ours.argmax(axis=1)
    good = kl.mean() < KL_MEAN and kl.max() < KL_MOST and same[clear].all()
    detail = f"largest KL {kl.max():.2g}, top-1 {same.mean():.1%} ({same[clear].mean():.1%} where clear)"
    detail += f", largest difference {np.abs(reference - ours).max():.3g}"
    return Result(MODELS, str(model), "ok" if good else "FAILED", kl.mean(), "nats", {}, f"< {KL_MEAN}", detail)


def divergence(reference: Logits, ours: Logits) -> NDArray[np.float64]:
    """KL(reference || ours) in nats, by position."""
    p, q = _log_softmax(reference), _log_softmax(ours)
    return (np.exp(p) * (p - q)).sum(axis=1)


def _log_softmax(logits: Logits) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def run_capture(machine: Machine, recorded: Recorded) -> None:
    """The same bits from captured graphs as from single launches, and graphs that were really replayed."""
    for model in {m.name: m for m in recorded.models()}.values():
        path, tokens = recorded.path(model), recorded.tokens(model)
        plain = run_tiny(path, GpuBackend(machine.device, capture=False), model, tokens)
        captured = run_tiny(path, GpuBackend(machine.device, capture=True), model, tokens)
        equal = np.array_equal(plain.logits, captured.logits)
        replayed = captured.replays > 0 or machine.dry
        detail = f"{captured.replays} replays and {plain.replays} without capture"
        if not equal:
            detail += f"; largest difference {np.abs(plain.logits - captured.logits).max():.3g}"
        say(Result(CAPTURE, str(model), "ok" if equal and replayed else "FAILED", goal="equal bits", detail=detail))
