"""What the AVX-512-VNNI build of the matmul kernels consists of, looked at on any x86-64: emitted, never run.

A process of its own compiles them, because a backend that lacks a feature ends its process.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import cache

import pytest

SCRIPT = """
import json, sys
from minfer_kernels.cpu.compiler.compile import KernelCompiler
from minfer_kernels.cpu.compiler.features import HostFeatures, Isa, Machine, REQUIRED_FEATURES
from minfer_kernels.cpu.compiler.kernel import resolve_kernel
host = HostFeatures("x86_64-unknown-linux-gnu", "icelake-server", REQUIRED_FEATURES[Isa.AVX512_VNNI], "linux")
compiler = KernelCompiler(Machine.for_isa(host, Isa.AVX512_VNNI))
names = sys.argv[1:]
print(json.dumps([compiler.assembly(resolve_kernel(name)) for name in names]))
"""
TILE_TOKENS, QUADS = 8, 8
# Instructions that multiply in a loop over one run and the tokens of the largest tile.
HOT_LOOPS = {
    "q4_0": ("vpdpbusd", TILE_TOKENS * QUADS),
    "q8_0": ("vpdpbusd", TILE_TOKENS * QUADS),
    "q5_k": ("vpdpbusd", TILE_TOKENS * QUADS),
    "q6_k": ("vpdpbusd", TILE_TOKENS * QUADS),
    "f16": ("vfmadd231ps", TILE_TOKENS * 2),
}


@cache
def assembly() -> dict[str, list[str]]:
    names = [f"matmul.matmul[{fmt},16]" for fmt in HOT_LOOPS]
    done = subprocess.run([sys.executable, "-c", SCRIPT, *names], capture_output=True, text=True, check=True)
    return {fmt: text.splitlines() for fmt, text in zip(HOT_LOOPS, json.loads(done.stdout), strict=True)}


def innermost_loop(lines: list[str], instruction: str, count: int) -> list[str]:
    """The shortest loop with at least `count` of the instruction."""
    places = {m[1]: at for at, line in enumerate(lines) if (m := re.match(r"(\.\w+):", line))}
    jumps = [(places[m[1]], at) for at, line in enumerate(lines) if (m := re.match(r"\s+j\w+\s+(\.\w+)", line))]
    loops = [lines[start : end + 1] for start, end in jumps if start < end]
    hot = [loop for loop in loops if sum(instruction in line for line in loop) >= count]
    assert hot, f"no loop with {count} {instruction}"
    return min(hot, key=len)


@pytest.mark.skipif(sys.platform == "darwin", reason="the assembly of another object format is spelled otherwise")
@pytest.mark.parametrize("fmt", HOT_LOOPS)
def test_the_largest_tile_multiplies_from_memory_and_keeps_its_sums_in_registers(fmt: str) -> None:
    instruction, count = HOT_LOOPS[fmt]
    loop = innermost_loop(assembly()[fmt], instruction, count)
    multiplying = [line for line in loop if instruction in line]
    assert len(multiplying) <= count + TILE_TOKENS
    assert all("%zmm" in line for line in multiplying)
    assert sum("{1to16}" in line for line in multiplying) >= count
    assert not [line for line in loop if "zmm" in line and "(%rsp)" in line]
    assert not [line for line in loop if re.match(r"\s+vmov\w+\s+%zmm\d+, %zmm", line)]
