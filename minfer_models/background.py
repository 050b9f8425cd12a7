"""A value that another thread makes while this one waits for native code."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Background(Generic[T]):
    """What `make` gives, made on a thread of its own once `start` was called."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: list[T] = []
        self._failed: BaseException | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin; only the first call does anything."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="minfer-background", daemon=True)
            self._thread.start()

    def result(self) -> T:
        """The value, once it is there; raises what making it raised."""
        self.start()
        assert self._thread is not None
        self._thread.join()
        if self._failed is not None:
            raise self._failed
        return self._made[0]

    def _run(self) -> None:
        try:
            self._made.append(self._make())
        except BaseException as error:
            self._failed = error
