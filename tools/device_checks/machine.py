"""The device under test, or the interpreter in its place: clocks, and what the device could do at best."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from minfer_kernels.gpu.datasheets import datasheet_of


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Measured: `copy` bytes per second, read and written ones; `matrix` float16 operations per second. From the data
    sheet, 0 where there is none: `bandwidth`, `dense`; in a dry run what was measured stands in for it."""

    copy: float
    matrix: float
    bandwidth: float = 0.0
    dense: float = 0.0

    def save(self, path: Path) -> None:
        """For the parts that come after."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Ceilings:
        """What `save` wrote."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))

    def of_bytes(self, rate: float) -> dict[str, float]:
        """Shares of a rate in bytes per second."""
        sheet = {"datasheet bandwidth": rate / self.bandwidth} if self.bandwidth else {}
        return {"copy bandwidth": rate / self.copy, **sheet}

    def of_work(self, rate: float) -> dict[str, float]:
        """Shares of a rate in operations per second."""
        sheet = {"dense f16 rate": rate / self.dense} if self.dense else {}
        return {"matrix rate": rate / self.matrix, **sheet}


@dataclass(frozen=True, slots=True)
class Machine:
    """`dry`: Triton's interpreter on the CPU, with toy sizes."""

    dry: bool

    @property
    def device(self) -> torch.device:
        """Where everything runs."""
        return torch.device("cpu") if self.dry else torch.device("cuda", 0)

    def sync(self) -> None:
        """Wait for the device."""
        if not self.dry:
            torch.cuda.synchronize()

    def seconds(self, work: Callable[[], object], runs: int = 20, rounds: int = 5, warm: int = 5) -> float:
        """Seconds of one run by the device's clock: the median of rounds of `runs`, after `warm` untimed ones."""
        if self.dry:
            runs, rounds, warm = 1, 1, 0
        for _ in range(warm):
            work()
        self.sync()
        return statistics.median(self._round(work, runs) for _ in range(rounds))

    def _round(self, work: Callable[[], object], runs: int) -> float:
        if self.dry:
            start = time.perf_counter()
            work()
            return time.perf_counter() - start
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for _ in range(runs):
            work()
        last.record()
        last.synchronize()
        return first.elapsed_time(last) / 1e3 / runs

    def wall_seconds(self, work: Callable[[], object], runs: int = 20, rounds: int = 3) -> float:
        """Seconds of one run by the host's clock, the device drained before and after: with everything around it."""
        runs, rounds = (1, 1) if self.dry else (runs, rounds)
        times: list[float] = []
        for _ in range(rounds):
            self.sync()
            start = time.perf_counter()
            for _ in range(runs):
                work()
            self.sync()
            times.append((time.perf_counter() - start) / runs)
        return statistics.median(times)

    def ceilings(self) -> Ceilings:
        """Measure them."""
        n_bytes, side = (1 << 20, 128) if self.dry else (4 << 30, 8192)
        source = torch.randint(0, 255, (n_bytes,), dtype=torch.uint8, device=self.device)
        target = torch.empty_like(source)
        copy = 2 * n_bytes / self.seconds(lambda: target.copy_(source))
        a, b = (torch.randn(side, side, device=self.device, dtype=torch.float16) for _ in range(2))
        matrix = 2 * side**3 / self.seconds(lambda: a @ b)
        dense, bandwidth = (matrix, copy) if self.dry else self.datasheet()
        return Ceilings(copy, matrix, bandwidth, dense)

    def datasheet(self) -> tuple[float, float]:
        """(dense float16 operations, bytes) per second, 0 for a device that isn't listed."""
        sheet = datasheet_of(torch.cuda.get_device_name(0))
        return (0.0, 0.0) if sheet is None else (sheet.dense_f16, sheet.bandwidth)
