"""Counters that the code path itself bumps, and named call sites that a test can make fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

SITES = ("cache.build", "pool.allocate", "weights.register", "kv.region", "split.compile", "staging.copy", "split.run")
"""The call sites of the runtime itself; a backend lists its own."""


class ProbeFailureError(RuntimeError):
    """The failure that a test armed."""


class Probe:
    """Belongs to one engine. `hit(site)` counts, and raises ProbeFailureError at an armed site.

    `sites` are those of the engine's backends. A site that nobody lists is refused, in `fail_at` and when it is
    reached.
    """

    def __init__(self, fail_at: Iterable[str] = (), sites: Iterable[str] = ()) -> None:
        self.counts: Counter[str] = Counter()
        self.sites = tuple(dict.fromkeys((*SITES, *sites)))
        self._known = frozenset(self.sites)
        self._armed = frozenset(fail_at)
        if unknown := sorted(self._armed - self._known):
            raise ValueError(f"unknown call site {', '.join(unknown)}; known: {', '.join(self.sites)}")

    def hit(self, site: str) -> None:
        """Record that the call at `site` is being made."""
        if self.reach(site):
            raise ProbeFailureError(f"armed failure at {site} (call {self.counts[site]})")

    def reach(self, site: str) -> bool:
        """Record that the call at `site` is being made; True where it is armed: the caller then makes it fail itself.

        For calls whose own failure is what a test wants to see.
        """
        if site not in self._known:
            raise ValueError(f"call site {site!r} isn't listed; known: {', '.join(self.sites)}")
        self.counts[site] += 1
        return site in self._armed
