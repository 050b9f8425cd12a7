"""The kernels that measure ceilings do all of the work that they are credited with."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from cpu_harness import ISAS, Array, Runner

from minfer_kernels.cpu.compiler.features import Isa
from minfer_kernels.cpu.compiler.multipliers import CHAINS, f32_multiplier, int8_multiplier

Cpu = Mapping[Isa, Runner]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("ahead", [0, 3072])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_every_byte_is_read_in_every_pass(cpu: Cpu, isa: Isa, ahead: int, n_threads: int) -> None:
    chunks, passes = 10, 3
    values = np.random.default_rng(0).integers(1, 1000, 64 * chunks).astype(np.float32)
    sink = np.zeros((n_threads, 8), np.float32)
    cpu[isa].run(f"ceilings.read[{ahead}]", n_threads, x=values, sink=sink, chunks=chunks, passes=passes)
    by_lane = values.reshape(-1, 8).sum(axis=0) * passes
    assert sink.sum(axis=0).tolist() == by_lane.tolist()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("steps", [0, 1, 2, 7])
def test_int8_steps_multiply_every_byte(cpu: Cpu, isa: Isa, steps: int) -> None:
    multiplier = int8_multiplier(cpu[isa].library.machine)
    sink = np.zeros((2, 64), np.uint8)
    cpu[isa].run("ceilings.multiply_int8", 2, sink=sink, steps=steps)
    chains = [_int8_chain(multiplier.instruction, multiplier.bits, n + 1, steps) for n in range(CHAINS)]
    expected = np.bitwise_xor.reduce(chains).view(np.uint8)
    for written in sink[:, : multiplier.bits // 8]:
        assert written.tolist() == expected.tolist()
    assert multiplier.macs_per_step == CHAINS * multiplier.bits // 8


def _int8_chain(instruction: str, bits: int, start: int, steps: int) -> Array:
    """int32 lanes that start at `start` and take in three times their own bytes, as the instruction sums them."""
    lanes = np.full(bits // 32, start, np.int32)
    for _ in range(steps):
        products = 3 * lanes.view(np.int8).astype(np.int32)
        if instruction == "vpdpbusd":
            lanes = lanes + products.reshape(-1, 4).sum(axis=1, dtype=np.int32)
        else:
            pairs = products.reshape(-1, 2).sum(axis=1).astype(np.int16)
            lanes = (lanes.view(np.int16) + pairs).view(np.int32)
    return lanes


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("steps", [0, 1, 5])
def test_f32_steps_multiply_every_lane(cpu: Cpu, isa: Isa, steps: int) -> None:
    multiplier = f32_multiplier(cpu[isa].library.machine)
    sink = np.zeros((1, 16), np.float32)
    cpu[isa].run("ceilings.multiply_f32", 1, sink=sink, steps=steps)
    # Towards 2 by halves: exact in float32 for a few steps.
    expected = sum(2 + (n + 1) / 2**steps for n in range(CHAINS))
    assert sink[0, : multiplier.bits // 32].tolist() == [expected] * (multiplier.bits // 32)
    assert multiplier.macs_per_step == CHAINS * multiplier.bits // 32
