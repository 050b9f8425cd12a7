"""A small program on the GPU backend, and a device whose queue a test drives by hand."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch

from minfer_ir.builder import GraphBuilder
from minfer_ir.runtime.backend import Binding, BufRef, MemoryInfo, Split
from minfer_ir.types import TensorType
from minfer_kernels.gpu.backend import GpuBackend, GpuProgram
from minfer_kernels.gpu.targets import INTERPRETER

SHAPE = (3, 40)


class Doubled:
    """(x + x) * 2 in one program over its own buffers."""

    def __init__(self, backend: GpuBackend) -> None:
        self.backend = backend
        b = GraphBuilder()
        x = b.input(key="x", shape=SHAPE, dtype="f32", rows="token")
        b.output(b.scale(b.add(x, x, name="sum"), factor=2.0, name="twice"))
        self.graph = b.build()
        self.refs = {n.id: self._buffer(n.type) for n in self.graph}
        self.n_rows = BufRef(backend.allocate(8), 0, 8, (4,))
        computed = tuple(n.id for n in self.graph if not n.is_leaf())
        split = Split(0, backend.name, computed, ())
        self.program: GpuProgram = backend.compile(self.graph, split, Binding(self.refs, {}, self.n_rows))

    def _buffer(self, kind: TensorType) -> BufRef:
        return BufRef(self.backend.allocate(kind.nbytes), 0, kind.nbytes, kind.strides)

    def fill(self, value: float, rows: int = SHAPE[0]) -> None:
        x = self.graph.nodes[0]
        values = np.full(SHAPE, value, np.float32)
        self.backend.write_all([(self.refs[x.id], values), (self.n_rows, np.array([rows, 0], np.int32))])

    def run(self, value: float, rows: int = SHAPE[0]) -> np.ndarray:
        self.fill(value, rows)
        self.program.run()
        return self.result()

    def result(self) -> np.ndarray:
        last = self.graph.nodes[-1]
        return self.backend.read(self.refs[last.id], last.type)


class HandMark:
    """Passed when the test says so, or with what the device reports."""

    def __init__(self, device: HandDevice) -> None:
        self._device = device
        self.asked = 0

    def passed(self) -> bool:
        self.asked += 1
        if self._device.error is not None:
            raise RuntimeError(self._device.error)
        return self._device.done or self.asked > self._device.polls


class HandDevice:
    """The CPU as a device that captures, and whose marks pass after `polls` questions or once `done`."""

    captures = True
    place = torch.device("cpu")
    target = INTERPRETER

    def __init__(self, done: bool = True) -> None:
        self.done, self.polls, self.error = done, 1 << 30, None
        self.marks: list[HandMark] = []
        self.recorded = 0
        self.info = MemoryInfo(None, None)

    def active(self) -> AbstractContextManager[object]:
        return nullcontext()

    def mark(self) -> HandMark:
        self.marks.append(HandMark(self))
        return self.marks[-1]

    def host_buffer(self, nbytes: int) -> torch.Tensor:
        return torch.empty(nbytes, dtype=torch.uint8)

    def memory(self) -> MemoryInfo:
        return self.info

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """Recording runs the work too (it cannot be helped here), replaying runs it again."""
        work()
        self.recorded += 1
        return work


class HandClock:
    """Seconds that pass only while somebody sleeps, and a thousandth for every look."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        self.now += 0.001
        return self.now

    def pause(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
