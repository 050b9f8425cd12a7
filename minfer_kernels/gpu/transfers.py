"""Copies between host and device that the host doesn't wait for."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from minfer_ir.opspec import Array
from minfer_kernels.gpu.device import Device
from minfer_kernels.gpu.waits import Mark, Waits
from minfer_kernels.tensors.buffers import to_numpy

PART_ALIGNMENT = 64
"""Bytes between the parts of one host buffer."""


class Download:
    """A copy from the device on its way: `result` waits for it."""

    def __init__(self, held: torch.Tensor, mark: Mark, waits: Waits, site: str) -> None:
        self._held, self._mark, self._waits, self._site = held, mark, waits, site

    def result(self) -> Array:
        """The values, the reader's own; raises DeviceTimeoutError or DeviceError naming the site."""
        self._waits.until(self._mark, self._site)
        return to_numpy(self._held)


class Transfers:
    """The copies of one backend. `asynchronous` False waits for each: one side of an A/B.

    Host buffers come from torch's allocator of pinned memory, which gives none out again before the copies that read it
    are done, and pins anew only until it has enough.
    """

    def __init__(self, device: Device, waits: Waits, asynchronous: bool = True) -> None:
        self._device, self._waits, self._asynchronous = device, waits, asynchronous

    def upload(self, copies: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Copy host values to device windows, (window, values) each, by way of one host buffer.

        The values may change at once.
        """
        starts, need = _packed([values for _, values in copies])
        held = self._device.host_buffer(need)
        for (window, values), start in zip(copies, starts, strict=True):
            nbytes = values.numel() * values.element_size()
            staged = held[start : start + nbytes].view(values.dtype).view(values.shape)
            staged.copy_(values)
            window.copy_(staged, non_blocking=True)
        if not self._asynchronous:
            self.sync("transfer.upload")

    def download(self, window: torch.Tensor, site: str) -> Download:
        """Begin to copy a device window to the host; what is queued later may overwrite it."""
        nbytes = window.numel() * window.element_size()
        held = self._device.host_buffer(nbytes).view(window.dtype).view(window.shape)
        held.copy_(window, non_blocking=True)
        pending = Download(held, self._device.mark(), self._waits, site)
        if not self._asynchronous:
            pending.result()
        return pending

    def sync(self, site: str) -> None:
        """Wait, as long as the limit allows, until everything queued is done."""
        self._waits.until(self._device.mark(), site)


def _packed(parts: Sequence[torch.Tensor]) -> tuple[list[int], int]:
    """Where each part starts within one host buffer, and the bytes of all."""
    starts: list[int] = []
    end = 0
    for part in parts:
        starts.append(end)
        end += -(-part.numel() * part.element_size() // PART_ALIGNMENT) * PART_ALIGNMENT
    return starts, end
