"""A sequence that outlives a prompt, so that the next one need not compute again what both begin with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from minfer_ir.kv import KvError
from minfer_models.engine.engine import Engine
from minfer_models.engine.sequence import TokenSequence


class KeptSequence:
    """Holds KV cells between uses, and lends them meanwhile: another sequence that finds none free takes them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._sequence: TokenSequence | None = None

    @property
    def length(self) -> int:
        """Tokens held; 0 once the cells were taken."""
        return 0 if self._sequence is None or self._sequence.closed else self._sequence.length

    def common(self, token_ids: Sequence[int]) -> int:
        """How many of these tokens needn't be computed; others may take the cells before they are used."""
        sequence = self._sequence
        return 0 if sequence is None or sequence.closed else sequence.common(token_ids)

    @contextmanager
    def using(self, capacity: int) -> Iterator[TokenSequence]:
        """The sequence, with room for `capacity` tokens, as the last use left it; a new one where it is gone.

        Raises ContextError for more than the context, KvError when other sequences in use leave too few cells.
        """
        sequence = self._claimed(capacity)
        try:
            yield sequence
        finally:
            self._engine.lend(sequence.id, sequence.close)

    def close(self) -> None:
        """Give the cells back; a later use starts anew."""
        if self._sequence is not None:
            self._engine.claim(self._sequence.id)
            self._sequence.close()
            self._sequence = None

    def _claimed(self, capacity: int) -> TokenSequence:
        if self._sequence is not None:
            self._engine.claim(self._sequence.id)
            if not self._sequence.closed and self._sequence.capacity >= capacity:
                return self._sequence
            self.close()
        self._sequence = self._new(capacity)
        return self._sequence

    def _new(self, capacity: int) -> TokenSequence:
        """With the whole context where that is free: the talk will grow."""
        try:
            return TokenSequence(self._engine)
        except KvError:
            return TokenSequence(self._engine, capacity)
