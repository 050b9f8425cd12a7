"""What the host CPU can do, and the instruction set that kernels are compiled for."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from enum import StrEnum

import llvmlite.binding as llvm

from minfer_kernels.cpu.compiler.tile_permission import tiles_permitted


class Isa(StrEnum):
    """The instruction sets that SIMD primitives have code for, best first; `PORTABLE` runs anywhere, same bits."""

    AVX512_AMX = "avx512amx"
    AVX512_VNNI = "avx512vnni"
    AVX2 = "avx2"
    PORTABLE = "portable"

    @property
    def includes(self) -> tuple[Isa, ...]:
        """The instruction sets whose code runs on this one, best first."""
        every = tuple(Isa)
        return every[every.index(self) :]

    @property
    def lanes(self) -> int:
        """Float32 lanes of a vector register, and so rows of a group of packed weights."""
        return 16 if Isa.AVX512_VNNI in self.includes else 8


_VNNI = frozenset({"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni", "avx2", "fma", "f16c"})
REQUIRED_FEATURES: dict[Isa, frozenset[str]] = {
    Isa.AVX512_AMX: _VNNI | {"amx-tile", "amx-int8"},
    Isa.AVX512_VNNI: _VNNI,
    Isa.AVX2: frozenset({"avx2", "fma", "f16c"}),
    Isa.PORTABLE: frozenset(),
}
_BEYOND_AVX2 = ("avx512", "avx10", "avxvnni", "avxifma", "amx", "evex512")


@dataclass(frozen=True, slots=True)
class HostFeatures:
    """The host as LLVM sees it: triple, CPU name and the names of its features; `os` as in `platform.system()`."""

    triple: str
    cpu: str
    features: frozenset[str]
    os: str

    @classmethod
    def detect(cls) -> HostFeatures:
        """Ask LLVM about the CPU this process runs on, and the kernel for AMX tiles; without them, no AMX features."""
        enabled = frozenset(name for name, on in llvm.get_host_cpu_features().items() if on)
        if "amx-tile" in enabled and not tiles_permitted():
            enabled = frozenset(name for name in enabled if not name.startswith("amx"))
        return cls(llvm.get_process_triple(), llvm.get_host_cpu_name(), enabled, platform.system().lower())

    @property
    def arch(self) -> str:
        """The architecture part of the triple, e.g. `x86_64` or `aarch64`."""
        return self.triple.partition("-")[0]

    def missing(self, isa: Isa) -> frozenset[str]:
        """Features that `isa` needs and this host lacks."""
        return REQUIRED_FEATURES[isa] - self.features

    def best_isa(self) -> Isa:
        """The fastest instruction set that this host has."""
        return next(isa for isa in Isa if not self.missing(isa))


@dataclass(frozen=True, slots=True)
class Machine:
    """A compile target: which primitives to pick (`isa`) and what LLVM may emit (`cpu`, `features`)."""

    isa: Isa
    triple: str
    cpu: str
    features: str
    os: str

    @classmethod
    def for_isa(cls, host: HostFeatures, isa: Isa) -> Machine:
        """The machine to compile for; ValueError names the features that the host lacks for `isa`.

        A portable build on x86-64 targets the baseline CPU, so that it runs, and is tested, without AVX. An AVX2
        build keeps to what machines without AVX-512 have, so that it is tested as they run it.
        """
        lacking = host.missing(isa)
        if lacking:
            raise ValueError(f"isa {isa} needs {', '.join(sorted(lacking))}, which {host.cpu} lacks")
        if isa is Isa.PORTABLE and host.arch == "x86_64":
            return cls(isa, host.triple, "x86-64", "", host.os)
        kept, dropped = set(host.features), set[str]()
        if isa is Isa.AVX2:
            dropped = {f for f in kept if f.startswith(_BEYOND_AVX2)}
        features = [f"{'-' if f in dropped else '+'}{f}" for f in sorted(kept)]
        return cls(isa, host.triple, host.cpu, ",".join(features), host.os)

    @property
    def arch(self) -> str:
        """The architecture part of the triple."""
        return self.triple.partition("-")[0]
