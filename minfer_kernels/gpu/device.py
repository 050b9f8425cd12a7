"""What the runtime asks of a device beyond kernels: a queue of work with marks in it, memory, and capture."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Protocol

import torch
from triton import knobs

from minfer_ir.runtime.backend import MemoryInfo
from minfer_ir.runtime.host import host_memory
from minfer_kernels.gpu.targets import INTERPRETER, Target, target_of
from minfer_kernels.gpu.waits import Mark


class Device(Protocol):
    """A device and its queue; everything is queued on the current stream."""

    @property
    def place(self) -> torch.device:
        """Where tensors lie."""
        ...

    @property
    def captures(self) -> bool:
        """Whether launches can be captured into a graph."""
        ...

    @property
    def target(self) -> Target:
        """What tiles are chosen for."""
        ...

    def active(self) -> AbstractContextManager[object]:
        """While open, launches go to this device."""
        ...

    def mark(self) -> Mark:
        """A mark behind everything queued so far."""
        ...

    def host_buffer(self, nbytes: int) -> torch.Tensor:
        """Host bytes that the device copies from and to by itself."""
        ...

    def memory(self) -> MemoryInfo:
        """Total and available bytes, or what the query failed with."""
        ...

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """Record what `work` launches, running none of it; what replays it."""
        ...


class CudaDevice:
    """A CUDA device (or a HIP one, which torch calls so too)."""

    captures = True

    def __init__(self, place: torch.device) -> None:
        self.place = torch.device("cuda", torch.cuda.current_device()) if place.index is None else place
        self._target = cache(
            lambda: target_of(torch.cuda.get_device_capability(self.place), torch.version.hip is not None)
        )

    @property
    def target(self) -> Target:
        """By its compute capability, asked once, on first use: a device can be made where there is no driver."""
        return self._target()

    def active(self) -> AbstractContextManager[object]:
        """Make it the thread's current device."""
        return torch.cuda.device(self.place)

    def mark(self) -> Mark:
        """An event."""
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(self.place))
        return _Event(event)

    def host_buffer(self, nbytes: int) -> torch.Tensor:
        """Pinned bytes."""
        return torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)

    def memory(self) -> MemoryInfo:
        """What the driver reports as free, and what torch's allocator keeps without using it."""
        try:
            free, total = torch.cuda.mem_get_info(self.place)
            unused = torch.cuda.memory_reserved(self.place) - torch.cuda.memory_allocated(self.place)
        except RuntimeError as error:  # after an illegal access every call fails, this one too
            return MemoryInfo(None, None, f"{self.place}: the memory query failed: {error}")
        return MemoryInfo(total, free + unused)

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """A CUDA graph."""
        graph = torch.cuda.CUDAGraph()
        # Other threads (a server's) may allocate meanwhile: only this thread's calls are held to the rules of capture.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            work()
        return graph.replay


class InterpretedDevice:
    """The CPU under Triton's interpreter: whatever was queued is done. `target`: another device's tiles, for tests."""

    captures = False
    place = torch.device("cpu")

    def __init__(self, target: Target = INTERPRETER) -> None:
        self.target = target

    def active(self) -> AbstractContextManager[object]:
        """Nothing to do."""
        return nullcontext()

    def mark(self) -> Mark:
        """Passed at once."""
        return _Done()

    def host_buffer(self, nbytes: int) -> torch.Tensor:
        """Plain bytes."""
        return torch.empty(nbytes, dtype=torch.uint8)

    def memory(self) -> MemoryInfo:
        """The host's."""
        return host_memory()

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """An interpreter's launches can't be recorded."""
        raise NotImplementedError("Triton's interpreter has no graphs")


class _Event:
    """A CUDA event as a mark."""

    def __init__(self, event: torch.cuda.Event) -> None:
        self._event = event

    def passed(self) -> bool:
        return bool(self._event.query())


class _Done:
    """A mark on a device without a queue."""

    def passed(self) -> bool:
        return True


def device_for(place: torch.device) -> Device:
    """The device where `place` is: a CUDA device, or the CPU for the interpreter."""
    return CudaDevice(place) if place.type == "cuda" else InterpretedDevice()


def interpreted() -> bool:
    """Whether this process runs kernels in Triton's interpreter: decided when the first of them is imported."""
    return bool(knobs.runtime.interpret)
