"""Byte offsets in the block that the threads of a pool share; each contended word has cache lines to itself."""

from __future__ import annotations

ARRIVALS = 0
"""Threads that have reached the current barrier."""
PHASE = 128
"""Barriers passed."""
PHASE_SLEEPERS = 256
GENERATION = 384
"""Jobs published."""
GENERATION_SLEEPERS = 512
PROGRAM = 640
"""The job: a tape's address and its range of instructions."""
START = 648
STOP = 656
QUIT = 664
SYNC_BYTES = 768
SYNC_ALIGNMENT = 128
