"""Plans without an engine: the pipeline over a model whose weights stay on disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from minfer_ir.passes.base import Lowering
from minfer_ir.passes.pipeline import lower
from minfer_ir.runtime.backend import Backend
from minfer_ir.runtime.resources import Resources
from minfer_models.cli.loading import compiling_shown, located, weights_shown
from minfer_models.cli.progress import Progress
from minfer_models.engine import EngineOptions, Model
from minfer_models.engine.model import CheckedWeights
from minfer_models.placing import Request, place_model
from minfer_models.settings import Settings


@dataclass(frozen=True, slots=True)
class Plan:
    """A model, how it would be run, and what it would run on."""

    model: Model
    options: EngineOptions
    resources: Resources

    def lower(self, rows: int, stage: str) -> Lowering:
        """Lowering of a forward over `rows` rows, up to `stage`; only the last stage registers weights."""
        params = self.options.params(self.model.config, rows)
        return lower(params, self.model.graph, self.resources, stop_after=stage)


@contextmanager
def opened_plan(
    name: str, progress: Progress, fusions_off: Sequence[str], n_ctx: int | None, kv: str, **device: Any
) -> Iterator[Plan]:
    """The plan of model `name` on a device (`device_options`); closes the file and the backends behind it."""
    settings = Settings.from_env()
    options = EngineOptions(
        n_ctx=n_ctx,
        threads=settings.threads,
        kv=kv,
        fusions_off=frozenset(fusions_off) | frozenset(settings.fusions_off),
        isa=settings.isa,
    )
    request = Request.of(settings, device["device"], device["gpu_layers"], device["gpu_mem"])
    model = Model.open(located(name, settings))
    backends: list[Backend] = []
    try:
        placed = place_model(model, options, settings, request, None, compiling_shown(progress))
        backends += placed.backends
        weights = CheckedWeights(model.file, weights_shown(progress, model.file.size))
        limits = placed.options.limits
        yield Plan(model, placed.options, Resources(backends, weights, limits=limits))
    finally:
        model.file.close()
        for made in backends:
            close = getattr(made, "close", None)
            if close is not None:
                close()
