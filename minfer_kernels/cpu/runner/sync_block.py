"""Byte offsets in the block that the threads of a pool share; each contended word has cache lines to itself."""

from __future__ import annotations

ARRIVALS = 0
"""Threads that have reached the current barrier."""
PHASE = 128
"""Barriers passed."""
PHASE_SLEEPERS = 256
PROGRAM = 384
"""The job: a tape's address, its range of instructions, and how many threads walk it."""
START = 392
STOP = 400
ACTIVE = 408
QUIT = 416
WORKERS = 512
"""Every thread's own words, so that a job wakes those that take part and no other."""
WORKER_BYTES = 128
GENERATION = 0
"""Jobs published to this thread."""
GENERATION_SLEEPERS = 64
SYNC_ALIGNMENT = 128


def sync_bytes(n_threads: int) -> int:
    """The size of the block for a pool of `n_threads`."""
    return WORKERS + WORKER_BYTES * n_threads
