"""Work that the last of several programs does, on what all of them left in memory."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def last_of(counter, count):
    """Whether this program arrives as the last of `count`; what the others stored before arriving is visible then.

    Which program is last differs from run to run, so what it does must not depend on it. It leaves the counter at 0, as
    the next run expects.
    """
    # All threads' stores come before the one thread's release.
    tl.debug_barrier()
    before = tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu")
    last = before == count - 1
    if last:
        tl.atomic_xchg(counter, 0, sem="relaxed", scope="gpu")
    tl.debug_barrier()
    return last
