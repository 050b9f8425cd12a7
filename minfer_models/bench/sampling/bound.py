"""Choosing tokens that a grammar binds, next to the same choices without it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

from minfer_models.bench.conditions import Conditions
from minfer_models.bench.loading import EngineChoices, load_timed
from minfer_models.bench.runner import TEXT
from minfer_models.bench.sampling.cases import SEED
from minfer_models.bench.sampling.report import SamplerCost, SamplingReport
from minfer_models.bench.stats import Summary, matched_ratio
from minfer_models.bench.workload import BenchError
from minfer_models.cli.progress import Progress
from minfer_models.cli.settings_view import settings_of
from minfer_models.engine import TokenSequence
from minfer_models.llm import LLM
from minfer_models.sampling import Sampler, sampling_params

MOST_TOKENS = 64


def measure_bound(
    path: Path, bound: Mapping[str, Any], texts: int, choices: EngineChoices, shown: Progress
) -> SamplingReport:
    """`texts` texts of up to 64 tokens, each from a seed of its own; both choices come behind every decode step.

    `bound` is what `cli.grammar_options.grammar_request` makes. The grammar is compiled once, before anything is timed;
    a mask that an earlier text has asked for at the same place is there already, as it is for a server's requests.
    Raises GrammarError for what can't be enforced, BenchError where no text has a second token.
    """
    conditions = Conditions.here(path)
    llm, _ = load_timed(path, choices, shown)
    with llm:
        times: tuple[list[float], list[float], list[float]] = [], [], []
        constraint_of = _constraints(llm, bound)
        for number in range(texts + 1):
            shown.show(f"text {number} of {texts}" if number else "warm-up")
            one = _text_of(llm, constraint_of, SEED + number)
            for known, new in zip(times, one if number else ([], [], []), strict=True):
                known.extend(new)
        steps, free, held = times
        if not steps:
            raise BenchError("the grammar's texts are one token long, with no decode step to measure")
        vocabulary = llm.engine.model.config.n_vocab
        rows = (("default", free), ("default, bound", held))
        costs = tuple(SamplerCost(name, [], Summary.of(own), matched_ratio(own, steps)) for name, own in rows)
        return SamplingReport(conditions, settings_of(llm), vocabulary, 0, Summary.of(steps), costs)


def _constraints(llm: LLM, bound: Mapping[str, Any]) -> Any:
    grammars, after = llm.grammars, bool(bound["after_thinking"])
    schema = bound.get("json_schema")
    compiled = grammars.json_schema(schema) if schema is not None else grammars.gbnf(bound["grammar"])
    return lambda: grammars.constraint(compiled, (), after)


def _text_of(llm: LLM, constraint_of: Any, seed: int) -> tuple[list[float], list[float], list[float]]:
    """Seconds of the steps, of choices that nothing binds, and of those that the grammar does."""
    steps: list[float] = []
    free: list[float] = []
    held: list[float] = []
    binding, params = constraint_of(), sampling_params(seed=seed)
    loose, tight = llm.sampler(params), llm.sampler(params, (), binding)
    ids = llm.tokenizer.encode(TEXT)[:MOST_TOKENS]
    with TokenSequence(llm.engine, len(ids) + MOST_TOKENS) as sequence:
        for _ in range(MOST_TOKENS):
            start = perf_counter()
            logits = sequence.next_logits(ids)
            steps.append(perf_counter() - start)
            free.append(_seconds(loose, logits))
            held.append(_seconds(tight, logits))
            ids = [tight.tokens[-1]]
            if binding.finished or ids[0] in llm.tokenizer.eog:
                break
    # the first step reads the prompt
    return steps[1:], free[1:], held[1:]


def _seconds(sampler: Sampler, logits: Any) -> float:
    start = perf_counter()
    sampler.sample(logits)
    return perf_counter() - start
