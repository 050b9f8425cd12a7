"""How a command starts: with all three streams, and quiet when it's interrupted or ended, also while modules load.

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
from types import FrameType

INTERRUPTED = 130
ENDED_BY = ("SIGTERM", "SIGHUP")
COLLECT_EVERY = 50_000


def start(find: Callable[[], Callable[[], object]]) -> None:
    """Run the application that `find` imports; Ctrl-C at any time is exit code 130 without a word.

    SIGTERM and SIGHUP end it as tidily, with 128 and their number: no temporary file stays, no terminal in raw mode.
    """
    _open_missing_streams()
    _print_anything()
    ended_by = _end_tidily()
    # A file that is cut short while its pages are read ends a process by SIGBUS: at least not without a word.
    faulthandler.enable()
    # A start makes a million objects that last; looking for garbage among them every 700 takes a tenth of it.
    gc.set_threshold(COLLECT_EVERY, 20, 100)
    try:
        find()()
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except OSError as error:  # help or a usage error that can't be written; commands tell of their own
        print(f"{Path(sys.argv[0]).name}: {error.strerror or error}", file=sys.stderr)
        discard_output()
        raise SystemExit(1) from None
    finally:
        # only the interpreter's own end is left, and an interrupt there would print a traceback
        for number in [signal.SIGINT, *ended_by]:
            signal.signal(number, signal.SIG_DFL)


def _end_tidily() -> list[int]:
    """Have signals that end a process do so by an exception, a second one at once; ignored ones stay ignored."""

    def end(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise SystemExit(128 + number)

    named = [getattr(signal, name) for name in ENDED_BY if hasattr(signal, name)]
    heard = [number for number in named if signal.getsignal(number) == signal.SIG_DFL]
    for number in heard:
        signal.signal(number, end)
    return heard


def _print_anything() -> None:
    """A name or text that stdout's encoding lacks is printed escaped: it must not end what is otherwise done."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def discard_output() -> None:
    """Nothing more can be written to stdout; what is still buffered must not raise once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_missing_streams() -> None:
    """A stream that the caller closed leads nowhere; without this the next file opened would take its number."""
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 (kept open)
