"""How a command starts: with all three streams, and quiet when it's interrupted, also while modules load.

Only what Python itself has loaded by then is imported here.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

INTERRUPTED = 130
COLLECT_EVERY = 50_000


def start(find: Callable[[], Callable[[], object]]) -> None:
    """Run the application that `find` imports; Ctrl-C at any time is exit code 130 without a word."""
    _open_missing_streams()
    # A file that is cut short while its pages are read ends a process by SIGBUS: at least not without a word.
    faulthandler.enable()
    # A start makes a million objects that last; looking for garbage among them every 700 takes a tenth of it.
    gc.set_threshold(COLLECT_EVERY, 20, 100)
    try:
        find()()
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    finally:
        # only the interpreter's own end is left, and an interrupt there would print a traceback
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _open_missing_streams() -> None:
    """A stream that the caller closed leads nowhere; without this the next file opened would take its number."""
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 (kept open)
