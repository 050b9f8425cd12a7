"""Our engine in this process, as a side of a measurement."""

from __future__ import annotations

from minfer_models.bench.runner import Continuation, Runner
from minfer_models.bench.sides import Sample
from minfer_models.bench.workload import Workload
from minfer_models.llm import LLM
from minfer_models.sampling import SamplingParams


class EngineSide:
    """A loaded model under a name; whoever loaded it closes it. Decodes greedily without `sampling`."""

    def __init__(self, name: str, llm: LLM, sampling: SamplingParams | None = None) -> None:
        self.name, self.llm = name, llm
        self._runner = Runner(llm, sampling=sampling)

    def run(self, workload: Workload) -> Sample:
        """One run from an empty context."""
        timed = self._runner.run(workload.phase, workload.tokens, workload.depth, workload.refill)
        return Sample(timed.seconds, timed.inside, timed.built or 0, timed.others)

    def continuation(self, n_prompt: int, n_tokens: int) -> Continuation:
        """Greedy tokens behind a fixed prompt."""
        return self._runner.continuation(n_prompt, n_tokens)
