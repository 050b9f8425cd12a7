"""What is timed: tokens read or tokens generated, at some depth of context."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

Phase = Literal["pp", "tg"]


class BenchError(ValueError):
    """A measurement that can't be taken as asked; the message has the values."""


@dataclass(frozen=True, slots=True)
class Workload:
    """`tokens` tokens of prefill ("pp") or decode ("tg"), behind `depth` tokens that are filled in untimed.

    `refill`: every run starts from an empty context. Otherwise a side may keep the tokens of the depth and cut back to
    them, which leaves the same cells and saves the time of filling a deep context again and again.
    """

    phase: Phase
    tokens: int
    depth: int = 0
    refill: bool = True

    @property
    def name(self) -> str:
        """As llama-bench writes it: `pp512`, `tg128 @ d4096`."""
        return f"{self.phase}{self.tokens}" + (f" @ d{self.depth}" if self.depth else "")

    @property
    def cells(self) -> int:
        """Tokens of context that it needs."""
        return self.depth + self.tokens


def workloads(
    prompts: Iterable[int], generated: Iterable[int], depths: Sequence[int], refill: bool = True
) -> list[Workload]:
    """Every prefill and every decode at every depth, shallow first; a count of 0 leaves its test out.

    Raises BenchError when nothing is left.
    """
    tests = [Workload("pp", n) for n in prompts if n] + [Workload("tg", n) for n in generated if n]
    if not tests:
        raise BenchError("-p 0 and -n 0 leave nothing to measure")
    return list(dict.fromkeys(replace(test, depth=depth, refill=refill) for depth, test in product(depths, tests)))


def require_room(tests: Iterable[Workload], n_ctx: int) -> None:
    """Raise BenchError, naming the test and both numbers, when one doesn't fit a context of `n_ctx` tokens."""
    for test in tests:
        if test.cells > n_ctx:
            sizes = f"{test.depth} + {test.tokens} = {test.cells}" if test.depth else f"{test.tokens}"
            raise BenchError(f"{test.name} needs {sizes} tokens, but the context holds {n_ctx}")


def parse_counts(option: str, text: str, low: int) -> list[int]:
    """Whole numbers with commas between them, each once; raises BenchError naming `option` for anything else."""
    counts: list[int] = []
    for part in text.split(","):
        if not part.strip().isdecimal() or int(part) < low:
            raise BenchError(f"{option} is {text!r}, expected whole numbers from {low}, with commas between them")
        counts.append(int(part))
    return list(dict.fromkeys(counts))
