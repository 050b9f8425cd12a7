"""What a device reaches with torch's own copy and product: the ceilings that its kernels are held against."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from minfer_kernels.gpu.datasheets import Datasheet, datasheet_of
from minfer_kernels.gpu.device import Device
from minfer_kernels.gpu.timing import stamps_on
from minfer_kernels.gpu.waits import Waits

COPY_BYTES, MATRIX_SIDE = 2 << 30, 8192
"""Of what is copied, more than any cache holds, and of what is multiplied."""
TOY_BYTES, TOY_SIDE = 1 << 20, 128
"""In the interpreter, where tensors lie on the CPU."""
RUNS = 10


class Peaks:
    """Measures one device; `datasheet` is what its maker says of it, None where it isn't listed."""

    def __init__(self, on: Device) -> None:
        self._on, self._waits = on, Waits()
        real = on.place.type == "cuda"
        n_bytes, side = (COPY_BYTES, MATRIX_SIDE) if real else (TOY_BYTES, TOY_SIDE)
        place: dict[str, Any] = {"device": on.place}
        self._source = torch.ones(n_bytes, dtype=torch.uint8, **place)
        self._target = torch.empty_like(self._source)
        self._a, self._b = (torch.randn(side, side, **place).to(torch.float16) for _ in range(2))
        self.datasheet: Datasheet | None = datasheet_of(torch.cuda.get_device_name(on.place)) if real else None

    def copied(self) -> float:
        """Bytes per second, read and written ones."""
        return 2 * self._source.numel() / self._seconds(lambda: self._target.copy_(self._source))

    def multiplied(self) -> float:
        """Multiply-adds per second of a dense float16 product."""
        return self._a.shape[0] ** 3 / self._seconds(lambda: self._a @ self._b)

    def _seconds(self, work: Callable[[], object]) -> float:
        """Of one run, the mean of several in a row."""
        with self._on.active():
            work()
            stamps = stamps_on(self._on.place)
            stamps.stamp()
            for _ in range(RUNS):
                work()
            stamps.stamp()
            self._waits.until(self._on.mark(), "gpu.peaks")
        return stamps.between()[0] / RUNS
