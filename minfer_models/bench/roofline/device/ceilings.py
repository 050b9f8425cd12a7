"""Measuring what a device can do at best, by torch's own copy and product."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from minfer_kernels.gpu.backend import GpuBackend
from minfer_kernels.gpu.datasheets import Datasheet, datasheet_of
from minfer_kernels.gpu.timing import stamps_on
from minfer_kernels.gpu.waits import Waits
from minfer_models.bench.roofline.device.limits import DeviceCeilings, Rate
from minfer_models.bench.stats import Summary

COPY_BYTES, MATRIX_SIDE = 2 << 30, 8192
"""Of what is copied, more than any cache holds, and of what is multiplied."""
TOY_BYTES, TOY_SIDE = 1 << 20, 128
"""In the interpreter, where tensors lie on the CPU."""
RUNS = 10


class DeviceMeter:
    """Measures both, one sample a call of `sample`, so that they share rounds with the model."""

    def __init__(self, backend: GpuBackend) -> None:
        self._on, self._waits = backend.on, Waits()
        real = backend.device.type == "cuda"
        n_bytes, side = (COPY_BYTES, MATRIX_SIDE) if real else (TOY_BYTES, TOY_SIDE)
        place: dict[str, Any] = {"device": backend.device}
        self._source = torch.ones(n_bytes, dtype=torch.uint8, **place)
        self._target = torch.empty_like(self._source)
        self._a, self._b = (torch.randn(side, side, **place).to(torch.float16) for _ in range(2))
        self._sheet: Datasheet | None = datasheet_of(torch.cuda.get_device_name(backend.device)) if real else None
        self._copies: list[float] = []
        self._products: list[float] = []

    def sample(self) -> None:
        """Measure each once."""
        self._copies.append(2 * self._source.numel() / self._seconds(lambda: self._target.copy_(self._source)))
        self._products.append(self._a.shape[0] ** 3 / self._seconds(lambda: self._a @ self._b))

    def result(self) -> DeviceCeilings:
        """What all samples so far say; ValueError before the first."""
        sheet = self._sheet
        return DeviceCeilings(
            Rate(Summary.of(self._copies), None if sheet is None else sheet.bandwidth),
            Rate(Summary.of(self._products), None if sheet is None else sheet.dense_f16 / 2),
        )

    def _seconds(self, work: Callable[[], object]) -> float:
        """Of one run, the mean of several in a row."""
        with self._on.active():
            work()
            stamps = stamps_on(self._on.place)
            stamps.stamp()
            for _ in range(RUNS):
                work()
            stamps.stamp()
            self._waits.until(self._on.mark(), "bench.ceilings")
        return stamps.between()[0] / RUNS
