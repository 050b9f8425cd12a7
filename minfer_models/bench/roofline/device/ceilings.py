"""Measuring what a device can do at best."""

from __future__ import annotations

from minfer_kernels.gpu.backend import GpuBackend
from minfer_kernels.gpu.peaks import Peaks
from minfer_models.bench.roofline.device.limits import DeviceCeilings, Rate
from minfer_models.bench.stats import Summary


class DeviceMeter:
    """Measures both ceilings, one sample a call of `sample`, so that they share rounds with the model."""

    def __init__(self, backend: GpuBackend) -> None:
        self._peaks = Peaks(backend.on)
        self._copies: list[float] = []
        self._products: list[float] = []

    def sample(self) -> None:
        """Measure each once."""
        self._copies.append(self._peaks.copied())
        self._products.append(self._peaks.multiplied())

    def result(self) -> DeviceCeilings:
        """What all samples so far say; ValueError before the first."""
        sheet = self._peaks.datasheet
        return DeviceCeilings(
            Rate(Summary.of(self._copies), None if sheet is None else sheet.bandwidth),
            Rate(Summary.of(self._products), None if sheet is None else sheet.dense_f16 / 2),
        )
