"""What this machine can do at best, on the very threads that run the model: reading, and multiply-adds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from minfer_kernels.cpu.compiler.multipliers import f32_multiplier, int8_multiplier
from minfer_kernels.cpu.runner.tape import Tape, TapeBuilder
from minfer_kernels.cpu.runner.threads import ThreadPool
from minfer_models.bench.stats import Summary

READ_CHUNK = 256
"""Bytes that the read kernel takes at a time."""
AHEAD = (0, 3072)
"""Prefetch distances that are tried, in bytes; the faster one counts."""
LARGE = 1 << 30
"""Bytes of a sweep that no cache helps with, where the machine has four times as much memory."""
SWEEP = 1 << 28
"""Bytes that one timed read moves at least: a few milliseconds."""
STEPS = 1 << 21
SINK_BYTES = 64


def large_sweep(memory: int | None) -> int:
    """Bytes of the largest sweep on a machine with `memory` bytes (None: unknown)."""
    return min(LARGE, (memory or LARGE) // 4)


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Bytes read per second by all threads, sweep after sweep over `bytes` bytes; `ahead` is the prefetch distance."""

    bytes: int
    ahead: int
    rates: tuple[float, ...]
    rate: Summary


@dataclass(frozen=True, slots=True)
class Peak:
    """Multiply-adds per second of all threads, from registers, by the fastest `instruction` there is for them."""

    instruction: str
    rates: tuple[float, ...]
    rate: Summary


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Of `threads` threads together. `weights`: sweeps as large as what a decoded token reads; `large`: larger ones.

    `values`: sweeps as large as a plan's own buffers, by test; what a step writes and reads again lies there.
    """

    threads: int
    weights: Bandwidth
    large: Bandwidth
    values: dict[str, Bandwidth]
    int8: Peak
    f32: Peak


class CeilingMeter:
    """Measures a pool's ceilings, one sample of each per call of `sample`, so that they share rounds with the model.

    `weight_bytes` and `value_bytes` (by test) are the sizes of the sweeps, up to the largest; `memory` is the
    machine's, in bytes.
    """

    def __init__(self, pool: ThreadPool, weight_bytes: int, value_bytes: Mapping[str, int], memory: int | None) -> None:
        self._pool = pool
        large = large_sweep(memory)
        # Ones: pages that were never written to are all the same page of zeros.
        self._source = np.ones(large, np.uint8)
        self._sink = np.zeros(SINK_BYTES * pool.n_threads, np.uint8)
        wanted = {"weights": weight_bytes, "large": large, **{f"values {t}": n for t, n in value_bytes.items()}}
        sizes = {name: min(size, large) for name, size in wanted.items()}
        self._sweeps = {name: [_Sweep(self, size, ahead) for ahead in AHEAD] for name, size in sizes.items()}
        self._int8, self._f32 = (_Multiplier(self, kind) for kind in ("int8", "f32"))
        self._tests = tuple(value_bytes)

    def sample(self) -> None:
        """Measure each ceiling once."""
        for sweeps in self._sweeps.values():
            for sweep in sweeps:
                sweep.sample()
        self._int8.sample()
        self._f32.sample()

    def result(self) -> Ceilings:
        """What all samples so far say; ValueError before the first."""
        best = {name: max(sweeps, key=lambda s: median(s.rates)) for name, sweeps in self._sweeps.items()}
        bandwidths = {name: Bandwidth(s.size, s.ahead, tuple(s.rates), Summary.of(s.rates)) for name, s in best.items()}
        values = {test: bandwidths[f"values {test}"] for test in self._tests}
        peaks = (Peak(m.instruction, tuple(m.rates), Summary.of(m.rates)) for m in (self._int8, self._f32))
        return Ceilings(self._pool.n_threads, bandwidths["weights"], bandwidths["large"], values, *peaks)

    def tape(self, kernel: str, operands: dict[str, Any]) -> Tape:
        """One call of a ceiling kernel."""
        builder = TapeBuilder(self._pool.library)
        builder.emit(kernel, **operands, sink=self._sink.ctypes.data)
        return builder.build()

    def seconds(self, tape: Tape) -> float:
        """How long it takes."""
        start = perf_counter()
        self._pool.run(tape, active=self._pool.n_threads)
        return perf_counter() - start

    @property
    def source(self) -> int:
        """The address of the bytes to read."""
        return self._source.ctypes.data

    @property
    def pool(self) -> ThreadPool:
        """The threads."""
        return self._pool


class _Sweep:
    def __init__(self, meter: CeilingMeter, size: int, ahead: int) -> None:
        self._meter, self.ahead = meter, ahead
        chunks = max(size // READ_CHUNK, meter.pool.n_threads)
        passes = -(-SWEEP // (chunks * READ_CHUNK))
        self.size, self._moved = chunks * READ_CHUNK, chunks * READ_CHUNK * passes
        self._tape = meter.tape(f"ceilings.read[{ahead}]", {"x": meter.source, "chunks": chunks, "passes": passes})
        self.rates: list[float] = []

    def sample(self) -> None:
        self.rates.append(self._moved / self._meter.seconds(self._tape))


class _Multiplier:
    def __init__(self, meter: CeilingMeter, kind: str) -> None:
        machine = meter.pool.library.machine
        multiplier = int8_multiplier(machine) if kind == "int8" else f32_multiplier(machine)
        self.instruction = f"{multiplier.instruction} {multiplier.bits} bits"
        self._meter, self._macs = meter, STEPS * multiplier.macs_per_step * meter.pool.n_threads
        self._tape = meter.tape(f"ceilings.multiply_{kind}", {"steps": STEPS})
        self.rates: list[float] = []

    def sample(self) -> None:
        self.rates.append(self._macs / self._meter.seconds(self._tape))
