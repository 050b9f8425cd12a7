"""Our own engine, timed and asked for tokens.

A worker also runs this file by its path, over another revision's `minfer_models`: only what every revision has is
imported, and only when it is needed; what newer ones know beyond that is asked for carefully.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

SEED = 0
PROC_STAT = Path("/proc/stat")
BUSY = (0, 1, 2, 5, 6, 7)
"""Columns of /proc/stat: user, nice, system, irq, softirq, and what the host gave to others (steal)."""
TEXT = (
    "The lighthouse keeper wrote down the weather every evening: wind from the north-west, rain until four, then a "
    "clear sky and a falling glass. On the last page of the book there was a map of the island, with the harbour, two "
    "wells and a path that nobody had walked since the bridge was lost. He closed it, trimmed the lamp and counted the "
    "ships. "
)


@dataclass(frozen=True, slots=True)
class Timed:
    """Seconds of one run; those inside the native programs, plans built, others' CPU seconds; None where unknown."""

    seconds: float
    inside: float | None
    built: int | None
    others: float | None


@dataclass(frozen=True, slots=True)
class Continuation:
    """Greedy token ids, and a hash of the logits' bits that each was chosen from."""

    token_ids: tuple[int, ...]
    logits: tuple[str, ...]


class Runner:
    """Runs workloads on a loaded model, each from an empty context. `clock` in seconds.

    Tokens of a decode are chosen as `sampling`, SamplingParams with a seed, says; None takes the most likely one.
    """

    def __init__(self, llm: Any, clock: Callable[[], float] = perf_counter, sampling: Any = None) -> None:
        self.llm, self.engine, self._clock, self._sampling = llm, llm.engine, clock, sampling
        self._filled: Any = None
        self._depth = 0

    def run(self, phase: str, tokens: int, depth: int, refill: bool = True) -> Timed:
        """Fill `depth` tokens with the clock stopped, then read ("pp") or decode ("tg") `tokens` of them.

        Without `refill`, what a run before filled to the same depth is cut back to it and used again.
        """
        ids = self.prompt(depth + (tokens if phase == "pp" else 1))
        work = self._prefill if phase == "pp" else self._decode
        sampler, sequence = self._sampler(self._sampling), self._filled_to(ids[:depth], refill)
        inside, built = program_seconds(self.engine), plans_built(self.engine)
        others = others_seconds()
        start = self._clock()
        work(sequence, ids[depth:], tokens, sampler)
        seconds = self._clock() - start
        taken = None if others is None else (others_seconds() or 0.0) - others
        if refill:
            self.empty()
        return Timed(
            seconds,
            None if inside is None else (program_seconds(self.engine) or 0.0) - inside,
            None if built is None else (plans_built(self.engine) or 0) - built,
            taken,
        )

    def empty(self) -> None:
        """Forget the context that a run left."""
        if self._filled is not None:
            self._filled.close()
        self._filled = None

    def continuation(self, n_prompt: int, n_tokens: int) -> Continuation:
        """What the model says greedily behind `n_prompt` tokens of a fixed text: `n_tokens` ids, or a context full."""
        from minfer_models.engine import TokenSequence

        self.empty()
        sampler, ids = self._sampler(None), self._text(n_prompt)
        token_ids: list[int] = []
        hashes: list[str] = []
        with TokenSequence(self.engine, min(n_prompt + n_tokens, self.engine.n_ctx)) as sequence:
            while len(token_ids) < min(n_tokens, self.engine.n_ctx - n_prompt):
                logits = np.array(_step(sequence, ids), np.float32)
                token_ids.append(sampler.sample(logits))
                hashes.append(hashlib.sha256(logits.tobytes()).hexdigest()[:16])
                ids = token_ids[-1:]
        return Continuation(tuple(token_ids), tuple(hashes))

    def plan(self, rows: int) -> list[str] | None:
        """The programs of a forward over `rows` rows as readable lines; None where the engine can't say."""
        try:
            programs = self.engine.executable(self.engine.params(rows)).programs
            return [line for program in programs for line in program.listing()]
        except (AttributeError, TypeError):
            return None

    def settings(self) -> dict[str, Any]:
        """What the engine runs with, as resolved; empty where it can't say."""
        try:
            from minfer_models.cli.settings_view import settings_of

            return settings_of(self.llm)
        except (ImportError, AttributeError):
            return {}

    def fusions(self) -> list[str]:
        """The switches of the fusions that may be used; empty where the engine can't say."""
        try:
            from minfer_ir.passes.fuse import fusion_names

            return [name for name in fusion_names() if name not in self.engine.options.fusions_off]
        except (ImportError, AttributeError):
            return []

    def sizes(self) -> dict[str, int]:
        """Tokens of context, and the most rows of one forward."""
        return {"n_ctx": self.engine.n_ctx, "chunk": self.engine.chunk}

    def prompt(self, n: int) -> list[int]:
        """`n` token ids, the same every time."""
        return np.random.default_rng(SEED).integers(0, self.engine.model.config.n_vocab, n).tolist()

    def _filled_to(self, ids: Sequence[int], refill: bool) -> Any:
        """A sequence of the whole context that holds `ids` and nothing else."""
        from minfer_models.engine import TokenSequence

        if self._filled is not None and not refill and self._depth == len(ids):
            self._filled.truncate(len(ids))
            return self._filled
        self.empty()
        self._filled, self._depth = TokenSequence(self.engine), len(ids)
        if ids:
            self._filled.feed(ids)
        return self._filled

    def _text(self, n: int) -> list[int]:
        """`n` token ids of a text, over and over: near ties are rarer behind it than behind arbitrary tokens."""
        ids = list(self.llm.tokenizer.encode(TEXT))
        return (ids * (n // len(ids) + 1))[:n]

    def _sampler(self, sampling: Any) -> Any:
        """A new one, at its first step; greedy for None."""
        from minfer_models.sampling import Sampler, SamplingParams

        params = SamplingParams(temperature=0.0) if sampling is None else sampling
        if hasattr(self.llm, "sampler"):
            return self.llm.sampler(params)
        native = {"largest": self.engine.largest} if hasattr(self.engine, "largest") else {}
        return Sampler(params, self.engine.model.config.n_vocab, **native)

    def _prefill(self, sequence: Any, ids: Sequence[int], _tokens: int, _sampler: Any) -> None:
        sequence.feed(ids)

    def _decode(self, sequence: Any, ids: Sequence[int], tokens: int, sampler: Any) -> None:
        token = ids[0]
        for _ in range(tokens):
            token = sampler.sample(_step(sequence, [token]))


def _step(sequence: Any, ids: Sequence[int]) -> Any:
    """The logits behind `ids`, the way generation gets them; by `feed` where that revision has no other."""
    if hasattr(sequence, "next_logits"):
        return sequence.next_logits(ids)
    return sequence.feed(ids)[-1]


def program_seconds(engine: Any) -> float | None:
    """Seconds spent in the programs of all cached graphs; None where the engine doesn't say."""
    try:
        return sum(low.executable.program_seconds for low in engine.graphs if low.executable is not None)
    except AttributeError:
        return None


def plans_built(engine: Any) -> int | None:
    """Plans that the engine has built so far; None where it doesn't say."""
    return getattr(getattr(engine, "graphs", None), "builds", None)


def others_seconds() -> float | None:
    """CPU seconds that all other processes have had so far, the host's other guests included; None where unknown."""
    try:
        columns = PROC_STAT.read_text().split("\n", 1)[0].split()[1:]
        return sum(int(columns[i]) for i in BUSY) / os.sysconf("SC_CLK_TCK") - process_time()
    except (OSError, IndexError, ValueError):
        return None
