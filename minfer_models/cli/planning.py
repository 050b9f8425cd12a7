"""Plans without an engine: the pipeline over a model whose weights stay on disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from minfer_ir.params import DevicePlan
from minfer_ir.passes.base import Lowering
from minfer_ir.passes.pipeline import lower
from minfer_ir.runtime.resources import Resources
from minfer_models.backends import make_backends
from minfer_models.cli.loading import compiling_shown, located, weights_shown
from minfer_models.cli.progress import Progress
from minfer_models.engine import EngineOptions, Model
from minfer_models.engine.model import CheckedWeights
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
    name: str, progress: Progress, backend: str, fusions_off: Sequence[str], n_ctx: int | None, kv: str
) -> Iterator[Plan]:
    """The plan of model `name` on `backend`; closes the file and the backend behind it."""
    settings = Settings.from_env()
    options = EngineOptions(
        n_ctx=n_ctx,
        threads=settings.threads,
        kv=kv,
        fusions_off=frozenset(fusions_off) | frozenset(settings.fusions_off),
        devices=DevicePlan((backend,)),
        isa=settings.isa,
    )
    path = located(name, settings)
    backends = make_backends(options, settings, compiling_shown(progress))
    model = Model.open(path)
    try:
        weights = CheckedWeights(model.file, weights_shown(progress, model.file.size))
        yield Plan(model, options, Resources(backends, weights))
    finally:
        model.file.close()
        for made in backends:
            close = getattr(made, "close", None)
            if close is not None:
                close()
