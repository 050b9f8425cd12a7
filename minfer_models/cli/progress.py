"""What is going on, on stderr: one line that renews itself on a terminal, an occasional line elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import monotonic
from types import TracebackType
from typing import Any, Protocol, Self

PLAIN_EVERY = 10.0
"""Seconds between lines where nobody watches: a log shows that it goes on, and stays short."""


class Progress(Protocol):
    """Shows what is going on until it is stopped. A context manager that stops itself."""

    def show(self, text: str, done: float | None = None, total: float | None = None) -> None:
        """What happens now, and how far it is where that is known."""
        ...

    def say(self, text: str) -> None:
        """A line that stays, whatever is shown."""
        ...

    def stop(self) -> None:
        """Take the line away; nothing is shown afterwards."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def progress(program: str = "minfer") -> Progress:
    """The progress of this process: a live line when stderr is a terminal."""
    return LiveLine(program) if sys.stderr.isatty() else PlainLines(program)


class LiveLine:
    """One line that rich redraws, with a bar where the total is known; gone once it is stopped."""

    def __init__(self, program: str = "minfer") -> None:
        self._program = program
        self._live: Any = None
        self._stopped = False

    def show(self, text: str, done: float | None = None, total: float | None = None) -> None:
        """Renew the line."""
        if self._stopped:
            return
        if self._live is None:
            self._live = _live_line(text)
            self._live.start()
        if total is None:
            self._live.update(0, description=text, completed=0, total=None)
        else:
            self._live.update(0, description=text, completed=done or 0, total=total)

    def say(self, text: str) -> None:
        """Print above the line."""
        if self._live is None:
            _print(self._program, text)
        else:
            self._live.console.print(f"{self._program}: {text}", markup=False, highlight=False, soft_wrap=True)

    def stop(self) -> None:
        """Erase the line."""
        self._stopped = True
        if self._live is not None:
            self._live.stop()
            self._live = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class PlainLines:
    """A line every ten seconds at most, none for what is quicker."""

    def __init__(self, program: str, clock: Callable[[], float] = monotonic) -> None:
        self._program, self._clock = program, clock
        self._last = clock()
        self._stopped = False

    def show(self, text: str, done: float | None = None, total: float | None = None) -> None:
        """Print the line when it is time."""
        now = self._clock()
        if self._stopped or now - self._last < PLAIN_EVERY:
            return
        self._last = now
        share = f" ({100 * (done or 0) / total:.0f} %)" if total else ""
        _print(self._program, text + share)

    def say(self, text: str) -> None:
        """Print the line, now."""
        _print(self._program, text)

    def stop(self) -> None:
        """Print nothing more."""
        self._stopped = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _print(program: str, text: str) -> None:
    print(f"{program}: {text}", file=sys.stderr, flush=True)


def _live_line(text: str) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    bars = Bars(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,  # the model's text passes by, piece by piece
        redirect_stderr=False,
    )
    bars.add_task(text, total=None)
    return bars
