"""The rows of one forward."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from minfer_ir.kv import check_grouped

Ints = NDArray[np.int32]


@dataclass(frozen=True)
class Rows:
    """One token per row, int32 `[n]` each; the rows of a sequence stand together, in ascending positions."""

    seq_ids: Ints
    token_ids: Ints
    positions: Ints

    @classmethod
    def of(cls, seq_id: int, token_ids: Sequence[int] | Ints, start: int) -> Self:
        """Rows of one sequence at positions from `start`."""
        ids = np.asarray(token_ids, np.int32)
        if len(ids) == 1:
            return cls(np.array([seq_id], np.int32), ids, np.array([start], np.int32))
        return cls(np.full(len(ids), seq_id, np.int32), ids, np.arange(start, start + len(ids), dtype=np.int32))

    @classmethod
    def batch(cls, parts: Sequence[Rows]) -> Self:
        """The rows of several sequences in one forward."""
        return cls(
            np.concatenate([p.seq_ids for p in parts]),
            np.concatenate([p.token_ids for p in parts]),
            np.concatenate([p.positions for p in parts]),
        )

    @cached_property
    def groups(self) -> list[tuple[int, int]]:
        """(sequence, number of its rows) in row order."""
        return check_grouped(self.seq_ids)

    def by_sequence(self) -> Iterator[tuple[int, Ints]]:
        """(sequence, its positions) in row order; raises KvError when a sequence's rows don't stand together."""
        start = 0
        for seq_id, count in self.groups:
            yield seq_id, self.positions[start : start + count]
            start += count

    def cells(self, resolve: Callable[[int, Ints], Ints]) -> Ints:
        """The cell of every row, by what `resolve` says of (sequence, positions)."""
        if len(self.groups) == 1:
            return resolve(self.groups[0][0], self.positions)
        return np.concatenate([resolve(seq_id, positions) for seq_id, positions in self.by_sequence()])

    def last_rows(self) -> Ints:
        """The row number of every sequence's last row."""
        if len(self.groups) == 1:
            return np.array([len(self.token_ids) - 1], np.int32)
        return np.cumsum([count for _, count in self.groups], dtype=np.int32) - 1
