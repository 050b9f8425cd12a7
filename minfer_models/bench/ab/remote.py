"""A side in a process of its own, over its own tree; see `worker` for what is said over the pipes."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from minfer_models.bench.child import Child
from minfer_models.bench.loading import EngineChoices
from minfer_models.bench.runner import Continuation
from minfer_models.bench.sides import Sample
from minfer_models.bench.source import Source
from minfer_models.bench.workload import BenchError, Workload

WORKER = Path(__file__).with_name("worker.py")


class RemoteSide:
    """A worker over `tree` with the model loaded; close it when done.

    Raises BenchError, naming the side and the revision, for whatever goes wrong in it.
    """

    def __init__(self, name: str, tree: Path, revision: str, model: Path, choices: EngineChoices) -> None:
        self.name, called = name, f"side {name} ({revision})"
        self.source = Source.of(tree)
        self._child = Child([sys.executable, "-P", str(WORKER), str(tree)], called, tree)
        try:
            found = self._child.ready
            if Path(found) != tree.resolve():
                raise BenchError(f"{called}: minfer_models came from {found}, not from {tree}")
            loaded = self._child.ask("load", **_load_request(model, choices))
        except BaseException:
            self.close()
            raise
        self.load_seconds: float = loaded["seconds"]
        self.settings: dict[str, Any] = loaded["settings"]
        self.fusions: list[str] = loaded["fusions"]
        self.n_ctx: int = loaded["n_ctx"]
        self.chunk: int = loaded["chunk"]

    def run(self, workload: Workload) -> Sample:
        """One run from an empty context."""
        timed = self._child.ask("run", **asdict(workload))
        return Sample(timed["seconds"], timed["inside"], timed["built"] or 0, timed["others"])

    def continuation(self, n_prompt: int, n_tokens: int) -> Continuation:
        """Greedy tokens behind a fixed prompt."""
        said = self._child.ask("continuation", n_prompt=n_prompt, n_tokens=n_tokens)
        return Continuation(tuple(said["token_ids"]), tuple(said["logits"]))

    def plan(self, rows: int) -> list[str] | None:
        """The listing of a forward over `rows` rows, where that revision can say."""
        return self._child.ask("plan", rows=rows)

    def close(self) -> None:
        """End the worker."""
        self._child.close()


def _load_request(model: Path, choices: EngineChoices) -> dict[str, Any]:
    options = choices.load_options()
    device = options.pop("device", None)
    named = {name: list(v) if isinstance(v, tuple) else v for name, v in options.items() if v not in ((), "auto")}
    return {"model": str(model.resolve()), "isa": choices.isa, "device": device, "options": named}
