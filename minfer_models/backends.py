"""The backends that exist here, by the name that plans use; third parties add theirs through an entry point."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from minfer_ir.runtime.backend import Backend
from minfer_ir.runtime.numpy_backend import NumpyBackend
from minfer_kernels.cpu.backend import CpuBackend
from minfer_kernels.cpu.compiler.features import Isa
from minfer_kernels.cpu.compiler.library import KernelLibrary, OnCompile
from minfer_kernels.cpu.runner.cores import default_threads
from minfer_kernels.cpu.runner.free_cores import free_cores
from minfer_models.devices import GPU, TORCH
from minfer_models.engine.options import EngineError, EngineOptions
from minfer_models.settings import Settings

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

MOST_COMPILING = 4
"""Each takes some 200 MB meanwhile, and the longest kernel is a sixth of the work."""
ENTRY_POINTS = "minfer.backends"
"""The entry point group: each names a callable without arguments that makes a Backend."""


def kernel_library(settings: Settings, isa: str, on_compile: OnCompile | None = None) -> KernelLibrary:
    """The CPU kernels for `isa` ("auto": the host's best), cached under the settings' cache folder."""
    chosen = None if isa == "auto" else Isa(isa)
    return KernelLibrary(chosen, settings.cache_dir / "kernels", on_compile, compile_processes())


def compile_processes() -> int:
    """How many processes compile at once; 0: this one does, where pipes can't be waited for."""
    return 0 if sys.platform == "win32" else min(MOST_COMPILING, default_threads())


def plug_in_names() -> tuple[str, ...]:
    """The backends of third parties."""
    return tuple(_plug_ins())


def make_backends(options: EngineOptions, settings: Settings, on_compile: OnCompile | None = None) -> list[Backend]:
    """A backend for every name in the device plan; raises EngineError listing the known names.

    torch and triton are imported for the backends that need them only.
    """
    makers: dict[str, Callable[[], Backend]] = {
        "cpu": lambda: _cpu(options, kernel_library(settings, options.isa, on_compile)),
        "numpy": NumpyBackend,
        GPU: lambda: _gpu(options),
        TORCH: lambda: _torch(options),
    }
    plan = options.devices
    wanted = dict.fromkeys([*plan.order, *(name for _, name in plan.blocks)])
    if any(name not in makers for name in wanted):
        makers = makers | {name: partial(_plugged_in, point) for name, point in _plug_ins().items()}
    if unknown := [name for name in wanted if name not in makers]:
        raise EngineError(f"no backend is called {', '.join(unknown)}; there are {', '.join(makers)}")
    return [makers[name]() for name in wanted]


def _cpu(options: EngineOptions, library: KernelLibrary) -> CpuBackend:
    n_threads = options.threads or default_threads()
    chosen = None if options.threads_fixed else free_cores(n_threads)
    return CpuBackend(library, n_threads, None if chosen is None else chosen.threads)


def _gpu(options: EngineOptions) -> Backend:
    import torch

    from minfer_kernels.gpu.backend import GpuBackend
    from minfer_kernels.gpu.device import interpreted
    from minfer_kernels.gpu.kernels.attention.choices import AttentionOptions

    place = options.place or ("cpu" if interpreted() else "cuda:0")
    return GpuBackend(
        torch.device(place),
        options.activations,
        options.capture,
        options.async_copies,
        attention=AttentionOptions(decode_rows_apart=options.decode_apart),
        invariant=options.invariant,
    )


def _torch(options: EngineOptions) -> Backend:
    try:
        from minfer_kernels.torch_ops.backend import TorchBackend
    except ModuleNotFoundError as error:
        raise EngineError(f"the torch backend can't be made: {error}") from None
    return TorchBackend(options.place or "cpu")


def _plug_ins() -> dict[str, EntryPoint]:
    """Looked for only when a plan names them: reading every distribution's entry points is a twentieth of a start."""
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def _plugged_in(point: EntryPoint) -> Backend:
    """Loaded only when a plan asks for it: a broken plug-in is nobody else's problem."""
    return point.load()()
