"""A sequence of tokens in an engine's context."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from itertools import takewhile
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from minfer_models.engine.engine import Engine, Logits, OutputRows
from minfer_models.engine.options import EngineError
from minfer_models.engine.rows import Rows

ALL_ROWS_CHUNK = 64
"""Rows per forward when every row's logits are wanted: they are as wide as the vocabulary."""
NO_IDS = (str, bytes, bytearray, memoryview)
"""Sequences of small numbers to Python, and texts that were never tokenized to everybody else."""


class ContextError(EngineError):
    """More tokens than the context holds; the message has both numbers."""


class TokenSequence:
    """Tokens that share a context: owns a reservation of KV cells until it is closed."""

    def __init__(self, engine: Engine, capacity: int | None = None) -> None:
        """Room for `capacity` tokens; None takes the whole context."""
        wanted = engine.n_ctx if capacity is None else capacity
        if wanted > engine.n_ctx:
            raise ContextError(f"{wanted} tokens exceed the available context size of {engine.n_ctx}")
        self._engine, self.id = engine, engine.new_sequence_id()
        engine.reserve(self.id, wanted)
        self.capacity = wanted
        self.length = 0
        # Written before the step that stores them: an interrupt between the two leaves `length` to say what is there.
        self._token_ids: list[int] = []
        self._closed = False

    @property
    def token_ids(self) -> list[int]:
        """The tokens that it holds, `[length]`."""
        return self._token_ids[: self.length]

    @property
    def closed(self) -> bool:
        """Whether its cells were given back."""
        return self._closed

    def feed(self, token_ids: Sequence[int] | NDArray[np.int32], outputs: OutputRows = "last") -> Logits:
        """Append tokens, in chunks where they are many.

        Returns float32 logits `[1, n_vocab]` of the last token, `[len(token_ids), n_vocab]` of all, or `[0, n_vocab]`
        of none. Raises ContextError, with nothing appended, when they don't fit.
        """
        ids = token_array(token_ids)
        self._check_room(len(ids))
        chunk = min(self._engine.chunk, ALL_ROWS_CHUNK) if outputs == "all" else self._engine.chunk
        starts = range(0, len(ids), chunk)
        before: OutputRows = "all" if outputs == "all" else "none"
        parts = [self._step(ids[i : i + chunk], outputs if i == starts[-1] else before) for i in starts]
        return np.concatenate(parts) if outputs == "all" else parts[-1]

    def next_logits(self, token_ids: Sequence[int]) -> Logits:
        """As `feed`, for whoever looks at the last logits `[n_vocab]` at once: the next forward overwrites them."""
        if len(token_ids) == 1 and type(token_ids[0]) is int:
            self._token_ids[self.length :] = token_ids
            logits = self._engine.next_logits(self.id, token_ids[0], self.length)
            if logits is not None:
                self.length += 1
                return logits
        ids = token_array(token_ids)
        self._check_room(len(ids))
        chunk = self._engine.chunk
        whole = (len(ids) - 1) // chunk * chunk
        if whole:
            self.feed(ids[:whole], "none")
        return self._step(ids[whole:], "last", copy=False)[0]

    def truncate(self, length: int) -> None:
        """Forget the tokens from position `length` on."""
        with self._engine.lock:
            self._engine.kv.truncate(self.id, length)
        self.length = length

    def common(self, token_ids: Sequence[int]) -> int:
        """How many tokens it holds that `token_ids` begin with, less the last of those: its logits are wanted again."""
        pairs = zip(self.token_ids, token_ids[:-1], strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

    def rewind(self, token_ids: Sequence[int]) -> int:
        """Forget what lies behind their `common` tokens, and return how many those are.

        Feeding the rest of `token_ids` then gives the logits that a new sequence would give, to the bit.
        """
        self.truncate(self.common(token_ids))
        return self.length

    def close(self) -> None:
        """Give the cells back; closing twice is fine."""
        if self._engine.forked:
            return
        with self._engine.lock:
            if not self._closed:
                self._engine.kv.release(self.id)
            self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_room(self, n: int) -> None:
        if self.length + n > self._engine.n_ctx:
            raise ContextError(f"{self.length + n} tokens exceed the available context size of {self._engine.n_ctx}")

    def _step(self, ids: NDArray[np.int32], outputs: OutputRows, copy: bool = True) -> Logits:
        self._token_ids[self.length :] = ids.tolist()
        logits = self._engine.forward(Rows.of(self.id, ids, self.length), outputs, copy)
        self.length += len(ids)
        return logits


def token_array(token_ids: Sequence[int] | NDArray[np.int32]) -> NDArray[np.int32]:
    """Token ids as int32 `[n]`; raises EngineError for none at all, and for what isn't a whole number of 32 bits."""
    if isinstance(token_ids, NO_IDS) or not isinstance(token_ids, Sequence | np.ndarray):
        raise EngineError(f"token ids are a list of whole numbers, got {reprlib.repr(token_ids)}")
    if len(token_ids) == 1 and type(token_ids[0]) is int and 0 <= token_ids[0] < 1 << 31:
        return np.array(token_ids, np.int32)
    try:
        ids = np.asarray(token_ids)
    except ValueError:  # lists of several lengths
        raise EngineError(f"token ids are a list of whole numbers, got {reprlib.repr(token_ids)}") from None
    if not ids.size:
        raise EngineError("a forward needs at least one token")
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise EngineError(f"token ids are a list of whole numbers, got {reprlib.repr(token_ids)}")
    if int(ids.max()) >= 1 << 31 or int(ids.min()) < 0:
        raise EngineError(f"token id {int(ids.max() if int(ids.max()) >= 1 << 31 else ids.min())} is out of range")
    return ids.astype(np.int32)
