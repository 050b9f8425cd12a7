"""Tokens per second of prefill and decode, every repetition from an empty context."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import numpy as np

from minfer_models.engine import ContextError, Engine, TokenSequence
from minfer_models.sampling import Sampler, SamplingParams


@dataclass(frozen=True, slots=True)
class Measurement:
    """One test: `name` as llama-bench writes it (pp512, tg128), seconds of every repetition.

    `outside` is the share of the time that wasn't spent in the backends' programs.
    """

    name: str
    tokens: int
    seconds: tuple[float, ...]
    outside: float

    @property
    def rates(self) -> tuple[float, ...]:
        """Tokens per second of every repetition."""
        return tuple(self.tokens / s for s in self.seconds)

    @property
    def median_rate(self) -> float:
        """Tokens per second, the median repetition."""
        return median(self.rates)

    @property
    def spread(self) -> float:
        """Fastest minus slowest repetition, in tokens per second."""
        return max(self.rates) - min(self.rates)


def measure(
    engine: Engine, n_prompt: int, n_gen: int, repetitions: int, report: Callable[[str], None] = lambda _: None
) -> list[Measurement]:
    """pp and tg (either is left out when its count is 0), one warm-up run each that doesn't count.

    Raises ContextError when a test doesn't fit the context.
    """
    longest = max(n_prompt, n_gen)
    if longest > engine.n_ctx:
        raise ContextError(f"a test of {longest} tokens exceeds the available context size of {engine.n_ctx}")
    tests: list[tuple[str, int, Callable[[Engine, int], None]]] = []
    if n_prompt:
        tests.append((f"pp{n_prompt}", n_prompt, _prefill))
    if n_gen:
        tests.append((f"tg{n_gen}", n_gen, _decode))
    return [_repeat(engine, name, tokens, run, repetitions, report) for name, tokens, run in tests]


def _repeat(
    engine: Engine,
    name: str,
    tokens: int,
    run: Callable[[Engine, int], None],
    repetitions: int,
    report: Callable[[str], None],
) -> Measurement:
    seconds: list[float] = []
    inside: list[float] = []
    for i in range(repetitions + 1):
        report(f"{name}: warm-up" if i == 0 else f"{name}: {i} of {repetitions}")
        programs, start = program_seconds(engine), perf_counter()
        run(engine, tokens)
        seconds.append(perf_counter() - start)
        inside.append(program_seconds(engine) - programs)
    shares = [1 - i / s for i, s in zip(inside[1:], seconds[1:], strict=True)]
    return Measurement(name, tokens, tuple(seconds[1:]), median(shares))


def program_seconds(engine: Engine) -> float:
    """Time spent in the programs of all cached graphs."""
    return sum(low.executable.program_seconds for low in engine.graphs if low.executable is not None)


def bench_tokens(engine: Engine, n: int) -> Sequence[int]:
    """`n` token ids, the same every time."""
    return np.random.default_rng(0).integers(0, engine.model.config.n_vocab, n).tolist()


def _prefill(engine: Engine, tokens: int) -> None:
    with TokenSequence(engine, tokens) as sequence:
        sequence.feed(bench_tokens(engine, tokens))


def _decode(engine: Engine, tokens: int) -> None:
    sampler = Sampler(SamplingParams(temperature=0.0), engine.model.config.n_vocab)
    with TokenSequence(engine, tokens) as sequence:
        token = bench_tokens(engine, 1)[0]
        for _ in range(tokens):
            token = sampler.sample(sequence.next_logits([token]))
