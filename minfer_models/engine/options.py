"""How an engine is set up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from minfer_ir.formats import CELL_FORMATS
from minfer_ir.params import DevicePlan, GraphParams, WindowMode, bucket
from minfer_ir.passes.fuse import fusion_names
from minfer_ir.runtime.backend import LAUNCH_GROUPS
from minfer_models.arch.config import ModelConfig

DEFAULT_CONTEXT = 8192
KV_CHOICES = ("auto", "f32", "f16", "q8_0")
MOST_THREADS = 512
AUTO_KV = "f16"
"""What `auto` means on every machine: half the bytes of f32, and the choice must not depend on the host's features."""


class EngineError(ValueError):
    """An engine that can't be set up or asked as it was; the message has the values."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """`n_ctx` in tokens (None: what the model was trained for, up to 8192); `chunk` is the most rows per forward.

    `threads` None takes the physical cores; fewer walk while other processes keep cores busy, unless `threads_fixed`.
    `budget` bounds memory in bytes, `gpu_mem` that of a GPU. `isa` is "auto", "avx512amx", "avx512vnni", "avx2" or
    "portable". `place` is where the plan's `gpu` or `torch` backend is, as torch names devices; `capture` replays its
    steps as captured graphs, `async_copies` copies without waiting, `activations` are what its products
    read, `invariant` has it compute every row as if it were alone, `decode_apart` attend few rows of a sequence as if.
    """

    n_ctx: int | None = None
    threads: int | None = None
    kv: str = "auto"
    chunk: int = 256
    fusions_off: frozenset[str] = frozenset()
    devices: DevicePlan = field(default_factory=DevicePlan)
    budget: int | None = None
    isa: str = "auto"
    threads_fixed: bool = False
    place: str = ""
    gpu_mem: int | None = None
    capture: bool = True
    async_copies: bool = True
    activations: Literal["8-bit", "8-bit-all", "f16"] = "8-bit"
    invariant: bool = False
    decode_apart: bool = False

    def __post_init__(self) -> None:
        if self.kv not in KV_CHOICES:
            raise EngineError(f"kv is {self.kv!r}, expected one of {', '.join(KV_CHOICES)}")
        for name in ("n_ctx", "threads", "chunk", "budget", "gpu_mem"):
            value = getattr(self, name)
            if value is not None and type(value) is not int:
                raise EngineError(f"{name} is {value!r}, expected a whole number")
        if self.chunk < 1 or self.chunk & (self.chunk - 1):
            raise EngineError(f"chunk is {self.chunk}, expected a power of two")
        switches = (*fusion_names(), *LAUNCH_GROUPS)
        if unknown := sorted(self.fusions_off - set(switches)):
            raise EngineError(f"no fusion is called {', '.join(unknown)}; there are {', '.join(switches)}")
        if self.threads is not None and not 1 <= self.threads <= MOST_THREADS:
            raise EngineError(f"threads is {self.threads}, expected 1 to {MOST_THREADS}")

    @property
    def kv_type(self) -> str:
        """The cell type that `kv` stands for."""
        return AUTO_KV if self.kv == "auto" else self.kv

    @property
    def device_name(self) -> str:
        """What runs the model, or part of it, as `--device` takes it."""
        if not self.place:
            return self.devices.order[0]
        named = [*self.devices.order, *(name for _, name in self.devices.blocks)]
        if "torch" in named:
            return f"torch:{self.place}"
        return "cuda, interpreted" if self.place == "cpu" else self.place

    @property
    def limits(self) -> dict[str, int]:
        """Bytes by backend, beside the budget for each."""
        return {} if self.gpu_mem is None else dict.fromkeys(("gpu", "torch"), self.gpu_mem)

    def context(self, config: ModelConfig) -> int:
        """The context of an engine on a model with `config`; refused above what the model was trained for."""
        if self.n_ctx is None:
            return min(config.n_ctx_train, DEFAULT_CONTEXT)
        if not 1 <= self.n_ctx <= config.n_ctx_train:
            raise EngineError(f"n_ctx is {self.n_ctx}, the model takes 1 to {config.n_ctx_train}")
        return self.n_ctx

    def most_rows(self, config: ModelConfig) -> int:
        """The most rows of one forward: `chunk`, or the largest power of two within a smaller context."""
        return min(self.chunk, 1 << (self.context(config).bit_length() - 1))

    def params(
        self, config: ModelConfig, rows: int, output_rows: int | None = 1, window: WindowMode = "causal"
    ) -> GraphParams:
        """The identity of a forward over `rows` rows with `output_rows` rows of logits (None: all of them).

        Raises ValueError for more rows than a forward has, EngineError for cells that the model's heads don't fit.
        """
        self._check_heads(config)
        most, n_ctx = self.most_rows(config), self.context(config)
        return GraphParams(
            rows=bucket(rows, most),
            output_rows=None if output_rows is None else bucket(output_rows, most),
            n_ctx=n_ctx,
            n_cells=n_ctx,
            window=window,
            kv_type=self.kv_type,
            devices=self.devices,
            fusions_off=self.fusions_off,
        )

    def _check_heads(self, config: ModelConfig) -> None:
        packed = CELL_FORMATS.get(self.kv_type)
        if packed is not None and config.head_dim % packed.block_size:
            raise EngineError(
                f"kv {self.kv_type} packs {packed.block_size} elements with one scale, and this model's heads have "
                f"{config.head_dim}, not a multiple of that: use f16 or f32"
            )
