"""Tiny models: made beforehand with logits that the CPU backend gave, and run again on the device."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from minfer_ir.params import DevicePlan
from minfer_ir.runtime.backend import Backend
from minfer_models.engine.engine import Engine
from minfer_models.engine.model import Model
from minfer_models.engine.options import EngineOptions
from minfer_models.engine.rows import Rows

Logits = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class TinyModel:
    """One model file and what it was run with. `kv` is the cell type, `prompt` the tokens taken in at once."""

    name: str
    kv: str
    prompt: int

    def __str__(self) -> str:
        return f"{self.name}, {self.kv} cells"


@dataclass(frozen=True, slots=True)
class Ran:
    """Logits `[tokens, n_vocab]`, and how often captured graphs were replayed for them."""

    logits: Logits
    replays: int


def run_tiny(path: Path, backend: Backend, model: TinyModel, tokens: Sequence[int]) -> Ran:
    """The prompt in one forward, the tokens after it one by one."""
    options = EngineOptions(n_ctx=128, kv=model.kv, chunk=64, devices=DevicePlan((backend.name,)))
    with Engine(Model.open(path), [backend], options) as engine:
        logits = np.concatenate(list(_forwards(engine, tokens, model.prompt)))
        lowered = [low.executable for low in engine.graphs if low.executable is not None]
        programs = [program for executable in lowered for program in executable.programs]
        return Ran(logits, sum(p.capture.replays for p in programs if isinstance(p, Captured)))


@runtime_checkable
class Captured(Protocol):
    """A program that is replayed from a captured graph."""

    capture: Counted


class Counted(Protocol):
    """What counts replays."""

    replays: int


def _forwards(engine: Engine, tokens: Sequence[int], prompt: int) -> Iterator[Logits]:
    sequence = engine.new_sequence_id()
    engine.kv.reserve(sequence, len(tokens))
    yield engine.forward(Rows.of(sequence, tokens[:prompt], 0), "all")
    for at in range(prompt, len(tokens)):
        yield engine.forward(Rows.of(sequence, [tokens[at]], at), "all")


@dataclass(frozen=True, slots=True)
class Recorded:
    """The prepared folder."""

    folder: Path

    def models(self) -> list[TinyModel]:
        """What was recorded."""
        entries = json.loads((self.folder / "tiny.json").read_text(encoding="utf-8"))
        return [TinyModel(**entry) for entry in entries]

    def path(self, model: TinyModel) -> Path:
        """The model file."""
        return self.folder / f"{model.name}.gguf"

    def tokens(self, model: TinyModel) -> list[int]:
        """What it was run over."""
        return self._arrays(model)["tokens"].tolist()

    def logits(self, model: TinyModel) -> Logits:
        """What the CPU backend gave."""
        return self._arrays(model)["logits"]

    def _arrays(self, model: TinyModel) -> dict[str, NDArray[np.float32]]:
        with np.load(self.folder / f"{model.name}.{model.kv}.npz") as file:
            return dict(file)
