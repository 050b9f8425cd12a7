"""The times of a program's launches by the device's clock: stamps between them, in a queue that runs without gaps."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

import torch

from minfer_ir.runtime.probe import Probe
from minfer_kernels.gpu.launch import Launch

HOLD_PER_LAUNCH = 20e-6
"""Seconds that the device is held back for each launch: queueing one with its stamp takes the host about half of it."""
FASTEST_CLOCK = 2e9
"""Cycles per second of the fastest devices; on others the hold is longer."""


class Stamps(Protocol):
    """Stamps in a device's queue of work."""

    def hold(self, seconds: float) -> None:
        """Keep the device busy for at least so long, while the host queues what is to be timed."""
        ...

    def stamp(self) -> None:
        """The time at which the device gets here."""
        ...

    def between(self) -> list[float]:
        """Seconds from each stamp to the next; only once the device has passed the last."""
        ...


class EventStamps:
    """CUDA events on the current stream."""

    def __init__(self) -> None:
        self._events: list[torch.cuda.Event] = []

    def hold(self, seconds: float) -> None:
        """A kernel that counts cycles."""
        torch.cuda._sleep(int(seconds * FASTEST_CLOCK))  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType]

    def stamp(self) -> None:
        """Record an event."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self._events.append(event)

    def between(self) -> list[float]:
        """To half a microsecond or so."""
        pairs = zip(self._events[:-1], self._events[1:], strict=True)
        return [first.elapsed_time(last) / 1e3 for first, last in pairs]


class HostStamps:
    """For the interpreter, where a launch has run when it returns."""

    def __init__(self) -> None:
        self._times: list[float] = []

    def hold(self, seconds: float) -> None:
        """Nothing runs ahead here."""

    def stamp(self) -> None:
        """The time now."""
        self._times.append(time.perf_counter())

    def between(self) -> list[float]:
        """By the host's clock."""
        return [b - a for a, b in zip(self._times[:-1], self._times[1:], strict=True)]


class LaunchTimes:
    """One run of a program, launch by launch: `held` and `launches` in seconds, once the device is through."""

    def __init__(self, stamps: Stamps) -> None:
        self._stamps = stamps

    @property
    def held(self) -> float:
        """How long the device waited for the launches to be queued."""
        return self._stamps.between()[0]

    @property
    def launches(self) -> list[float]:
        """Each launch with its stamp, which takes a device about a microsecond."""
        return self._stamps.between()[1:]


def stamps_on(place: torch.device) -> Stamps:
    """Of the device's queue, or of the host for the interpreter."""
    return EventStamps() if place.type == "cuda" else HostStamps()


def run_timed(launches: Sequence[Launch], probe: Probe, place: torch.device) -> LaunchTimes:
    """Queue them one by one with stamps between, behind a hold that lasts until all are queued."""
    stamps = stamps_on(place)
    stamps.stamp()
    stamps.hold(HOLD_PER_LAUNCH * len(launches))
    stamps.stamp()
    for launch in launches:
        launch.run(probe)
        stamps.stamp()
    return LaunchTimes(stamps)
