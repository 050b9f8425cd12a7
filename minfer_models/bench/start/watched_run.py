"""`minfer run` as it is, in a process that tells afterwards when it came how far.

What a run shows of its progress marks the times; nothing is drawn. The last line of stderr is a JSON object.
"""

from __future__ import annotations

import json
import sys
from time import monotonic
from types import TracebackType
from typing import Self

MARKS = (("opening", "opened"), ("taking in", "planned"), ("planning", "loaded"))
"""How the first text of a stage begins, and what it marks the end of."""


class Watch:
    """A progress line that isn't drawn: `marks` are when things were reached, `compiled` how many kernels were."""

    def __init__(self) -> None:
        self.marks: dict[str, float] = {"began": monotonic()}
        self.compiled = 0

    def show(self, text: str, done: float | None = None, total: float | None = None) -> None:
        """Note the first text of every stage."""
        self.compiled += text.startswith("compiling")
        for begins, mark in MARKS:
            if text.startswith(begins):
                self.marks.setdefault(mark, monotonic())

    def say(self, text: str) -> None:
        """A line that stays is no mark."""

    def stop(self) -> None:
        """The first token is there."""
        self.marks.setdefault("first", monotonic())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def main() -> None:
    """Run the command line behind this module's name as `minfer` would."""
    watch = Watch()
    from minfer_models.cli import progress
    from minfer_models.cli.main import run

    progress.progress = lambda program="minfer": watch
    try:
        run()
    finally:
        from minfer_models.bench.machine import peak_bytes

        told = {"marks": watch.marks, "compiled": watch.compiled, "peak_bytes": peak_bytes()}
        print(json.dumps(told), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
