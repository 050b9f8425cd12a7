"""Choosing tokens behind real steps of a model, each sampler in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from minfer_models.bench.conditions import Conditions
from minfer_models.bench.loading import EngineChoices, load_timed
from minfer_models.bench.runner import TEXT
from minfer_models.bench.sampling.cases import CASES, SEED, Case, Share
from minfer_models.bench.sampling.report import SamplerCost, SamplingReport
from minfer_models.bench.stats import Summary, matched_ratio
from minfer_models.bench.workload import BenchError
from minfer_models.cli.progress import Progress
from minfer_models.cli.settings_view import settings_of
from minfer_models.engine import TokenSequence
from minfer_models.llm import LLM
from minfer_models.sampling import Sampler, sampling_params

DEPTH = 64
TAIL = 4.0
"""Nats by which the logits of the ids that the model doesn't have lie below those they repeat."""
Row = NDArray[np.float32]


def measure(
    path: Path, vocabulary: int, history: int, rounds: int, choices: EngineChoices, shown: Progress
) -> SamplingReport:
    """`rounds` timed choices of each sampler, from rows of `vocabulary` logits behind `history` tokens.

    Every choice comes behind a decode step of its own, so that the logits lie where a step leaves them, and the caches
    hold what it leaves there. Raises BenchError for fewer logits than the model has, or too small a context.
    """
    conditions = Conditions.here(path)
    llm, _ = load_timed(path, choices, shown)
    with llm:
        n_vocab = llm.engine.model.config.n_vocab
        if vocabulary < n_vocab:
            raise BenchError(f"--vocab is {vocabulary}; the model has {n_vocab} logits, which can't become fewer")
        if llm.engine.n_ctx <= DEPTH + len(CASES):
            raise BenchError(
                f"the context of {llm.engine.n_ctx} tokens is too short: {DEPTH + len(CASES) + 1} are used"
            )
        samplers = [_sampler(llm, case, vocabulary, history) for case in CASES]
        steps, costs = _timed(llm, samplers, _Widened(n_vocab, vocabulary), rounds, shown.show)
        return SamplingReport(
            conditions,
            settings_of(llm),
            vocabulary,
            history,
            Summary.of([seconds for row in steps for seconds in row]),
            tuple(
                SamplerCost(case.name, list(sampler.stages), Summary.of(own), matched_ratio(own, before))
                for case, sampler, own, before in zip(CASES, samplers, costs, steps, strict=True)
            ),
        )


class _Widened:
    """The model's logits with more behind them, which repeat some of them further down."""

    def __init__(self, n_vocab: int, vocabulary: int) -> None:
        self.row = np.empty(vocabulary, np.float32)
        self._n = n_vocab
        self._from = np.random.default_rng(SEED).integers(0, n_vocab, vocabulary - n_vocab)

    def __call__(self, logits: Row) -> Row:
        self.row[: self._n] = logits
        self.row[self._n :] = logits[self._from] - np.float32(TAIL)
        return self.row


def _sampler(llm: LLM, case: Case, vocabulary: int, history: int) -> Sampler:
    """Behind `history` tokens of a text, of which it chose the second half."""
    n_vocab, spell = llm.engine.model.config.n_vocab, llm.tokenizer.token_bytes
    ids = _text(llm, history)
    sampler = Sampler(
        sampling_params(seed=SEED, **case.settings),
        vocabulary,
        None,
        llm.engine.largest,
        prompt=ids[: history // 2],
        constraint=None if case.share is None else Share(vocabulary, case.share),
        bytes_of=lambda token_id: spell(token_id) if token_id < n_vocab else b"",
    )
    for token_id in ids[history // 2 :]:
        sampler.accept(token_id)
    return sampler


def _text(llm: LLM, n: int) -> list[int]:
    ids = list(llm.tokenizer.encode(TEXT))
    return (ids * (n // len(ids) + 1))[:n]


def _timed(
    llm: LLM, samplers: Sequence[Sampler], widened: _Widened, rounds: int, show: Callable[[str], None]
) -> tuple[list[list[float]], list[list[float]]]:
    """Seconds of the steps, and of the choices behind them, by sampler; a first round isn't in them."""
    ids = _text(llm, DEPTH + len(samplers))
    steps: list[list[float]] = [[] for _ in samplers]
    costs: list[list[float]] = [[] for _ in samplers]
    with TokenSequence(llm.engine, len(ids)) as sequence:
        sequence.feed(ids[:DEPTH])
        for number in range(rounds + 1):
            show(f"round {number} of {rounds}" if number else "warm-up")
            sequence.truncate(DEPTH)
            for i, sampler in enumerate(samplers):
                start = perf_counter()
                logits = sequence.next_logits([ids[DEPTH + i]])
                step = perf_counter() - start
                row = widened(logits)
                start = perf_counter()
                sampler.sample(row)
                cost = perf_counter() - start
                if number:
                    steps[i].append(step)
                    costs[i].append(cost)
    return steps, costs
