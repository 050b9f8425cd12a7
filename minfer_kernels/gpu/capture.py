"""Capture: a program whose launches stay the same is recorded once and then replayed as one graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from minfer_ir.runtime.backend import BackendError
from minfer_ir.runtime.probe import Probe

WARM_RUNS = 3
"""Runs before the capture: kernels compile and load in them, which a capture can't record."""
RECORD, REPLAY = "capture.record", "capture.replay"
CAPTURE_SITES = (RECORD, REPLAY)

Work = Callable[[], None]


class CaptureError(BackendError):
    """Launches couldn't be captured; the message has what the device said and how to run without."""


@dataclass(frozen=True, slots=True)
class CaptureIdentity:
    """What a captured graph stands on, beside the program that owns it (one split of one GraphParams).

    `pool_generation` counts the buffers that were given back: a captured address may be another's since. `kv_layout`
    has the type and first byte of every KV region.
    """

    pool_generation: int
    kv_layout: tuple[tuple[str, int], ...]


class Capture:
    """Runs `launch_all`, from the fourth time on as a replay of what `record` recorded.

    A changed identity drops the graph and begins again with warm runs. `captures` and `replays` count.
    """

    def __init__(
        self,
        name: str,
        launch_all: Work,
        record: Callable[[Work], Work],
        identity: Callable[[], CaptureIdentity],
        probe: Callable[[], Probe],
    ) -> None:
        self._name, self._launch_all, self._record = name, launch_all, record
        self._identity, self._probe = identity, probe
        self._standing: CaptureIdentity | None = None
        self._replay: Work | None = None
        self.warm_runs = 0
        self.captures = 0
        self.replays = 0

    def run(self) -> None:
        """One run over the buffers as they are now; raises CaptureError, LaunchError."""
        now = self._identity()
        if now != self._standing:
            self._standing, self._replay, self.warm_runs = now, None, 0
        if self.warm_runs < WARM_RUNS:
            self._launch_all()
            self.warm_runs += 1
            return
        if self._replay is None:
            self._replay = self._recorded()
            self.captures += 1
        self._probe().hit(REPLAY)
        self._replay()
        self.replays += 1

    def _recorded(self) -> Work:
        try:
            self._probe().hit(RECORD)
            return self._record(self._launch_all)
        except Exception as error:  # a capture that breaks raises what the driver, torch or a kernel says
            raise CaptureError(
                f"capturing {self._name} failed: {error}. MINFER_GPU_CAPTURE=0 runs without captured graphs"
            ) from error
