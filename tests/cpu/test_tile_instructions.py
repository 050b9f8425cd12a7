"""What the AMX build of the matmul kernels consists of, looked at on any x86-64: emitted, never run."""

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
host = HostFeatures("x86_64-unknown-linux-gnu", "sapphirerapids", REQUIRED_FEATURES[Isa.AVX512_AMX], "linux")
compiler = KernelCompiler(Machine.for_isa(host, Isa.AVX512_AMX))
print(json.dumps([compiler.assembly(resolve_kernel(name)) for name in sys.argv[1:]]))
"""
FORMATS = ("q8_0", "q4_1", "q5_k", "q6_k", "f16")
pytestmark = pytest.mark.skipif(
    sys.platform == "darwin", reason="the assembly of another object format is spelled otherwise"
)


@cache
def assembly() -> dict[str, list[str]]:
    names = [f"matmul.matmul[{fmt},16]" for fmt in FORMATS]
    done = subprocess.run([sys.executable, "-c", SCRIPT, *names], capture_output=True, text=True, check=True)
    return {fmt: text.splitlines() for fmt, text in zip(FORMATS, json.loads(done.stdout), strict=True)}


def innermost_loop(lines: list[str], *instructions: str) -> list[str]:
    """The shortest loop that has all of the instructions."""
    places = {m[1]: at for at, line in enumerate(lines) if (m := re.match(r"(\.\w+):", line))}
    jumps = [(places[m[1]], at) for at, line in enumerate(lines) if (m := re.match(r"\s+j\w+\s+(\.\w+)", line))]
    loops = [lines[start : end + 1] for start, end in jumps if start < end]
    whole = [loop for loop in loops if all(any(i in line for line in loop) for i in instructions)]
    assert whole, f"no loop with {instructions}"
    return min(whole, key=len)


@pytest.mark.parametrize(("fmt", "fused"), [("q8_0", 16), ("q4_1", 32)])
def test_a_block_is_multiplied_while_an_earlier_one_is_added_from_registers(fmt: str, fused: int) -> None:
    loop = innermost_loop(assembly()[fmt], "tdpbssd", "vfmadd")
    assert sum("tdpbssd" in line for line in loop) == 1
    assert sum("tilestored" in line for line in loop) == 1
    assert sum("vfmadd" in line for line in loop) == fused
    assert sum("{1to16}" in line for line in loop) == fused
    assert not [line for line in loop if "(%rsp)" in line]


@pytest.mark.parametrize(("fmt", "signs"), [("q5_k", {"sud": 4, "ssd": 5, "usd": 1}), ("q6_k", {"sud": 4, "ssd": 4})])
def test_a_block_of_256_takes_two_tiles_for_every_64_elements(fmt: str, signs: dict[str, int]) -> None:
    lines = assembly()[fmt]
    found = {kind: sum(f"tdpb{kind}" in line for line in lines) for kind in ("sud", "ssd", "usd")}
    assert found == {"sud": 0, "ssd": 0, "usd": 0} | signs


@pytest.mark.parametrize("fmt", FORMATS)
def test_tiles_are_opened_and_closed_together(fmt: str) -> None:
    counts = [sum(name in line for line in assembly()[fmt]) for name in ("ldtilecfg", "tilerelease")]
    assert counts == ([0, 0] if fmt == "f16" else [1, 1])
