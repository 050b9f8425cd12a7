"""Compile one configuration and read its figures. Only for processes in which kernels aren't interpreted."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from minfer_kernels.gpu.configuration import Configuration
from minfer_kernels.gpu.gate import amdgcn, sass
from minfer_kernels.gpu.gate.figures import Figures
from minfer_kernels.gpu.gate.flow import Code, innermost_loops
from minfer_kernels.gpu.targets import Target

# in a configuration these switch on inline PTX; other vendors take the arithmetic way
PTX_SWITCHES = ("DP4A", "PTX")


@dataclass(frozen=True, slots=True)
class _Kinds:
    """How a vendor's opcodes are told apart."""

    width: Callable[[str], int | None]
    dot: Callable[[str], bool]
    tensor: Callable[[str], bool]
    integer: Callable[[str], bool]


_SASS = _Kinds(sass.load_width, sass.is_dot, sass.is_tensor, sass.is_integer)
_AMDGCN = _Kinds(amdgcn.load_width, amdgcn.is_dot, amdgcn.is_tensor, amdgcn.is_integer)


def source_of(configuration: Configuration, target: Target) -> ASTSource:
    """What Triton is given; ValueError for a parameter that the configuration leaves open or invents."""
    names: list[str] = configuration.kernel.arg_names
    given = {*configuration.signature, *configuration.constants}
    if given != set(names):
        missing, unknown = sorted(set(names) - given), sorted(given - set(names))
        raise ValueError(
            f"{configuration.name}: parameters without a type or value: {missing}; unknown ones: {unknown}"
        )
    if strange := sorted(set(configuration.divisible) - set(configuration.signature)):
        raise ValueError(f"{configuration.name}: divisible names no run-time parameters: {strange}")
    signature = {name: configuration.signature.get(name, "constexpr") for name in names}
    attrs = {(names.index(name),): [["tt.divisibility", 16]] for name in configuration.divisible}
    return ASTSource(configuration.kernel, signature, _constants(configuration, target), attrs)


def _constants(configuration: Configuration, target: Target) -> dict[str, Any]:
    off = PTX_SWITCHES if target.backend == "hip" else ()
    return {name: False if name in off else value for name, value in configuration.constants.items()}


def options_of(configuration: Configuration) -> dict[str, Any]:
    """Compiler options. Products and sums may fuse: said here because Triton's default differs between versions."""
    return {"num_warps": configuration.warps, "num_stages": configuration.stages, "enable_fp_fusion": True}


def compile_figures(configuration: Configuration, target: Target) -> Figures:
    """Raises what Triton's compiler raises, ValueError for a configuration that doesn't fit its kernel."""
    device = GPUTarget(target.backend, target.arch, target.warp_size)
    source = source_of(configuration, target)
    compiled = triton.compile(source, target=device, options=options_of(configuration))
    threads = compiled.metadata.num_warps * target.warp_size
    if target.backend == "hip":
        text = compiled.asm["amdgcn"]
        registers, stack, spills = amdgcn.read_usage(text)
        return _figures(amdgcn.read_code(text), _AMDGCN, registers, stack, spills, compiled.metadata.shared, threads)
    usage, listing = _disassembled(compiled.asm["cubin"])
    code = sass.read_code(listing)
    spills = sass.count((i.opcode for i in code.instructions), sass.SPILLS)
    return _figures(code, _SASS, *sass.read_usage(usage), spills, compiled.metadata.shared, threads)


def _figures(code: Code, kinds: _Kinds, registers: int, stack: int, spills: int, shared: int, threads: int) -> Figures:
    every = [i.opcode for i in code.instructions if i.opcode != "NOP"]
    loop = _loop_of_interest([[i.opcode for i in body] for body in innermost_loops(code)], kinds)
    there = loop or every
    full = Counter(every)
    return Figures(
        registers=registers,
        stack=stack,
        spills=spills,
        shared=shared,
        threads=threads,
        instructions=len(every),
        loop=len(loop),
        loads=dict(Counter(width for width in map(kinds.width, there) if width is not None)),
        dp4a=sum(map(kinds.dot, there)),
        tensor=sum(map(kinds.tensor, there)),
        integers=sum(map(kinds.integer, there)),
        histogram=dict(sorted(Counter(opcode.split(".")[0] for opcode in every).items())),
        digest=hashlib.sha256(repr(sorted(full.items())).encode()).hexdigest()[:12],
    )


def _loop_of_interest(loops: Sequence[list[str]], kinds: _Kinds) -> list[str]:
    """The loop that `Figures` is about; without one, nothing."""

    def weight(loop: list[str]) -> tuple[int, int, int]:
        products = sum(kinds.dot(opcode) or kinds.tensor(opcode) for opcode in loop)
        return products, sum(kinds.width(opcode) is not None for opcode in loop), len(loop)

    # a lone jump to itself is the trap at the end of every program
    return max((loop for loop in loops if len(loop) > 1), key=weight, default=[])


def _disassembled(cubin: bytes) -> tuple[str, str]:
    """(resource usage, listing) from the tools inside Triton's package."""
    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        usage = subprocess.run([tools / "cuobjdump", "-res-usage", path], capture_output=True, text=True, check=True)
        listing = subprocess.run([tools / "nvdisasm", "-c", path], capture_output=True, text=True, check=True)
    return usage.stdout + usage.stderr, listing.stdout
