"""Counters that the code path itself bumps, and named call sites that a test can make fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

SITES = ("cache.build", "pool.allocate", "weights.register", "kv.region", "split.compile", "staging.copy", "split.run")


class ProbeFailureError(RuntimeError):
    """The failure that a test armed."""


class Probe:
    """Belongs to one engine. `hit(site)` counts, and raises ProbeFailureError at an armed site."""

    def __init__(self, fail_at: Iterable[str] = ()) -> None:
        self.counts: Counter[str] = Counter()
        self._armed = frozenset(fail_at)
        if unknown := sorted(self._armed - set(SITES)):
            raise ValueError(f"unknown call site {', '.join(unknown)}; known: {', '.join(SITES)}")

    def hit(self, site: str) -> None:
        """Record that the call at `site` is being made."""
        if site not in SITES:
            raise ValueError(f"call site {site!r} isn't listed; known: {', '.join(SITES)}")
        self.counts[site] += 1
        if site in self._armed:
            raise ProbeFailureError(f"armed failure at {site} (call {self.counts[site]})")
