"""Waiting for the device: never without an end, and always for something that has a name."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from minfer_ir.runtime.backend import BackendError

LIMIT = 120.0
"""Seconds after which a device counts as hanging; a step takes well under one."""
SLICE = 100e-6
"""Seconds of one sleep while most of the expected time is still ahead."""
ASLEEP = 0.75
"""The part of the expected time that is slept through; the rest is polled, so that waking up costs no latency."""


class DeviceError(BackendError):
    """The device reported an error while it was waited for: of something that was launched before."""


class DeviceTimeoutError(BackendError):
    """The device wasn't done within the limit; the message names the place that waited."""


class Mark(Protocol):
    """A point in a device's queue of work."""

    def passed(self) -> bool:
        """Whether the device got there; raises what the device reports."""
        ...


class Waits:
    """Waits for marks, by the name of the place that waits. `clock` and `pause` are in seconds."""

    def __init__(
        self,
        limit: float = LIMIT,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.limit = limit
        self._clock, self._pause = clock, pause
        self._expected: dict[str, float] = {}

    def until(self, mark: Mark, site: str) -> None:
        """Return once `mark` is passed; raises DeviceTimeoutError after the limit, DeviceError for a device's error."""
        if _passed(mark, site):
            return
        start = self._clock()
        asleep = ASLEEP * self._expected.get(site, 0.0)
        while not _passed(mark, site):
            waited = self._clock() - start
            if waited > self.limit:
                raise DeviceTimeoutError(f"{site}: the device wasn't done after {waited:.1f} s: it hangs, or is shared")
            self._pause(SLICE if waited < asleep else 0.0)
        self._expected[site] = self._clock() - start


def _passed(mark: Mark, site: str) -> bool:
    try:
        return mark.passed()
    except RuntimeError as error:
        raise DeviceError(f"{site}: the device failed at something launched before: {error}") from error
