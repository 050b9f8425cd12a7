"""The stages that change logits: in the caller's own row, because a copy of a wide one costs more than a choice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from minfer_models.sampling.history import History
from minfer_models.sampling.weights import Logits


class Edit(Protocol):
    """Changes logits of a row in place, and changes them back."""

    def apply(self, row: Logits, history: History) -> None:
        """Change them."""
        ...

    def undo(self, row: Logits) -> None:
        """Change them back."""
        ...


class Edits:
    """Several of them, in the pipeline's order."""

    def __init__(self, edits: Sequence[Edit]) -> None:
        self._edits = edits

    @contextmanager
    def applied(self, logits: Logits, history: History) -> Iterator[Logits]:
        """The logits with the edits in them: the same array, which is put back at the end, or a copy of one that

        can't be written to.
        """
        if not self._edits:
            yield logits
            return
        row = logits if logits.flags.writeable else logits.copy()
        done: list[Edit] = []
        try:
            for edit in self._edits:
                edit.apply(row, history)
                done.append(edit)
            yield row
        finally:
            for edit in reversed(done):
                edit.undo(row)
