"""Asking Linux for AMX's tile registers: their 8 KiB are saved only for processes that have asked."""

from __future__ import annotations

import ctypes
import sys
from functools import cache

_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA = 158, 0x1023, 18


@cache
def tiles_permitted() -> bool:
    """Whether this process's threads, those to come as well, may use AMX tiles; asks once (x86-64 alone has them).

    Linux refuses where a thread's alternate signal stack is too small for the larger frame.
    """
    if sys.platform != "linux":
        return False
    arguments = map(ctypes.c_long, (_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA))
    return ctypes.CDLL(None).syscall(*arguments) == 0
