"""A sequence of tokens in an engine's context."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from minfer_models.engine.engine import Engine, Logits, OutputRows
from minfer_models.engine.options import EngineError
from minfer_models.engine.rows import Rows

ALL_ROWS_CHUNK = 64
"""Rows per forward when every row's logits are wanted: they are as wide as the vocabulary."""


class ContextError(EngineError):
    """More tokens than the context holds; the message has both numbers."""


class TokenSequence:
    """Tokens that share a context: owns a reservation of KV cells until it is closed."""

    def __init__(self, engine: Engine, capacity: int | None = None) -> None:
        """Room for `capacity` tokens; None takes the whole context."""
        self._engine, self.id = engine, engine.new_sequence_id()
        engine.kv.reserve(self.id, engine.n_ctx if capacity is None else capacity)
        self.length = 0

    def feed(self, token_ids: Sequence[int], outputs: OutputRows = "last") -> Logits:
        """Append tokens, in chunks where they are many.

        Returns float32 logits `[1, n_vocab]` of the last token, or `[len(token_ids), n_vocab]` of all. Raises
        ContextError, with nothing appended, when they don't fit.
        """
        ids = np.asarray(token_ids, np.int32)
        if not len(ids):
            raise EngineError("a forward needs at least one token")
        if self.length + len(ids) > self._engine.n_ctx:
            raise ContextError(
                f"{self.length + len(ids)} tokens exceed the available context size of {self._engine.n_ctx}"
            )
        chunk = self._engine.chunk if outputs == "last" else min(self._engine.chunk, ALL_ROWS_CHUNK)
        parts = [self._step(ids[i : i + chunk], outputs) for i in range(0, len(ids), chunk)]
        return parts[-1] if outputs == "last" else np.concatenate(parts)

    def truncate(self, length: int) -> None:
        """Forget the tokens from position `length` on."""
        self._engine.kv.truncate(self.id, length)
        self.length = length

    def close(self) -> None:
        """Give the cells back."""
        self._engine.kv.release(self.id)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _step(self, ids: NDArray[np.int32], outputs: OutputRows) -> Logits:
        logits = self._engine.forward(Rows.of(self.id, ids, self.length), outputs)
        self.length += len(ids)
        return logits
