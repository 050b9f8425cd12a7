"""Ctrl-C while an answer comes."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType

from minfer_models.generation import Generation


@contextmanager
def ctrl_c_stops(generation: Generation) -> Iterator[None]:
    """The first Ctrl-C has the generation end before its next token; a second one is a KeyboardInterrupt."""
    if current_thread() is not main_thread():
        yield
        return
    asked = False

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        generation.stop()

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
