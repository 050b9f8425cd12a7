"""The backends of docs/SUPPORT-MATRIX.md: every one of ours that runs without a GPU."""

from __future__ import annotations

from minfer_ir.runtime.numpy_backend import NumpyBackend
from minfer_ir.testing.support_matrix import Column, support_matrix_text
from minfer_kernels.cpu.backend import CpuBackend
from minfer_kernels.cpu.limits import why_not


def page() -> str:
    """The page's text. The CPU backend answers without being made: that would start its threads."""
    return support_matrix_text([Column(CpuBackend.name, CpuBackend.capabilities, why_not), NumpyBackend()])
