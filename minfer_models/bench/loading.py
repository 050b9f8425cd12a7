"""Loading our engine for a measurement: what was asked for, checked before a weight is read; how long it took."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from time import perf_counter
from typing import Any

from minfer_models.bench.machine import peak_bytes
from minfer_models.bench.workload import BenchError
from minfer_models.cli.loading import compiling_shown, file_bytes, located, warn_of_threads, weights_shown
from minfer_models.cli.progress import Progress
from minfer_models.engine import EngineOptions, Model
from minfer_models.llm import LLM
from minfer_models.loading import load
from minfer_models.offload import parse_layers
from minfer_models.settings import ISAS, Settings


@dataclass(frozen=True, slots=True)
class EngineChoices:
    """How an engine is set up; None leaves a choice to the environment's settings and the engine.

    Raises BenchError for an instruction set that isn't one, EngineError for the rest.
    """

    n_ctx: int | None = None
    threads: int | None = None
    kv: str = "auto"
    fusions_off: tuple[str, ...] = ()
    isa: str | None = None
    chunk: int | None = None
    threads_fixed: bool = True
    """A number is that of its threads, whatever else runs meanwhile."""
    device: str | None = None
    gpu_layers: str | None = None
    capture: bool | None = None
    async_copies: bool | None = None
    invariant: bool | None = None
    decode_apart: bool | None = None

    def __post_init__(self) -> None:
        if self.isa is not None and self.isa not in ISAS:
            nearest = get_close_matches(self.isa, ISAS, n=1)
            hint = f"did you mean {nearest[0]}? " if nearest else ""
            raise BenchError(f"isa is {self.isa!r}; {hint}there are {', '.join(ISAS)}")
        self.options()

    def options(self) -> EngineOptions:
        """As the engine takes them."""
        return EngineOptions(
            n_ctx=self.n_ctx,
            threads=self.threads,
            kv=self.kv,
            fusions_off=frozenset(self.fusions_off),
            isa=self.isa or "auto",
            chunk=EngineOptions().chunk if self.chunk is None else self.chunk,
        )

    def load_options(self) -> dict[str, Any]:
        """As `minfer_models.load` takes them, all but the instruction set; what was left open is left out."""
        given = {
            "n_ctx": self.n_ctx,
            "threads": self.threads,
            "chunk": self.chunk,
            "device": self.device,
            "gpu_layers": None if self.gpu_layers is None else parse_layers(self.gpu_layers),
            "capture": self.capture,
            "async_copies": self.async_copies,
            "invariant": self.invariant,
            "decode_apart": self.decode_apart,
        }
        return {name: value for name, value in given.items() if value is not None} | {
            "kv": self.kv,
            "fusions_off": self.fusions_off,
        }


@dataclass(frozen=True, slots=True)
class Loaded:
    """One load: seconds until the model could run, and per 10^9 bytes of file; kernels `compiled` meanwhile.

    `peak_bytes` is the most memory this process had held when the load was done.
    """

    seconds: float
    seconds_per_gb: float
    compiled: int
    peak_bytes: int


def find_model(model: str) -> Path:
    """The file that MODEL names, fetched first if need be."""
    return located(model, Settings.from_env())


def context_of(path: Path, choices: EngineChoices) -> int:
    """Tokens of context that an engine would have, from the file's header alone."""
    model = Model.open(path)
    try:
        return choices.options().context(model.config)
    finally:
        model.file.close()


def load_timed(path: Path, choices: EngineChoices, progress: Progress) -> tuple[LLM, Loaded]:
    """An engine on the model at `path`, and what loading it took."""
    settings = Settings.from_env()
    settings = replace(settings, threads_fixed=choices.threads_fixed)
    settings = settings if choices.isa is None else replace(settings, isa=choices.isa)
    warn_of_threads(choices.threads or settings.threads)
    compiled = _Compiled(progress)
    start = perf_counter()
    llm = load(
        path,
        settings=settings,
        on_weight=weights_shown(progress, file_bytes(path)),
        on_compile=compiled.show,
        on_device=progress.say,
        **choices.load_options(),
    )
    seconds = perf_counter() - start
    per_gb = seconds / (llm.engine.model.file.size / 1e9)
    return llm, Loaded(seconds, per_gb, compiled.count, peak_bytes())


class _Compiled:
    """Counts the kernels that compile, and shows them."""

    def __init__(self, progress: Progress) -> None:
        self.count = 0
        self._show: Callable[[str, int, int], None] = compiling_shown(progress)

    def show(self, name: str, number: int, count: int) -> None:
        self.count += 1
        self._show(name, number, count)
