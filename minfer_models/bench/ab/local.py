"""A side in this process: the engine of this tree under other settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from minfer_models.bench.loading import EngineChoices, load_timed
from minfer_models.bench.runner import Continuation, Runner
from minfer_models.bench.sides import Sample
from minfer_models.bench.source import Source
from minfer_models.bench.workload import Workload
from minfer_models.cli.progress import Progress


class LocalSide:
    """A loaded engine; close it when done."""

    def __init__(self, name: str, path: Path, choices: EngineChoices, progress: Progress) -> None:
        self.name = name
        self._llm, loaded = load_timed(path, choices, progress)
        self._runner = Runner(self._llm)
        self.source = Source.of()
        self.load_seconds = loaded.seconds
        self.settings: dict[str, Any] = self._runner.settings()
        self.fusions = self._runner.fusions()
        self.n_ctx, self.chunk = self._llm.engine.n_ctx, self._llm.engine.chunk

    def run(self, workload: Workload) -> Sample:
        """One run from an empty context."""
        timed = self._runner.run(workload.phase, workload.tokens, workload.depth, workload.refill)
        return Sample(timed.seconds, timed.inside, timed.built or 0, timed.others)

    def continuation(self, n_prompt: int, n_tokens: int) -> Continuation:
        """Greedy tokens behind a fixed prompt."""
        return self._runner.continuation(n_prompt, n_tokens)

    def plan(self, rows: int) -> list[str] | None:
        """The listing of a forward over `rows` rows."""
        return self._runner.plan(rows)

    def close(self) -> None:
        """Stop the engine's threads and close the file."""
        self._llm.close()
