"""Kernels by name, ready to call: from the disk cache where it has them, else compiled and stored."""

from __future__ import annotations

import itertools
import logging
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import llvmlite.binding as llvm

from minfer_kernels.cpu.compiler.features import HostFeatures, Isa, Machine
from minfer_kernels.cpu.compiler.kernel import Operand, check_kernel_name, resolve_kernel, stored_name, symbol_of
from minfer_kernels.cpu.compiler.object_cache import CacheInfo, ObjectCache, StoredKernel, cache_key
from minfer_kernels.cpu.compiler.workers import CompileWorkers, WorkerEndedError

if TYPE_CHECKING:
    from minfer_kernels.cpu.compiler.compile import KernelCompiler

log = logging.getLogger(__name__)

OnCompile = Callable[[str, int, int], None]
"""Called before a kernel compiles, with its name, its number from 1, and how many will compile."""


@dataclass(frozen=True, slots=True)
class LoadedKernel:
    """Native code at `address`, called as `void(args, tid, n_threads)`; valid while this object lives."""

    name: str
    address: int
    operands: tuple[Operand, ...]
    owner: object = field(repr=False, compare=False)


class KernelLibrary:
    """The kernels of one instruction set (the host's best when None), loaded at most once each.

    A process that finds every kernel in `cache_dir` never imports numba, and reads one file. `cache_dir=None` caches
    nothing on disk. With `processes` that many others compile what is missing, so that this one needs no numba either;
    a process that has imported it anyway compiles by itself, as it does, with a warning, what an ended process left.
    """

    def __init__(
        self,
        isa: Isa | None = None,
        cache_dir: Path | None = None,
        on_compile: OnCompile | None = None,
        processes: int = 0,
    ) -> None:
        host = HostFeatures.detect()
        self.machine = Machine.for_isa(host, isa or host.best_isa())
        self._cache = ObjectCache(cache_dir, cache_key(self.machine))
        self._on_compile = on_compile
        self._workers = CompileWorkers(processes, self.machine.isa.value) if processes else None
        self._stored: dict[str, StoredKernel] = {}
        self._declared: dict[str, tuple[Operand, ...]] = {}
        self._loaded: dict[str, LoadedKernel] = {}
        self._lock = threading.RLock()
        self._link_number = itertools.count()

    @property
    def isa(self) -> Isa:
        """The instruction set of this library's kernels."""
        return self.machine.isa

    @property
    def cache_problem(self) -> str | None:
        """Why compiled kernels could not be stored, if they could not."""
        return self._cache.problem

    def load(self, names: Iterable[str]) -> dict[str, LoadedKernel]:
        """The named kernels; ValueError for a name that is no kernel. Compiles what the cache lacks."""
        wanted = {name: stored_name(name) for name in names}
        with self._lock:
            absent = [name for name in dict.fromkeys(wanted.values()) if name not in self._loaded]
            self._compile([name for name in absent if self._find(name) is None])
            self._link({name: self._stored[name] for name in absent})
            if not self._bundled.issuperset(absent):
                self._bundled.update(absent)
                self._cache.store_bundle({name: self._stored[name] for name in sorted(self._bundled)})
            return {name: self._loaded[stored] for name, stored in wanted.items()}

    def operands(self, name: str) -> tuple[Operand, ...]:
        """The operands of a kernel, without compiling it; ValueError for a name that is no kernel."""
        name = stored_name(name)
        with self._lock:
            stored = self._find(name)
            if stored is None and name not in self._declared:
                self._declared[name] = self._operands_declared(name)
        return stored.operands if stored is not None else self._declared[name]

    def cache_info(self) -> CacheInfo:
        """What the cache directory holds."""
        return self._cache.info()

    def clear(self) -> None:
        """Empty the cache directory; loaded kernels stay loaded."""
        self._cache.clear()

    def assembly(self, name: str) -> str:
        """The kernel's assembly text, compiled afresh."""
        return self._compiler.assembly(resolve_kernel(name))

    @cached_property
    def _bundled(self) -> set[str]:
        """The kernels in the cache's bundle; they count as found once this has been asked for."""
        bundle = self._cache.load_bundle()
        self._stored.update(bundle)
        return set(bundle)

    @cached_property
    def _compiler(self) -> KernelCompiler:
        from minfer_kernels.cpu.compiler.compile import KernelCompiler

        return KernelCompiler(self.machine)

    def _find(self, name: str) -> StoredKernel | None:
        check_kernel_name(name)
        if name not in self._stored and name not in self._bundled:
            stored = self._cache.load(name)
            if stored is None:
                return None
            self._stored[name] = stored
        return self._stored[name]

    def _compile(self, names: Sequence[str]) -> None:
        if not names:
            return
        begun: set[str] = set()

        def begin(name: str) -> None:
            if self._on_compile is not None and name not in begun:
                begun.add(name)
                self._on_compile(name, len(begun), len(names))

        if (helped := self._helped) is None:
            self._compile_here(names, begin)
            return
        compiled = helped.compile(names, begin)
        self._keep(compiled.found)
        for name, why in compiled.lost.items():
            log.warning("kernel %s: %s; it compiles in this one", name, why)
        self._compile_here(list(compiled.lost), begin)

    def _compile_here(self, names: Sequence[str], begin: Callable[[str], None]) -> None:
        for name in names:
            kernel = resolve_kernel(name)
            begin(name)
            self._keep({name: StoredKernel(kernel.operands, self._compiler.object_code(kernel, symbol_of(name)))})

    def _operands_declared(self, name: str) -> tuple[Operand, ...]:
        """From the kernel's source."""
        helped = self._helped
        try:
            return resolve_kernel(name).operands if helped is None else helped.operands(name)
        except WorkerEndedError as ended:
            log.warning("kernel %s: %s; its source is read in this one", name, ended)
            return resolve_kernel(name).operands

    @property
    def _helped(self) -> CompileWorkers | None:
        """Who compiles for this process; nobody once it has numba itself."""
        return None if "numba" in sys.modules else self._workers

    def _keep(self, kernels: Mapping[str, StoredKernel]) -> None:
        for name, stored in kernels.items():
            self._stored[name] = stored
            self._cache.store(name, stored)

    def _link(self, kernels: dict[str, StoredKernel]) -> None:
        if not kernels:
            return
        builder = llvm.JITLibraryBuilder().add_current_process()
        for name, kernel in kernels.items():
            builder.add_object_img(kernel.code).export_symbol(symbol_of(name))
        owner: Any = builder.link(self._jit, f"kernels{next(self._link_number)}")
        for name, kernel in kernels.items():
            self._loaded[name] = LoadedKernel(name, owner[symbol_of(name)], kernel.operands, owner)

    @cached_property
    def _jit(self) -> Any:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        target = llvm.Target.from_default_triple()
        return llvm.create_lljit_compiler(target.create_target_machine(reloc="pic", codemodel="small", jit=True))
